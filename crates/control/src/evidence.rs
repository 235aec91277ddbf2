//! Evidence from a trial in one prefix: a comparison of steered with held-out connections.
//!
//! The unit is the client in a redraw period, reported once, because responses and connections of
//! one client are not independent. The rule's hash steers each client with a fixed probability π,
//! and draws it again, independently, in the next period, so
//!
//! ```text
//! (outcome − baseline) × (1/π if steered, −1/(1−π) if held out)
//! ```
//!
//! has the client's own effect as its mean, for any baseline fixed in advance. This is an
//! inverse-probability estimate, as in Waudby-Smith et al. (2024, §3) for randomized experiments
//! and in the design-based analysis of Ham, Bojinov, Lindon and Tingley (2022, arXiv:2210.08639).
//! Anything that affects all clients of a prefix alike, such as evening load, affects the two arms
//! at random and adds only variance.
//!
//! The e-value is exact against "steering has no effect on any connection". The e-value is valid
//! for noise of any skew and tail weight, for arbitrarily correlated clients and for clients that
//! return in many periods, because only the draw is random. Let x be the value above and σ² its
//! variance over the draw; for a given outcome, σ² is (outcome − baseline)² / (π(1−π)). Then
//! exp(λΣx − λ²/2 Σ(x²/3 + 2σ²/3)) is a supermartingale for every λ (Delyon, Electronic Journal of
//! Probability 14, 2009; Howard et al., Probability Surveys 17, 2020, Table 3). The e-value is a
//! mixture of these over λ of one sign.
//!
//! Against "no effect on average" the e-value is only asymptotically valid. Randomization does not
//! remove interference between the arms on a shared bottleneck, so this evidence does not show that
//! the network as a whole gains: `switchback.rs` tests that.
//!
//! **Invariant:** the baseline subtracted from a window's outcomes uses only earlier windows.

use serde::{Deserialize, Serialize};

use crate::arms::ArmGoodputs;
use crate::sequential::{Mean, TIGHT_AT, ln_e_one_sided, ln_e_two_sided};
use crate::window::Outcome;

/// Weight of the baseline, in outcomes. A larger weight makes the baseline follow the time of day
/// more slowly.
const BASELINE_WEIGHT: f64 = 30.0;
/// Probability of reporting a skew by chance.
const FALSE_SKEW_SHARE: f64 = 0.001;
/// Standard deviation of log goodput across a network's clients at which e-values are largest.
const LN_GOODPUT_SPREAD: f64 = 0.6;

/// Evidence collected by a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Number of outcomes of steered clients.
    pub steered: u32,
    /// Number of outcomes of held-out clients.
    pub held_out: u32,
    /// Goodputs of both arms.
    #[serde(default)]
    pub arms: ArmGoodputs,
    /// Effect on log goodput.
    pub goodput: Mean,
    /// Sum of the variances of the values in [`Evidence::goodput`] over the draw, assuming no
    /// effect.
    #[serde(with = "crate::exact")]
    pub toss_variance: f64,
    /// Effect on the retransmitted share of bytes.
    pub retransmitted: Mean,
    /// Expected log goodput. `None` until a window has measured it.
    #[serde(with = "crate::exact::option")]
    pub baseline_ln_goodput: Option<f64>,
    /// Expected retransmitted share.
    #[serde(with = "crate::exact")]
    pub baseline_retransmitted: f64,
}

impl Evidence {
    /// Creates empty evidence with `ln_goodput` as the expected outcome.
    pub fn with_baseline(ln_goodput: Option<f64>) -> Self {
        Self { baseline_ln_goodput: ln_goodput, ..Self::default() }
    }

    /// Adds a window's outcomes under a rule with a held-out share of `holdout`.
    pub fn add<'a>(&mut self, outcomes: impl Iterator<Item = &'a Outcome> + Clone, holdout: f64) {
        let weight = |outcome: &Outcome| {
            if outcome.is_steered { 1.0 / (1.0 - holdout) } else { -1.0 / holdout }
        };
        if let Some(baseline) = self.baseline_ln_goodput {
            for outcome in outcomes.clone() {
                let arm = if outcome.is_steered { &mut self.steered } else { &mut self.held_out };
                *arm = arm.saturating_add(1);
                self.arms.add(outcome);
                let off = outcome.ln_goodput - baseline;
                self.goodput.add(off * weight(outcome));
                self.toss_variance += off * off / (holdout * (1.0 - holdout));
                if let Some(share) = outcome.retransmitted_share {
                    self.retransmitted.add((share - self.baseline_retransmitted) * weight(outcome));
                }
            }
        }
        self.update_baselines(outcomes, holdout);
    }

    /// Moves the baselines towards the values that minimize variance: the mean of the arms, each
    /// weighted by the share of the other arm.
    fn update_baselines<'a>(&mut self, outcomes: impl Iterator<Item = &'a Outcome>, holdout: f64) {
        let (mut weight, mut ln_goodput, mut share, mut share_weight) = (0.0, 0.0, 0.0, 0.0);
        for outcome in outcomes {
            let own = if outcome.is_steered { holdout / (1.0 - holdout) } else { (1.0 - holdout) / holdout };
            weight += own;
            ln_goodput += own * outcome.ln_goodput;
            if let Some(retransmitted) = outcome.retransmitted_share {
                share_weight += own;
                share += own * retransmitted;
            }
        }
        if weight > 0.0 {
            let before = self.baseline_ln_goodput.unwrap_or(ln_goodput / weight);
            let after = (before * BASELINE_WEIGHT + ln_goodput) / (BASELINE_WEIGHT + weight);
            self.baseline_ln_goodput = Some(after);
        }
        self.baseline_retransmitted =
            (self.baseline_retransmitted * BASELINE_WEIGHT + share) / (BASELINE_WEIGHT + share_weight);
    }

    /// Returns whether each arm has at least `connections_min` outcomes.
    pub fn is_enough(&self, connections_min: u32) -> bool {
        self.steered.min(self.held_out) >= connections_min
    }

    /// Returns the log e-value against "steering does not help", under a rule with a held-out share
    /// of `holdout`. Returns 0 without outcomes. If there is no effect, the value reaches ln 1/α
    /// with probability at most α.
    pub fn ln_e_helped(&self, holdout: f64) -> f64 {
        self.ln_e(1.0, holdout)
    }

    /// Returns the log e-value against "steering does not harm".
    pub fn ln_e_harmed(&self, holdout: f64) -> f64 {
        self.ln_e(-1.0, holdout)
    }

    fn ln_e(&self, sign: f64, holdout: f64) -> f64 {
        let (sum, variance) = self.sum_and_variance();
        ln_e_one_sided(sign * sum, variance, TIGHT_AT * tuned_variance(holdout))
    }

    /// Returns the sum of effects on log goodput, and its variance assuming no effect.
    pub(crate) fn sum_and_variance(&self) -> (f64, f64) {
        let sum = self.goodput.mean * self.goodput.count as f64;
        (sum, (self.goodput.squares_about(0.0) + 2.0 * self.toss_variance) / 3.0)
    }

    /// Returns whether the share of held-out outcomes differs significantly from the rule's
    /// held-out share. If so, something other than the draw assigns clients, and the arms cannot be
    /// compared.
    pub fn is_skewed(&self, holdout: f64) -> bool {
        let of = f64::from(self.steered) + f64::from(self.held_out);
        let off = f64::from(self.held_out) - of * holdout;
        ln_e_two_sided(off / (holdout * (1.0 - holdout)).sqrt(), of) >= -FALSE_SKEW_SHARE.ln()
    }
}

/// Returns the variance of a client's effect for which e-values are largest.
pub(crate) fn tuned_variance(holdout: f64) -> f64 {
    LN_GOODPUT_SPREAD.powi(2) / (holdout * (1.0 - holdout))
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::simulate::normal;

    /// Simulates windows of one prefix's connections. `day` is the amplitude of a shared daily
    /// cycle.
    fn windows(effect: f64, holdout: f64, day: f64, windows: usize) -> Evidence {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut evidence = Evidence::with_baseline(Some(13.0));
        for at in 0..windows {
            let level = 13.0 + day * (at as f64 / 40.0).sin();
            let outcomes: Vec<_> = (0..20)
                .map(|_| {
                    let is_steered = !random.random_bool(holdout);
                    let rise = if is_steered { effect } else { 0.0 };
                    let ln_goodput = level + rise + 0.5 * normal(&mut random);
                    let retransmitted_share = Some(if is_steered { 0.03 } else { 0.01 });
                    Outcome { bundle: 1, period: 0, is_steered, ln_goodput, retransmitted_share }
                })
                .collect();
            evidence.add(outcomes.iter(), holdout);
        }
        evidence
    }

    #[test]
    fn estimates_the_effect_despite_a_daily_cycle() {
        for (effect, holdout, day) in [(0.2, 0.5, 0.0), (0.2, 0.5, 0.8), (-0.3, 0.1, 0.8), (0.0, 0.1, 0.0)] {
            let evidence = windows(effect, holdout, day, 300);
            let interval = evidence.goodput.interval(0.05).unwrap();
            assert!((interval.low..=interval.high).contains(&effect), "{effect} {interval:?}");
            assert!(interval.high - interval.low < 0.35, "{holdout} {interval:?}");
            let rise = evidence.retransmitted.interval(0.05).unwrap();
            assert!((rise.low..=rise.high).contains(&0.02), "{rise:?}");
            assert!(!evidence.is_skewed(holdout));
        }
    }

    /// Simulates [`STREAMS`] streams without any effect, under skewed, heavy-tailed noise. Returns
    /// how many are ever declared helped, and how many harmed.
    fn false_alarms(holdout: f64, alpha: f64) -> [usize; 2] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
        let mut alarms = [0; 2];
        for _ in 0..STREAMS {
            let (mut evidence, mut is_alarm) = (Evidence::with_baseline(Some(13.0)), [false; 2]);
            for _ in 0..100 {
                let outcomes: Vec<_> = (0..20)
                    .map(|_| Outcome {
                        bundle: 1,
                        period: 0,
                        is_steered: !random.random_bool(holdout),
                        // Log-normal noise: sometimes far slower, never far faster.
                        ln_goodput: 14.0 - (1.2 * normal(&mut random)).exp().min(14.0),
                        retransmitted_share: None,
                    })
                    .collect();
                evidence.add(outcomes.iter(), holdout);
                is_alarm[0] |= evidence.ln_e_helped(holdout) >= -alpha.ln();
                is_alarm[1] |= evidence.ln_e_harmed(holdout) >= -alpha.ln();
            }
            alarms.iter_mut().zip(is_alarm).for_each(|(alarms, is_alarm)| *alarms += usize::from(is_alarm));
        }
        alarms
    }

    const STREAMS: usize = 1_000;

    #[test]
    fn false_alarms_stay_bounded_under_skewed_heavy_tailed_noise() {
        let alpha = 0.05;
        let n = STREAMS as f64;
        let most = n * alpha + 3.0 * (n * alpha * (1.0 - alpha)).sqrt();
        for holdout in [0.5, 0.1] {
            let alarms = false_alarms(holdout, alpha);
            assert!(alarms.iter().all(|alarms| (*alarms as f64) < most), "{holdout}: {alarms:?}");
            // The e-value must still detect real effects.
            assert!(
                holdout != 0.5 || alarms.iter().all(|alarms| *alarms > STREAMS / 200),
                "{holdout}: {alarms:?}"
            );
        }
    }

    #[test]
    fn arms_that_differ_from_the_holdout_share_are_skewed() {
        let evidence = windows(0.2, 0.5, 0.0, 300);
        assert!(evidence.is_skewed(0.45) && evidence.is_skewed(0.55) && !evidence.is_skewed(0.5));
        assert!(!Evidence::default().is_skewed(0.1));
    }

    #[test]
    fn first_window_sets_the_missing_baseline() {
        let mut evidence = Evidence::with_baseline(None);
        let outcome =
            Outcome { bundle: 1, period: 0, is_steered: true, ln_goodput: 12.0, retransmitted_share: None };
        evidence.add([outcome.clone()].iter(), 0.5);
        assert_eq!((evidence.steered, evidence.baseline_ln_goodput), (0, Some(12.0)));
        evidence.add([outcome].iter(), 0.5);
        assert_eq!((evidence.steered, evidence.goodput.mean), (1, 0.0));
    }
}
