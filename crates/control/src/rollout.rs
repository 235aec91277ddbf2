//! How bundles get to the edges of a PoP: what adds goes to a few edges first, which are watched, then to all; what takes back goes to
//! all at once.
//!
//! ```text
//! decide → decided: stable, reduced to what the state steers ──────────────────────────→ all edges
//!                   candidate, where it steers more ──→ canaries ─ acknowledge ─ watched ─ promoted → stable
//!                                                          refused, silent, worse ─→ rolled back: last good rules, new number
//! ```
//!
//! The state is what waits: while there is a candidate it goes on, and the next candidate is all that it steers then. So only
//! the newest waits, and none of its rules can be old.
//!
//! Pure: polls, windows and `now` come in. Who keeps a rollout keeps it together with the state, whenever a call has told something,
//! before an edge is answered again.
//!
//! **Invariant:** an edge is given the stable bundle or the candidate, none that it refuses, and never a lower number than before.
//! **Invariant:** after a decision no bundle has a prefix that the state does not steer.
//! **Invariant:** what was rolled back is not given again, and what it added has left the state.
//! **Invariant:** spans are told on a clock of its own, which goes on while events come: neither a clock that is set nor the time that a
//! controller was down has a part in them.
//! **Invariant:** a candidate goes to all only after windows that tell of a canary which goes by it.

mod check;
mod document;
mod edges;
mod follow;
mod rules;
mod settings;
mod transition;
mod watch;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_bundle::Bundle;

use crate::figures::Figures;
use crate::settings::Settings;
pub use edges::{EDGE_NAME_BYTES_MAX, Poll};
pub(crate) use rules::steers_alike;
pub use settings::Canary;
pub use transition::{Figure, Transition, Why};

/// The version of the form that [`Rollout::encode`] writes.
pub const ROLLOUT_FORMAT: u32 = 1;
/// What an event may add to a rollout's own clock, seconds: it has to be told the time twice as often.
const STEP_S_MAX: u64 = 60;

/// What is known of a PoP's bundles and of who has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    format: u32,
    /// The highest number of a bundle that was made, or that an edge has.
    newest: u64,
    /// What edges get that are no canaries; absent before the first decision.
    #[serde(with = "document::option")]
    stable: Option<Bundle>,
    candidate: Option<Candidate>,
    /// Decisions that are in no bundle yet.
    rounds: u32,
    edges: BTreeMap<String, Edge>,
    clock: Clock,
}

/// A bundle that is tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The bundle; its number is above that of the stable one.
    #[serde(with = "document")]
    pub bundle: Bundle,
    /// When it was made, or its canaries were chosen: seconds since the Unix epoch.
    pub since_unix_s: u64,
    /// The edges that get it, and whether they say that they go by it.
    pub canaries: BTreeMap<String, bool>,
    /// How far it is.
    pub stage: Stage,
    /// Decisions that are in it, and not in the stable one.
    rounds: u32,
}

/// How far a candidate is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// No edge is heard: the first one becomes its canary.
    Unheard,
    /// Canaries have it, and are to acknowledge it.
    Handed {
        /// Since when, on the rollout's clock.
        since_s: u64,
        /// How many have to.
        wanted: usize,
        /// Whether others were chosen already for those that do not.
        is_second: bool,
    },
    /// Canaries go by it.
    Watched {
        /// Since when there was no window, on the rollout's clock.
        since_s: u64,
        /// Since when, by the clock: windows that began before are not whole.
        since_unix_s: u64,
        /// Windows since, of those that tell of a canary.
        windows: u32,
        /// Windows one after the other, the newest, that tell of none.
        #[serde(default)]
        unseen: u32,
        /// How the canaries did in them,
        own: Figures,
        /// and how the others did.
        others: Figures,
    },
}

impl Candidate {
    /// How far it is, in words.
    pub fn standing(&self) -> String {
        match &self.stage {
            Stage::Unheard => "waits for an edge".to_owned(),
            Stage::Handed { .. } => "handed to canaries".to_owned(),
            Stage::Watched { unseen: 0, .. } => "watched".to_owned(),
            Stage::Watched { .. } => format!("waits: {}", transition::untold(&self.acknowledging())),
        }
    }

    /// Canaries that go by it.
    fn acknowledging(&self) -> Vec<String> {
        self.canaries.iter().filter(|(_, goes_by_it)| **goes_by_it).map(|(name, _)| name.clone()).collect()
    }
}

/// What is known of an edge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The checksum of the bundle that it goes by; absent if it has none.
    pub in_force: Option<String>,
    /// Its number, where the bundle is one of those that were out then, or the edge says so.
    pub number: Option<u64>,
    /// When it was heard, seconds since the Unix epoch,
    pub heard_unix_s: u64,
    /// and on the rollout's clock.
    heard_s: u64,
    /// What it refuses, the newest.
    pub refused: Option<Refusal>,
    /// Whether it was told to be heard no more.
    pub is_silent: bool,
    /// How it did in windows without a candidate.
    before: Option<Figures>,
}

/// What an edge refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The bundle's checksum.
    pub checksum: String,
    /// Why, in the edge's words.
    pub reason: String,
}

/// Goes on while events come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    own_s: u64,
    /// The clock at the last event; absent before the first.
    last_unix_s: Option<u64>,
}

impl Clock {
    /// Whether the clock has gone on since the last event, by at most so much.
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
    /// The bundle for an edge; nothing before the first, where the edge refuses it, and where it has a higher one until the next decision.
    pub fn document(&self, edge: &str) -> Option<&Bundle> {
        let bundle = self.given(edge)?;
        let Some(known) = self.edges.get(edge) else { return Some(bundle) };
        let is_refused = known.refused.as_ref().is_some_and(|it| it.checksum == bundle.checksum());
        (!is_refused && known.number <= Some(bundle.content().number)).then_some(bundle)
    }

    /// The bundle for an edge, whether or not it refuses it.
    fn given(&self, edge: &str) -> Option<&Bundle> {
        let candidate = self.candidate.as_ref().filter(|it| it.canaries.contains_key(edge));
        candidate.map(|it| &it.bundle).or(self.stable.as_ref())
    }

    /// Goes on after records were lost, as by a controller that was down: the window that is open now is not whole.
    pub fn resume(&mut self, now_unix_s: u64) {
        if let Some(since_unix_s) = self.watched_since_unix_s() {
            *since_unix_s = now_unix_s.max(*since_unix_s);
        }
    }

    /// Lets time pass. A clock that was set leaves a window of which only a part is seen.
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
            Stage::Unheard | Stage::Handed { .. } => None,
        }
    }

    /// What edges get that are no canaries; absent before the first decision.
    pub fn stable(&self) -> Option<&Bundle> {
        self.stable.as_ref()
    }

    /// What is tried.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidate.as_ref()
    }

    /// What is known of each edge, by its name.
    pub fn edges(&self) -> &BTreeMap<String, Edge> {
        &self.edges
    }

    /// The highest number of a bundle that was made, or that an edge has: what [`Moment::acknowledged_bundle`](crate::Moment) is at least.
    pub fn newest(&self) -> u64 {
        self.newest
    }
}
