//! Verdicts on trials and switchbacks: promising, proved, withdrawn, restarted, or still undecided.
//!
//! A trial within a prefix can only make the prefix promising. Proof that steering helps the prefix
//! as a whole requires the switchback that follows.

use super::round::DecisionRound;
use crate::detector::Detector;
use crate::entry::{Entry, Phase, Promise, Proof, Steered};
use crate::evidence::Evidence;
use crate::online::discoveries_needed;
use crate::pool::Pool;
use crate::reason::Reason;
use crate::selection::is_no_longer_slow;
use crate::switchback::Switchback;

/// Held-out share of a prefix in a switchback: one block in two.
const SWITCHBACK_HOLDOUT_MILLIONTHS: u32 = 500_000;

/// Verdict on a steered prefix.
#[derive(Debug, Clone)]
enum Verdict {
    Stays(Reason),
    Promising(Promise),
    Proved(Box<Proof>),
    /// Steering continues with fresh evidence, because the current evidence is old.
    Renewed,
    /// The prefix goes back on trial, because its proof is old.
    BackOnTrial,
    Leaves(Reason),
}

impl DecisionRound<'_> {
    /// Declares this round's discoveries. Returns the threshold: a switchback is a discovery if its
    /// [`discoveries_needed`] is at most the threshold.
    fn declare_discoveries(&mut self) -> f64 {
        let switchbacks: Vec<_> = self
            .state
            .steered()
            .filter(|(entry, steered)| self.veto(entry, steered).is_none())
            .filter_map(|(_, steered)| steered.switchback.as_ref())
            .map(|switchback| (switchback.number, switchback.ln_e_helped()))
            .collect();
        self.state.trials.declare_discoveries(&switchbacks, self.settings.false_discovery_share)
    }

    fn ln_e_helped(&self, steered: &Steered) -> Option<f64> {
        let is_enough = steered.evidence.is_enough(self.settings.evidence_connections_min);
        (is_enough && steered.holdout_millionths > 0).then(|| steered.evidence.ln_e_helped(steered.holdout()))
    }

    pub(super) fn judge(&mut self, pool: Option<Pool>) {
        let threshold = self.declare_discoveries();
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            let Phase::Steered(steered) = &entry.phase else { continue };
            match self.verdict(entry, steered, pool, threshold) {
                Verdict::Stays(reason) => entry.reason = reason,
                Verdict::Promising(promise) => self.start_switchback(entry, promise),
                Verdict::Proved(proof) => self.prove(entry, *proof),
                Verdict::Renewed => {
                    renew(entry);
                    entry.reason = Reason::Helped;
                }
                Verdict::BackOnTrial => self.restart_trial(entry),
                Verdict::Leaves(reason) => self.withdraw(entry, reason),
            }
        }
        self.state.entries = entries;
    }

    /// Returns the reason, if any, to withdraw the prefix even if steering helps it.
    fn veto(&self, entry: &Entry, steered: &Steered) -> Option<Reason> {
        let settings = self.settings;
        let evidence = &steered.evidence;
        if self.left_alone.meets(entry.prefix) {
            return Some(Reason::LeftAlone);
        }
        if steered.quiet_windows >= settings.history_windows {
            return Some(Reason::Gone);
        }
        if steered.holdout_millionths == 0 {
            return None;
        }
        let is_sure = |ln_e: f64| ln_e >= -settings.false_harm_share.ln();
        if let Some(switchback) = &steered.switchback {
            let ln_e_retransmitted = switchback.ln_e_retransmitted_above(settings.retransmitted_rise_max);
            return match is_sure(switchback.ln_e_harmed()) {
                true => Some(Reason::Harmed),
                false => is_sure(ln_e_retransmitted).then_some(Reason::Retransmits),
            };
        }
        if evidence.is_skewed(steered.holdout()) {
            return Some(Reason::Skewed);
        }
        if steered.proof.is_none() && !evidence.is_enough(settings.evidence_connections_min) {
            return None;
        }
        let has_retransmit_evidence =
            evidence.retransmitted.count >= 2 * u64::from(settings.evidence_connections_min);
        let ln_e_retransmitted = evidence.retransmitted.ln_e_above(settings.retransmitted_rise_max);
        if has_retransmit_evidence && ln_e_retransmitted.is_some_and(is_sure) {
            return Some(Reason::Retransmits);
        }
        let is_harmed = match &steered.proof {
            None => is_sure(evidence.ln_e_harmed(steered.holdout())),
            Some(proof) => proof.reversal.detects_harm(settings.trial_windows_max, settings.false_harm_share),
        };
        is_harmed.then_some(Reason::Harmed)
    }

    fn verdict(&self, entry: &Entry, steered: &Steered, pool: Option<Pool>, threshold: f64) -> Verdict {
        let settings = self.settings;
        let on_trial = match (steered.is_renewed, steered.is_explored) {
            (true, _) => Reason::Renewed,
            (false, true) => Reason::Explored,
            (false, false) => Reason::Slow,
        };
        let is_proved = steered.proof.is_some();
        if let Some(reason) = self.veto(entry, steered) {
            return Verdict::Leaves(reason);
        }
        let evident = match &steered.switchback {
            Some(switchback) => self.verdict_as_a_whole(switchback, threshold),
            None => self.verdict_within(steered),
        };
        if let Some(verdict) = evident {
            return verdict;
        }
        if steered.proof.as_ref().is_some_and(|proof| proof.rounds >= settings.proof_windows_max) {
            return Verdict::BackOnTrial;
        }
        // Without a holdout, only the duty cycle justifies steering, even for an explored prefix.
        let duty_cycle_decides = on_trial == Reason::Slow || steered.holdout_millionths == 0;
        if duty_cycle_decides && !is_proved && is_no_longer_slow(settings, entry) {
            return Verdict::Leaves(Reason::NoLongerSlow);
        }
        if let Some(switchback) = &steered.switchback {
            let is_over = switchback.windows >= settings.switchback_windows_max;
            return if is_over {
                Verdict::Leaves(Reason::NotProved)
            } else {
                Verdict::Stays(Reason::Promising)
            };
        }
        if steered.holdout_millionths == 0 || steered.windows < settings.trial_windows_max {
            return Verdict::Stays(if is_proved { Reason::Helped } else { on_trial });
        }
        if is_proved {
            // If evidence restarted before it sufficed, harm to prefixes with few connections would
            // never be detected.
            let is_enough = steered.evidence.is_enough(settings.evidence_connections_min);
            return if is_enough { Verdict::Renewed } else { Verdict::Stays(Reason::Helped) };
        }
        let likely = steered.probability_worthwhile(settings, pool);
        let has_time = steered.likely_windows_left(settings).is_some_and(|windows| windows > 0);
        if has_time && likely.is_some_and(|likely| likely >= settings.pooled_keep) {
            Verdict::Stays(Reason::Likely)
        } else {
            Verdict::Leaves(Reason::NotHelped)
        }
    }

    /// Returns the verdict if the evidence within the prefix alone decides.
    fn verdict_within(&self, steered: &Steered) -> Option<Verdict> {
        let settings = self.settings;
        let ln_e = self.ln_e_helped(steered)?;
        let goodput = &steered.evidence.goodput;
        if steered.proof.is_none() && ln_e >= -settings.false_promise_share.ln() {
            let (goodput, arms) = (goodput.clone(), steered.evidence.arms.clone());
            return Some(Verdict::Promising(Promise { ln_e, goodput, arms }));
        }
        let interval = goodput.interval(settings.false_harm_share)?;
        (interval.high < settings.effect_min).then_some(Verdict::Leaves(Reason::NotHelped))
    }

    /// Returns the verdict if the evidence on the prefix as a whole alone decides.
    fn verdict_as_a_whole(&self, switchback: &Switchback, threshold: f64) -> Option<Verdict> {
        let settings = self.settings;
        let ln_e = switchback.ln_e_helped();
        if discoveries_needed(switchback.number, ln_e, settings.false_discovery_share) <= threshold {
            let (switchback, reversal) = (switchback.clone(), Detector::default());
            return Some(Verdict::Proved(Box::new(Proof { ln_e, switchback, rounds: 0, reversal })));
        }
        let ln_e_not_worthwhile = switchback.ln_e_below(settings.effect_min);
        let is_not_worthwhile = ln_e_not_worthwhile >= (2.0 / settings.false_harm_share).ln();
        is_not_worthwhile.then_some(Verdict::Leaves(Reason::NotHelped))
    }

    /// Stores the promise, and starts the switchback.
    fn start_switchback(&mut self, entry: &mut Entry, promise: Promise) {
        let Phase::Steered(steered) = &mut entry.phase else { return };
        let number = self.state.trials.start_switchback();
        steered.promise = Some(promise);
        steered.switchback = Some(Switchback::new(number, self.settings.switchback_block_windows));
        steered.holdout_millionths = SWITCHBACK_HOLDOUT_MILLIONTHS;
        steered.from_bundle = self.state.bundle + 1;
        self.decision.promising.push(entry.prefix);
        renew(entry);
        entry.reason = Reason::Promising;
    }

    /// Stores a proof, switches to the holdout for proved prefixes, and restarts the evidence.
    fn prove(&mut self, entry: &mut Entry, proof: Proof) {
        let Phase::Steered(steered) = &mut entry.phase else { return };
        (steered.switchback, steered.proof) = (None, Some(proof));
        steered.holdout_millionths = self.settings.holdout.millionths();
        steered.from_bundle = self.state.bundle + 1;
        steered.failures = 0;
        self.decision.proved.push(entry.prefix);
        renew(entry);
        entry.reason = Reason::Helped;
    }
}

/// Restarts the evidence, keeping the baselines.
fn renew(entry: &mut Entry) {
    let Phase::Steered(steered) = &mut entry.phase else { return };
    steered.windows = 0;
    steered.evidence = Evidence {
        baseline_retransmitted: steered.evidence.baseline_retransmitted,
        ..Evidence::with_baseline(steered.evidence.baseline_ln_goodput)
    };
}
