//! How a round goes on from a state that is not the newest, or was made under other settings.

use super::round::Taken;
use crate::entry::{Entry, Phase};
use crate::evidence::Evidence;
use crate::reason::Reason;
use crate::state::BUNDLES_MAX;

/// The highest number of a bundle of edges that is gone on from: so many are left above it that they do not run out.
pub(crate) const BUNDLES_BELIEVED_MAX: u64 = BUNDLES_MAX / 2;

impl Taken<'_> {
    /// Goes on from the newest bundle that edges have. If that is not the state's, this is an older state, or none, and it is not
    /// known by what rules connections went until the next bundle.
    pub(super) fn follow_edges(&mut self) {
        self.state.go_on_from(self.newest_of_edges());
    }

    /// The newest bundle that edges acknowledge or connections of the window went by: an acknowledgement may be late.
    fn newest_of_edges(&self) -> u64 {
        let outcomes = self.window.prefixes.iter().flat_map(|(_, sample)| &sample.outcomes);
        let bundles = outcomes.map(|outcome| outcome.bundle).chain([self.moment.acknowledged_bundle]);
        bundles.filter(|bundle| *bundle <= BUNDLES_BELIEVED_MAX).max().unwrap_or(0)
    }

    /// Discards what settings that have changed have made void: see [`crate::basis`].
    pub(super) fn discard(&mut self) {
        if !self.changes.discards_evidence {
            return;
        }
        // A trial that begins anew counts from a new bundle on, also where its rule is the same.
        self.state.rules_digest = None;
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            if self.changes.discards_rules {
                entry.forget_failures(self.settings.cool_off_windows);
            }
            match &mut entry.phase {
                Phase::Idle => {}
                Phase::CoolingOff(cooling) => cooling.estimate = None,
                Phase::Steered(_) if self.changes.discards_rules => self.take_back(entry, Reason::Changed),
                Phase::Steered(_) => self.try_again(entry),
            }
        }
        self.state.entries = entries;
    }

    /// Begins the trial of a steered prefix anew.
    pub(super) fn try_again(&mut self, entry: &mut Entry) {
        let baseline = entry.ln_goodput.map(f64::from);
        let Phase::Steered(steered) = &mut entry.phase else { return };
        steered.is_renewed |= steered.proof.is_some();
        (steered.trial, steered.salt) = self.begin_trial();
        steered.proof = None;
        steered.holdout_millionths = self.settings.holdout_trial.millionths();
        steered.from_bundle = self.state.bundle + 1;
        steered.windows = 0;
        steered.evidence = Evidence::from(baseline);
        entry.reason = Reason::Renewed;
    }
}
