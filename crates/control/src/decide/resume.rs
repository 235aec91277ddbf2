//! Continuation from a state that is older than the edges' bundles, or based on other settings, and
//! after the clock was set back.

use super::round::DecisionRound;
use crate::entry::{Entry, Phase};
use crate::evidence::Evidence;
use crate::reason::Reason;
use crate::state::BUNDLES_MAX;
use crate::switchback::Switchback;

/// Maximum bundle number accepted from edges. Half of all numbers remain above it, so an invalid
/// report cannot use them up.
pub(crate) const BUNDLES_BELIEVED_MAX: u64 = BUNDLES_MAX / 2;

impl DecisionRound<'_> {
    /// Advances to the newest bundle number known from the edges. If that number is above the
    /// state's, the state is empty or older than the edges' rules, so connections count only from
    /// the next bundle on.
    pub(super) fn adopt_edge_bundle(&mut self) {
        self.state.advance_bundle_number(self.newest_edge_bundle());
    }

    /// Returns the newest bundle number acknowledged by an edge or used by a connection in the
    /// window. Both count, because acknowledgements may lag.
    fn newest_edge_bundle(&self) -> u64 {
        let outcomes = self.window.prefixes.iter().flat_map(|(_, sample)| &sample.outcomes);
        let bundles = outcomes.map(|outcome| outcome.bundle).chain([self.moment.acknowledged_bundle]);
        bundles.filter(|bundle| *bundle <= BUNDLES_BELIEVED_MAX).max().unwrap_or(0)
    }

    /// Discards the parts of the state invalidated by changed settings: see [`crate::basis`].
    pub(super) fn discard_invalidated(&mut self) {
        if !self.changes.discards_evidence {
            return;
        }
        // Force a new bundle even if no rule changed, because restarted trials count connections
        // only from a new bundle on.
        self.state.rules_digest = None;
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            if self.changes.discards_rules {
                entry.forget_failures(self.settings.cool_off_windows);
            }
            match &mut entry.phase {
                Phase::Idle => {}
                Phase::CoolingOff(cooling) => cooling.estimate = None,
                Phase::Steered(_) if self.changes.discards_rules => self.withdraw(entry, Reason::Changed),
                Phase::Steered(_) => self.restart_trial(entry),
            }
        }
        self.state.entries = entries;
    }

    /// Draws anew in all trials if the clock was set back, because the clock then passes again
    /// through redraw periods whose draws have already been counted. Under a new salt, the draws in
    /// these periods are independent of the earlier draws, so the evidence stays valid.
    pub(super) fn redraw_after_set_back(&mut self) {
        if !self.is_set_back {
            return;
        }
        let mut entries = std::mem::take(&mut self.state.entries);
        for steered in entries.iter_mut().filter_map(Entry::steered_mut) {
            if steered.holdout_millionths == 0 {
                continue;
            }
            (steered.trial, steered.salt) = self.new_trial();
            steered.from_bundle = self.state.bundle + 1;
            steered.switchback.iter_mut().for_each(Switchback::redraw);
        }
        self.state.entries = entries;
    }

    /// Restarts the trial of a steered prefix.
    pub(super) fn restart_trial(&mut self, entry: &mut Entry) {
        let baseline = entry.ln_goodput.map(f64::from);
        let Phase::Steered(steered) = &mut entry.phase else { return };
        steered.is_renewed |= steered.proof.is_some();
        (steered.trial, steered.salt) = self.new_trial();
        (steered.promise, steered.switchback, steered.proof) = (None, None, None);
        steered.holdout_millionths = self.settings.holdout_trial.millionths();
        steered.from_bundle = self.state.bundle + 1;
        steered.windows = 0;
        steered.evidence = Evidence::with_baseline(baseline);
        entry.reason = Reason::Renewed;
    }
}
