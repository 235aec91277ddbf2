//! Limits that end trials: the guardrail across all trials, and lowered limits on the number of
//! steered prefixes.

use super::RoundOutcome;
use super::round::DecisionRound;
use crate::entry::Steered;
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::state::Guard;

impl DecisionRound<'_> {
    /// Withdraws the prefixes on trial that may have caused a rise in the retransmitted share
    /// across all trials, and pauses admission. Trials already withdrawn, including in this round,
    /// do not count, because any rise they caused ends with them.
    pub(super) fn apply_guardrail(&mut self) {
        let settings = self.settings;
        let mut all = Mean::default();
        for (_, steered) in self.state.steered().filter(|(_, steered)| is_pooled(steered)) {
            all.merge(&steered.evidence.retransmitted);
        }
        let ln_e = all.ln_e_above(settings.guardrail_rise_max);
        if !is_enough(&all, settings) || ln_e.is_none_or(|ln_e| ln_e < -settings.false_harm_share.ln()) {
            return;
        }
        self.decision.round = RoundOutcome::Stopped;
        self.state.guard = Guard { pause_windows: settings.guardrail_pause_windows };
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            if entry.steered().is_some_and(|steered| is_pooled(steered) && !is_cleared(steered, settings)) {
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

/// Returns whether the guardrail pools the prefix's evidence. A switchback is not pooled: it
/// collects its own evidence on retransmissions, and a rise withdraws the prefix.
fn is_pooled(steered: &Steered) -> bool {
    steered.proof.is_none() && steered.switchback.is_none()
}

/// Returns whether the prefix's own evidence suffices, and shows a mean rise in retransmissions
/// within the guardrail's limit.
fn is_cleared(steered: &Steered, settings: &Settings) -> bool {
    let retransmitted = &steered.evidence.retransmitted;
    is_enough(retransmitted, settings) && retransmitted.mean <= settings.guardrail_rise_max
}

/// Returns whether there is as much evidence on retransmissions as a single trial needs.
fn is_enough(retransmitted: &Mean, settings: &Settings) -> bool {
    retransmitted.count >= 2 * u64::from(settings.evidence_connections_min)
}
