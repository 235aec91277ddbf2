//! State of a PoP: its tenants, its rollout, and the changes not yet stored.
//!
//! **Invariant:** replies to edges are based only on stored state, because changes are stored
//! before they are published.

use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_bundle::Bundle;
use thalweg_control::{Decision, Moment, Poll, Rollout, RoundOutcome, Settings, Tenants, Transition, Window};
use tokio::sync::watch;

use crate::document::{Document, EdgeReport};
use crate::round::RoundRecord;

/// Maximum number of rounds, across all tenants, that wait to be stored. Beyond it, the oldest
/// rounds are dropped and will be missing from the ledger.
const UNWRITTEN_MAX: usize = 1_000;

/// Number of windows without records after which a PoP is silent.
const SILENT_WINDOWS: u64 = 2;

/// A PoP's state.
#[derive(Debug, Default)]
pub(crate) struct Pop {
    pub(crate) tenants: Tenants,
    pub(crate) rollout: Rollout,
    /// Changes not yet stored.
    pub(crate) unwritten: PendingChanges,
    /// Documents of the active bundles, encoded at first use.
    documents: Vec<Arc<Document>>,
    /// Notifies subscribers when changes have been stored.
    pub(crate) changes: watch::Sender<()>,
}

/// Result of deciding the windows of one time span.
#[derive(Debug, Default)]
pub(crate) struct ClosedRound {
    /// Decisions, by tenant.
    pub(crate) decisions: Vec<(String, Decision)>,
    /// Number of connections to hosts that could not become tenants because the limit was reached.
    pub(crate) over_limit: u64,
}

/// A PoP's changes that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges {
    pub(crate) rounds: Vec<RoundRecord>,
    pub(crate) transitions: Vec<Transition>,
    /// Whether tenant states changed. The rollout is stored with every change.
    pub(crate) states: bool,
    /// Tenants whose data is to be deleted.
    pub(crate) forgotten: Vec<String>,
    is_changed: bool,
}

impl PendingChanges {
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

    /// Decides the windows of one time span, unless that span or a later one has already been
    /// decided.
    pub(crate) fn close(
        &mut self,
        settings: &Settings,
        window: &Window,
        windows: Vec<(String, Window)>,
        seed: u64,
        now_unix_s: u64,
    ) -> ClosedRound {
        let mut closed = ClosedRound::default();
        if !self.tenants.is_next(settings, window, now_unix_s) {
            return closed;
        }
        self.unwritten.add(self.rollout.observe(settings, &mut self.tenants, window, now_unix_s));
        let moment = Moment { now_unix_s, seed, acknowledged_bundle: self.rollout.newest() };
        let mut windows = self.tenants.with_empty_windows(windows);
        let known: Vec<_> = self.tenants.states().keys().cloned().collect();
        let decisions = self.tenants.decide(settings, &windows, moment);
        let forgotten = known.into_iter().filter(|tenant| !self.tenants.states().contains_key(tenant));
        self.unwritten.forgotten.extend(forgotten);
        self.unwritten.add(self.rollout.apply_decisions(settings, &mut self.tenants, now_unix_s));
        let bundle = Some(self.rollout.newest()).filter(|newest| *newest > 0);
        for (at, decision) in decisions {
            let (tenant, window) = std::mem::take(&mut windows[at]);
            let is_decided = matches!(decision.round, RoundOutcome::Decided | RoundOutcome::Stopped);
            self.unwritten.states |= is_decided;
            self.unwritten.is_changed |= is_decided;
            // Tenants without traffic are reported only if prefixes were withdrawn.
            if window.prefixes.is_empty() && decision.left.is_empty() {
                continue;
            }
            if is_decided {
                self.unwritten.rounds.push(RoundRecord::of(settings, &tenant, &window, &decision, bundle));
            }
            closed.decisions.push((tenant, decision));
        }
        let undecided = windows.iter().flat_map(|(_, window)| &window.prefixes);
        closed.over_limit = undecided.map(|(_, sample)| u64::from(sample.connections())).sum();
        let over = self.unwritten.rounds.len().saturating_sub(UNWRITTEN_MAX);
        self.unwritten.rounds.drain(..over);
        closed
    }

    /// Records the status reported by an edge.
    pub(crate) fn poll(&mut self, settings: &Settings, edge: &str, report: &EdgeReport, now_unix_s: u64) {
        let poll = Poll {
            edge,
            in_force: report.in_force(),
            number: report.number,
            refused: report.refused.as_ref(),
        };
        self.unwritten.add(self.rollout.poll(settings, &mut self.tenants, poll, now_unix_s));
    }

    /// Advances the rollout to the time `now_unix_s`.
    pub(crate) fn tick(&mut self, settings: &Settings, now_unix_s: u64) {
        self.unwritten.add(self.rollout.tick(settings, &mut self.tenants, now_unix_s));
    }

    /// Returns the number of the stable bundle, if any.
    pub(crate) fn bundle(&self) -> Option<u64> {
        self.rollout.stable().map(|bundle| bundle.content().number)
    }

    /// Returns whether any edge may be steered.
    pub(crate) fn is_steering(&self) -> bool {
        active_bundles(&self.rollout).any(|bundle| !bundle.content().rules.is_empty())
    }

    /// Returns whether the last [`SILENT_WINDOWS`] windows had no records. `closes_unix_s` is the
    /// time up to which windows are closed.
    pub(crate) fn is_silent(&self, settings: &Settings, closes_unix_s: u64) -> bool {
        let Some(window) = self.tenants.window() else { return false };
        let missing = window.saturating_add(1 + SILENT_WINDOWS).saturating_mul(settings.window_s);
        missing.saturating_add(settings.late_s) < closes_unix_s
    }

    /// Returns whether any tenant's new trials are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.tenants.states().values().any(|state| state.guard.pause_windows > 0)
    }

    /// Marks all changes as stored.
    pub(crate) fn written(&mut self) {
        self.unwritten = PendingChanges::default();
    }

    /// Returns an edge's document. An edge without a name gets the stable bundle.
    pub(crate) fn document(&mut self, edge: &str) -> Option<Arc<Document>> {
        let bundle = self.rollout.document(edge)?;
        if let Some(known) = self.documents.iter().find(|document| document.is_of(bundle)) {
            return Some(known.clone());
        }
        let document = Document::new(bundle);
        let (rollout, documents) = (&self.rollout, &mut self.documents);
        documents.retain(|document| active_bundles(rollout).any(|bundle| document.is_of(bundle)));
        documents.push(document.clone());
        Some(document)
    }

    /// Formats the edges and the active bundles as JSON.
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
                    "refused": edge.refused_candidate.as_ref().or(edge.refused.as_ref()).map(|refusal| json!({ "reason": refusal.reason })),
                })
            })
            .collect();
        json!({
            "stable": self.bundle(),
            "candidate": candidate.map(|candidate| json!({
                "number": number(&candidate.bundle),
                "stage": candidate.stage_text(),
                "since_unix_s": candidate.since_unix_s,
            })),
            "edges": edges,
        })
    }
}

/// Returns the bundles currently distributed to edges.
pub(crate) fn active_bundles(rollout: &Rollout) -> impl Iterator<Item = &Bundle> {
    rollout.stable().into_iter().chain(rollout.candidate().map(|candidate| &candidate.bundle))
}

#[cfg(test)]
mod tests {
    use thalweg_control::State;

    use super::*;

    #[test]
    fn pop_is_silent_after_two_windows_without_records() {
        let settings = Settings::default();
        assert!(!Pop::default().is_silent(&settings, u64::MAX), "a PoP without windows is unknown");
        let mut state = State::default();
        (state.window, state.guard.pause_windows) = (Some(10), 1);
        let states = [(String::new(), state)].into_iter();
        let pop = Pop::of(states.collect(), Rollout::default());
        let closed_unix_s = 13 * settings.window_s + settings.late_s;
        assert!(!pop.is_silent(&settings, closed_unix_s) && pop.is_silent(&settings, closed_unix_s + 1));
        assert!(pop.is_paused() && !Pop::default().is_paused());
    }
}
