//! Rollout of bundles to the edges of a PoP.
//!
//! Withdrawals go to all edges at once. Additions go to a few canary edges first, then to all
//! edges, or are rolled back.
//!
//! ```text
//! decide → decided: stable, reduced to what the state steers ───────────→ all edges
//!                   candidate, if it steers more
//!                     → canaries → acknowledged → watched → promoted ───→ stable
//!                     ├ refused or silent → another edge becomes a canary
//!                     └ the same at a quorum, or worse → rolled back ───→ last good rules,
//!                                                                         new number
//! ```
//!
//! While a candidate is on trial, the state keeps changing. New decisions are not queued: the next
//! candidate contains everything the state steers when the candidate is proposed, so none of the
//! candidate's rules are outdated.
//!
//! This module does no I/O and reads no clock: its inputs are polls, windows and the current time.
//! If a call returns transitions, the caller must store the rollout together with the state before
//! replying to another edge.
//!
//! **Invariant:** an edge gets the stable bundle or the candidate, never a bundle that it refuses,
//! and never a bundle with a lower number than the bundle it uses.
//! **Invariant:** after a decision, every prefix in a bundle is steered by the state.
//! **Invariant:** a rolled-back bundle is never distributed again, and its additions are withdrawn
//! from the state.
//! **Invariant:** durations are measured on the rollout's own clock, which advances only with
//! events. Neither a clock change nor controller downtime affects them.
//! **Invariant:** a candidate is promoted only after windows with traffic from a canary that uses
//! it.

mod check;
mod document;
mod edges;
mod follow;
mod quorum;
mod rules;
mod settings;
mod transition;
mod watch;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_bundle::Bundle;

use crate::figures::EdgeFigures;
use crate::settings::Settings;
pub use edges::{EDGE_NAME_BYTES_MAX, Poll};
pub(crate) use rules::steers_alike;
pub use settings::Canary;
pub use transition::{Figure, RollbackReason, Transition};

/// Format version written by [`Rollout::encode`].
pub const ROLLOUT_FORMAT: u32 = 1;
/// Maximum advance of the rollout's clock per event, in seconds. The caller must tick at least
/// twice in this time.
const STEP_S_MAX: u64 = 60;

/// The rollout state of a PoP: its bundles and edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    format: u32,
    /// Highest bundle number issued so far or reported by an edge.
    newest: u64,
    /// Bundle for all edges except canaries; `None` before the first decision.
    #[serde(with = "document::option")]
    stable: Option<Bundle>,
    candidate: Option<Candidate>,
    /// Number of decisions since the last candidate was proposed.
    rounds: u32,
    edges: BTreeMap<String, Edge>,
    clock: Clock,
}

/// A bundle that is being tried on canary edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Bundle on trial. Its number is above the stable bundle's.
    #[serde(with = "document")]
    pub bundle: Bundle,
    /// Time at which the candidate was created or its canaries were chosen, in Unix seconds.
    pub since_unix_s: u64,
    /// Canary edges by name. The value states whether the edge reports using the candidate.
    pub canaries: BTreeMap<String, bool>,
    /// Stage of the candidate.
    pub stage: Stage,
    /// Number of decisions in the candidate that are not in the stable bundle.
    rounds: u32,
}

/// Stage of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// No edge can become a canary yet; the first eligible edge to poll becomes the canary.
    #[serde(rename = "Unheard")]
    Unassigned,
    /// Canaries have been chosen and must acknowledge the candidate.
    #[serde(rename = "Handed")]
    Assigned {
        /// Start of this stage, in seconds of the rollout's clock.
        since_s: u64,
        /// Number of acknowledgements required.
        wanted: usize,
        /// Whether replacements for silent canaries have already been chosen.
        is_second: bool,
    },
    /// Canaries use the candidate and are watched.
    Watched {
        /// Time of the last window, in seconds of the rollout's clock.
        since_s: u64,
        /// Wall-clock start of the stage, in Unix seconds. Windows that started earlier are
        /// incomplete.
        since_unix_s: u64,
        /// Number of windows with canary traffic since the stage started.
        windows: u32,
        /// Number of consecutive windows without canary traffic, up to the newest.
        #[serde(default)]
        unseen: u32,
        /// Figures of the canaries in these windows.
        own: EdgeFigures,
        /// Figures of the other edges in these windows.
        others: EdgeFigures,
    },
}

impl Candidate {
    /// Returns a human-readable description of the stage.
    pub fn stage_text(&self) -> String {
        match &self.stage {
            Stage::Unassigned => "waiting for an edge".to_owned(),
            Stage::Assigned { .. } => "sent to canaries".to_owned(),
            Stage::Watched { unseen: 0, .. } => "watched".to_owned(),
            Stage::Watched { .. } => {
                format!("waiting: {}", transition::no_traffic_text(&self.acknowledging()))
            }
        }
    }

    /// Returns the canaries using the candidate.
    fn acknowledging(&self) -> Vec<String> {
        self.canaries.iter().filter(|(_, uses_it)| **uses_it).map(|(name, _)| name.clone()).collect()
    }
}

/// State of an edge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Checksum of the bundle in force, if any.
    pub in_force: Option<String>,
    /// Number of the bundle in force. `None` unless the edge reported the number, or the bundle was
    /// active when the edge adopted it.
    pub number: Option<u64>,
    /// Time of the last poll, in Unix seconds.
    pub heard_unix_s: u64,
    /// Time of the last poll, in seconds of the rollout's clock.
    heard_s: u64,
    /// Newest stable bundle refused by the edge, if any.
    pub refused: Option<Refusal>,
    /// Newest candidate refused by the edge as a canary, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_candidate: Option<Refusal>,
    /// Whether the edge has already been reported silent.
    pub is_silent: bool,
    /// The edge's figures in windows without a candidate.
    before: Option<EdgeFigures>,
}

/// A bundle refused by an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Checksum of the refused bundle.
    pub checksum: String,
    /// Reason given by the edge.
    pub reason: String,
}

/// The rollout's own clock, which advances with events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    own_s: u64,
    /// Wall-clock time of the last event, in Unix seconds. `None` before the first event.
    last_unix_s: Option<u64>,
}

impl Clock {
    /// Advances the clock. Returns whether the wall clock advanced by at most `steady_s_max` since
    /// the last event and did not go back.
    fn advance(&mut self, now_unix_s: u64, steady_s_max: u64) -> bool {
        let last_unix_s = self.last_unix_s.replace(now_unix_s).unwrap_or(now_unix_s);
        let passed_s = now_unix_s.checked_sub(last_unix_s);
        self.own_s = self.own_s.saturating_add(passed_s.unwrap_or_default().min(STEP_S_MAX));
        passed_s.is_some_and(|passed_s| passed_s <= steady_s_max)
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            format: ROLLOUT_FORMAT,
            newest: 0,
            stable: None,
            candidate: None,
            rounds: 0,
            edges: BTreeMap::new(),
            clock: Clock::default(),
        }
    }
}

impl Rollout {
    /// Returns the bundle to send to an edge. Returns `None` before the first decision, if the edge
    /// refuses the bundle, or if the edge already has a bundle with a higher number. If that edge
    /// has a vote, the next decision issues a bundle with a number above the edge's.
    pub fn document(&self, edge: &str) -> Option<&Bundle> {
        let bundle = self.assigned(edge)?;
        let Some(known) = self.edges.get(edge) else { return Some(bundle) };
        (!known.refuses(bundle.checksum()) && known.number <= Some(bundle.content().number)).then_some(bundle)
    }

    /// Returns the bundle for an edge, regardless of refusals.
    fn assigned(&self, edge: &str) -> Option<&Bundle> {
        let candidate = self.candidate.as_ref().filter(|it| it.canaries.contains_key(edge));
        candidate.map(|it| &it.bundle).or(self.stable.as_ref())
    }

    /// Resumes after records were lost, for example while the controller was down. The currently
    /// open window counts as incomplete.
    pub fn resume(&mut self, now_unix_s: u64) {
        if let Some(since_unix_s) = self.watched_since_unix_s() {
            *since_unix_s = now_unix_s.max(*since_unix_s);
        }
    }

    /// Advances the clock. After a clock change, the currently open window counts as incomplete.
    fn advance(&mut self, settings: &Settings, now_unix_s: u64) {
        if !self.clock.advance(now_unix_s, settings.window_s)
            && let Some(since_unix_s) = self.watched_since_unix_s()
        {
            *since_unix_s = now_unix_s;
        }
    }

    fn watched_since_unix_s(&mut self) -> Option<&mut u64> {
        match &mut self.candidate.as_mut()?.stage {
            Stage::Watched { since_unix_s, .. } => Some(since_unix_s),
            Stage::Unassigned | Stage::Assigned { .. } => None,
        }
    }

    /// Returns the bundle for all edges except canaries, or `None` before the first decision.
    pub fn stable(&self) -> Option<&Bundle> {
        self.stable.as_ref()
    }

    /// Returns the candidate, if any.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidate.as_ref()
    }

    /// Returns all known edges, by name.
    pub fn edges(&self) -> &BTreeMap<String, Edge> {
        &self.edges
    }

    /// Returns the highest bundle number issued so far or reported by an edge.
    /// [`Moment::acknowledged_bundle`](crate::Moment) must be at least this.
    pub fn newest(&self) -> u64 {
        self.newest
    }
}
