//! Limits that end trials: the guardrail across all trials, and lowered limits on the number of
//! steered prefixes.

use super::RoundOutcome;
use super::round::DecisionRound;
use crate::entry::Steered;
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::state::Guard;

impl DecisionRound<'_> {
    /// Withdraws every prefix on trial and pauses admission if the retransmitted share across all
    /// trials rose too much. Trials already withdrawn, including in this round, do not count,
    /// because any rise they caused ends with them.
    pub(super) fn apply_guardrail(&mut self) {
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
        self.decision.round = RoundOutcome::Stopped;
        self.state.guard = Guard { pause_windows: settings.guardrail_pause_windows };
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            if entry.steered().is_some_and(|steered| steered.proof.is_none()) {
                self.withdraw(entry, Reason::Guardrail);
            }
        }
        self.state.entries = entries;
    }

    /// Withdraws prefixes in excess of the limits, which may have been lowered. Prefixes on trial
    /// are withdrawn before proved prefixes, and those with fewer connections before those with
    /// more.
    pub(super) fn apply_limits(&mut self) {
        self.apply_limit(self.settings.explored_max, Steered::is_exploring);
        self.apply_limit(self.settings.steered_max, |_| true);
    }

    fn apply_limit(&mut self, limit: usize, counts: impl Fn(&Steered) -> bool) {
        let mut counted: Vec<_> = (0..self.state.entries.len())
            .filter(|at| self.state.entries[*at].steered().is_some_and(&counts))
            .collect();
        let Some(over) = counted.len().checked_sub(limit).filter(|over| *over > 0) else { return };
        counted.sort_by_key(|at| {
            let entry = &self.state.entries[*at];
            (entry.steered().is_some_and(|it| it.proof.is_some()), entry.connections.to_bits())
        });
        let mut entries = std::mem::take(&mut self.state.entries);
        counted.iter().take(over).for_each(|at| self.withdraw(&mut entries[*at], Reason::OverLimit));
        self.state.entries = entries;
    }
}
