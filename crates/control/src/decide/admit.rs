//! Admission: slow prefixes, those with the most connections first, and a few others chosen at
//! random for exploration.

use std::cmp::Reverse;

use thalweg_record::Prefix;
use twox_hash::XxHash3_64;

use super::round::DecisionRound;
use super::{Change, RoundOutcome};
use crate::entry::{Phase, Steered};
use crate::evidence::Evidence;
use crate::reason::Reason;
use crate::selection::obstacle;

impl DecisionRound<'_> {
    /// Admits prefixes. In the entry of each prefix that remains unsteered, stores the reason.
    pub(super) fn admit(&mut self) {
        let settings = self.settings;
        let (mut slow, mut others) = (Vec::new(), Vec::new());
        let (mut steered, mut explored) = (0, 0);
        for (at, entry) in self.state.entries.iter_mut().enumerate() {
            if let Phase::Steered(it) = &entry.phase {
                (steered, explored) = (steered + 1, explored + usize::from(it.is_exploring()));
                continue;
            }
            let obstacle = obstacle(settings, &self.left_alone, entry);
            let is_busy =
                entry.connections >= settings.connections_min as f32 && entry.history.is_observed_now();
            match obstacle {
                None => slow.push(at),
                Some(Reason::NotSlow | Reason::Flapping | Reason::LowRtt) if is_busy => others.push(at),
                Some(_) => {}
            }
            entry.reason = obstacle.unwrap_or(Reason::RoundFull);
        }
        let is_stopped = self.state.guard.pause_windows > 0 || self.decision.round == RoundOutcome::Stopped;
        let free = settings.steered_max.saturating_sub(steered);
        let room = if is_stopped { 0 } else { settings.entering_max.min(self.changes_left).min(free) };
        let exploring = if settings.has_proof() {
            settings.exploring_max.min(settings.explored_max.saturating_sub(explored)).min(room)
        } else {
            0
        };
        // Weighted random choice, deterministic for a given window and seed. Prefixes with more
        // connections are more likely to be chosen, because their trials yield more evidence and a
        // larger benefit.
        let arrival = |at: &usize| {
            let entry = &self.state.entries[*at];
            weighted_draw(self.moment.seed, self.window.number, entry.prefix) / f64::from(entry.connections)
        };
        let mut arrivals: Vec<_> = others.iter().map(|at| (arrival(at), *at)).collect();
        arrivals.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let others: Vec<_> = arrivals.into_iter().map(|(_, at)| at).take(exploring).collect();
        slow.sort_by(|one, other| {
            let key = |at: usize| {
                (Reverse(self.state.entries[at].connections.to_bits()), self.state.entries[at].prefix)
            };
            key(*one).cmp(&key(*other))
        });
        let entering = room - others.len();
        let waiting = slow.split_off(entering.min(slow.len()));
        others.iter().for_each(|at| self.enter(*at, true));
        slow.iter().for_each(|at| self.enter(*at, false));
        let why = match (is_stopped, slow.len() + others.len() == free) {
            (true, _) => Reason::Paused,
            (false, true) => Reason::Full,
            (false, false) => Reason::RoundFull,
        };
        waiting.iter().for_each(|at| self.state.entries[*at].reason = why);
    }

    /// Returns the number and salt of a new trial. A fresh salt makes its holdout independent of
    /// earlier trials.
    pub(super) fn new_trial(&mut self) -> (u64, u64) {
        let trial = self.state.trials.start();
        (trial, XxHash3_64::oneshot_with_seed(self.moment.seed, &trial.to_be_bytes()))
    }

    fn enter(&mut self, at: usize, is_explored: bool) {
        let (trial, salt) = self.new_trial();
        let entry = &mut self.state.entries[at];
        let has_proof = self.settings.has_proof();
        entry.reason = if is_explored { Reason::Explored } else { Reason::Slow };
        let holdout = self.settings.holdout_trial.millionths();
        entry.phase = Phase::Steered(Box::new(Steered {
            trial,
            salt,
            is_explored,
            is_renewed: false,
            promise: None,
            switchback: None,
            proof: None,
            holdout_millionths: if has_proof { holdout } else { 0 },
            from_bundle: self.state.bundle + 1,
            windows: 0,
            quiet_windows: 0,
            failures: entry.failures(),
            evidence: Evidence::with_baseline(entry.ln_goodput.map(f64::from)),
        }));
        self.decision.entered.push(Change { prefix: entry.prefix, reason: entry.reason });
    }
}

/// Draws an exponentially distributed number for a prefix in a round. If each number is divided by
/// its prefix's weight, the probability that a prefix has the smallest quotient is proportional to
/// its weight (Efraimidis and Spirakis, Information Processing Letters 97(5), 2006).
fn weighted_draw(seed: u64, window: u64, prefix: Prefix) -> f64 {
    let seed = XxHash3_64::oneshot_with_seed(seed, &window.to_be_bytes());
    let hash = XxHash3_64::oneshot_with_seed(seed, prefix.to_string().as_bytes());
    -((hash as f64 + 1.0) / (u64::MAX as f64 + 2.0)).ln()
}
