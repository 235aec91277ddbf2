//! What ends trials from outside: the guardrail over all of them, and limits that were lowered.

use super::Round;
use super::round::Taken;
use crate::entry::Steered;
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::state::Guard;

impl Taken<'_> {
    /// Ends all trials and stops the rounds for a while, if what they send again has risen by too much. Of those that have left,
    /// in this round or before, nothing counts: what was wrong with them has left with them.
    pub(super) fn keep_guard(&mut self) {
        let settings = self.settings;
        let mut all = Mean::default();
        for (_, steered) in self.state.steered().filter(|(_, steered)| steered.proof.is_none()) {
            all.merge(&steered.evidence.retransmitted);
        }
        let is_enough = all.count >= 2 * u64::from(settings.evidence_connections_min);
        let ln_e = all.ln_e_above(settings.guardrail_rise_max);
        if !is_enough || ln_e.is_none_or(|ln_e| ln_e < -settings.false_harm_share.ln()) {
            return;
        }
        self.decision.round = Round::Stopped;
        self.state.guard = Guard { pause_windows: settings.guardrail_pause_windows };
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            if entry.steered().is_some_and(|steered| steered.proof.is_none()) {
                self.take_back(entry, Reason::Guardrail);
            }
        }
        self.state.entries = entries;
    }

    /// Takes back what is above the limits on how many are steered, as these may have been lowered: trials before what is shown
    /// to be helped, and those with fewer connections first.
    pub(super) fn keep_limits(&mut self) {
        self.keep_limit(self.settings.explored_max, Steered::is_exploring);
        self.keep_limit(self.settings.steered_max, |_| true);
    }

    fn keep_limit(&mut self, most: usize, counts: impl Fn(&Steered) -> bool) {
        let mut counted: Vec<_> = (0..self.state.entries.len())
            .filter(|at| self.state.entries[*at].steered().is_some_and(&counts))
            .collect();
        let Some(over) = counted.len().checked_sub(most).filter(|over| *over > 0) else { return };
        counted.sort_by_key(|at| {
            let entry = &self.state.entries[*at];
            (entry.steered().is_some_and(|it| it.proof.is_some()), entry.connections.to_bits())
        });
        let mut entries = std::mem::take(&mut self.state.entries);
        counted.iter().take(over).for_each(|at| self.take_back(&mut entries[*at], Reason::OverLimit));
        self.state.entries = entries;
    }
}
