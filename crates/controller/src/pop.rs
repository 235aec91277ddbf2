//! A PoP: what is known of it, and how far its bundles have come.
//!
//! **Invariant:** an edge is answered only by what is in the file: what could not be written is written before anybody hears of it.

use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_bundle::Bundle;
use thalweg_control::{Decision, Moment, Poll, Rollout, Round, Settings, Tenants, Transition, Window};
use tokio::sync::watch;

use crate::document::{Document, Heard};
use crate::round::Told;

/// Rounds, of all tenants, that wait to be written; of more the oldest are not in the ledger.
const UNWRITTEN_MAX: usize = 1_000;

/// What is known of a PoP.
#[derive(Debug, Default)]
pub(crate) struct Pop {
    pub(crate) tenants: Tenants,
    pub(crate) rollout: Rollout,
    /// What is not in the file yet.
    pub(crate) unwritten: Unwritten,
    /// Texts of the bundles that are out.
    documents: Vec<Arc<Document>>,
    /// Changes when something was written.
    pub(crate) changes: watch::Sender<()>,
}

/// What became of the windows of one span of time.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// What was decided, by tenants.
    pub(crate) decisions: Vec<(String, Decision)>,
    /// Connections of hosts for which as tenants there was no room.
    pub(crate) over_limit: u64,
}

/// What is to be written of a PoP.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    pub(crate) rounds: Vec<Told>,
    pub(crate) transitions: Vec<Transition>,
    /// Whether states have changed; the rollout has whenever something has.
    pub(crate) states: bool,
    /// Tenants of which all is to be removed.
    pub(crate) forgotten: Vec<String>,
    is_changed: bool,
}

impl Unwritten {
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_changed
    }

    fn add(&mut self, transitions: Vec<Transition>) {
        self.is_changed |= !transitions.is_empty();
        self.states |= transitions.iter().any(Transition::changes_states);
        self.transitions.extend(transitions);
        let over = self.transitions.len().saturating_sub(UNWRITTEN_MAX);
        self.transitions.drain(..over);
    }
}

impl Pop {
    pub(crate) fn of(tenants: Tenants, rollout: Rollout) -> Self {
        Self { tenants, rollout, ..Self::default() }
    }

    /// Decides the windows of one span of time, unless that was decided or is from before the last.
    pub(crate) fn close(
        &mut self,
        settings: &Settings,
        (window, windows): (&Window, Vec<(String, Window)>),
        seed: u64,
        now_unix_s: u64,
    ) -> Closed {
        let mut closed = Closed::default();
        if !self.tenants.is_next(settings, window, now_unix_s) {
            return closed;
        }
        self.unwritten.add(self.rollout.observe(settings, &mut self.tenants, window, now_unix_s));
        let moment = Moment { now_unix_s, seed, acknowledged_bundle: self.rollout.newest() };
        let mut windows = self.tenants.with_quiet(windows);
        let known: Vec<_> = self.tenants.states().keys().cloned().collect();
        let decisions = self.tenants.decide(settings, &windows, moment);
        let forgotten = known.into_iter().filter(|tenant| !self.tenants.states().contains_key(tenant));
        self.unwritten.forgotten.extend(forgotten);
        self.unwritten.add(self.rollout.decided(settings, &mut self.tenants, now_unix_s));
        let bundle = Some(self.rollout.newest()).filter(|newest| *newest > 0);
        for (at, decision) in decisions {
            let (tenant, window) = std::mem::take(&mut windows[at]);
            let is_decided = matches!(decision.round, Round::Decided | Round::Stopped);
            self.unwritten.states |= is_decided;
            self.unwritten.is_changed |= is_decided;
            // Of whom nobody asked for it is told what has changed.
            if window.prefixes.is_empty() && decision.left.is_empty() {
                continue;
            }
            if is_decided {
                self.unwritten.rounds.push(Told::of(settings, &tenant, &window, &decision, bundle));
            }
            closed.decisions.push((tenant, decision));
        }
        let undecided = windows.iter().flat_map(|(_, window)| &window.prefixes);
        closed.over_limit = undecided.map(|(_, sample)| u64::from(sample.connections())).sum();
        let over = self.unwritten.rounds.len().saturating_sub(UNWRITTEN_MAX);
        self.unwritten.rounds.drain(..over);
        closed
    }

    /// Hears an edge.
    pub(crate) fn hear(&mut self, settings: &Settings, edge: &str, heard: &Heard, now_unix_s: u64) {
        let refused = heard.refused.as_ref();
        let poll = Poll {
            edge,
            in_force: heard.in_force(),
            number: heard.number,
            refused: refused.map(|(checksum, reason)| (checksum.as_str(), reason.as_str())),
        };
        self.unwritten.add(self.rollout.poll(settings, &mut self.tenants, poll, now_unix_s));
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self, settings: &Settings, now_unix_s: u64) {
        self.unwritten.add(self.rollout.tick(settings, &mut self.tenants, now_unix_s));
    }

    /// The number of the bundle that all edges have but canaries.
    pub(crate) fn bundle(&self) -> Option<u64> {
        self.rollout.stable().map(|bundle| bundle.content().number)
    }

    /// What was to be written is.
    pub(crate) fn written(&mut self) {
        self.unwritten = Unwritten::default();
    }

    /// The bundle for an edge; an edge without a name gets what all get.
    pub(crate) fn document(&mut self, edge: &str) -> Option<Arc<Document>> {
        let bundle = self.rollout.document(edge)?;
        if let Some(known) = self.documents.iter().find(|document| document.is_of(bundle)) {
            return Some(known.clone());
        }
        let document = Document::new(bundle);
        let (rollout, documents) = (&self.rollout, &mut self.documents);
        documents.retain(|document| out(rollout).any(|bundle| document.is_of(bundle)));
        documents.push(document.clone());
        Some(document)
    }

    /// The edges, and the bundles that are out.
    pub(crate) fn edges(&self) -> Value {
        let number = |bundle: &Bundle| bundle.content().number;
        let candidate = self.rollout.candidate();
        let canaries = candidate.map(|candidate| &candidate.canaries);
        let edges: Vec<_> = self
            .rollout
            .edges()
            .iter()
            .map(|(name, edge)| {
                json!({
                    "name": name,
                    "bundle": edge.number,
                    "heard_unix_s": edge.heard_unix_s,
                    "is_canary": canaries.is_some_and(|canaries| canaries.contains_key(name)),
                    "refused": edge.refused.as_ref().map(|refusal| json!({ "reason": refusal.reason })),
                })
            })
            .collect();
        json!({
            "stable": self.bundle(),
            "candidate": candidate.map(|candidate| json!({
                "number": number(&candidate.bundle),
                "stage": candidate.standing(),
                "since_unix_s": candidate.since_unix_s,
            })),
            "edges": edges,
        })
    }
}

/// The bundles that edges get.
pub(crate) fn out(rollout: &Rollout) -> impl Iterator<Item = &Bundle> {
    rollout.stable().into_iter().chain(rollout.candidate().map(|candidate| &candidate.bundle))
}
