//! Evidence: what a trial has shown in one prefix, steered against held out.
//!
//! The unit is the connection, told once: its responses are not independent of one another. A connection is steered with the
//! probability π that the rule's hash gives it, whatever else befalls it, so that
//!
//! ```text
//! (outcome − baseline) × (1/π if steered, −1/(1−π) if held out)
//! ```
//!
//! has the connection's own effect as its mean, for any baseline that was fixed before: an inverse-probability estimate, as for
//! randomized experiments in Waudby-Smith et al. (2024, §3) and by design in Ham, Bojinov, Lindon and Tingley (2022,
//! arXiv:2210.08639). What befalls all connections of a prefix alike, such as the evening, falls on both arms by the toss alone
//! and is in the variance.
//!
//! Its e-value is exact against "steering does nothing to any connection", for noise of whatever tails and skew and connections that
//! are as alike as they may be, since then only the toss is random: with x the value above and σ² its variance over the toss,
//! which for a given outcome is (outcome − baseline)² / (π(1−π)), exp(λΣx − λ²/2 Σ(x²/3 + 2σ²/3)) is a supermartingale for every λ
//! (Delyon, Electronic Journal of Probability 14, 2009; Howard et al., Probability Surveys 17, 2020, Table 3), which is mixed
//! over λ of one sign. That takes tosses that are independent of all before; one is the same again for an address and port that come
//! again. Against "it does nothing on average" it is asymptotic. What the toss does not take out is what the one arm does to the other on a bottleneck that they share.
//!
//! **Invariant:** a baseline is of windows before the one whose outcomes it is taken from.

use serde::{Deserialize, Serialize};

use crate::sequential::{Mean, TIGHT_AT, ln_e_one_sided, ln_e_two_sided};
use crate::window::Outcome;

/// Outcomes that a baseline has in mind: the larger, the slower it follows the day.
const BASELINE_WEIGHT: f64 = 30.0;
/// The chance to be told skewed without being so.
const FALSE_SKEW_SHARE: f64 = 0.001;
/// The standard deviation of log goodput over connections of a network for which e-values are largest.
const LN_GOODPUT_SPREAD: f64 = 0.6;

/// What a trial has shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Connections steered and
    pub steered: u32,
    /// held out.
    pub held_out: u32,
    /// The effect on log goodput.
    pub goodput: Mean,
    /// The sum of variances over the toss of what [`Evidence::goodput`] has, were there no effect.
    #[serde(with = "crate::exact")]
    pub toss_variance: f64,
    /// The effect on the retransmitted share of bytes.
    pub retransmitted: Mean,
    /// What log goodput is to be expected; absent until a window has told.
    #[serde(with = "crate::exact::option")]
    pub baseline_ln_goodput: Option<f64>,
    /// What retransmitted share.
    #[serde(with = "crate::exact")]
    pub baseline_retransmitted: f64,
}

impl Evidence {
    /// None yet, where `ln_goodput` is to be expected.
    pub fn from(ln_goodput: Option<f64>) -> Self {
        Self { baseline_ln_goodput: ln_goodput, ..Self::default() }
    }

    /// Adds a window's connections under a rule that holds out the share `holdout`.
    pub fn add<'a>(&mut self, outcomes: impl Iterator<Item = &'a Outcome> + Clone, holdout: f64) {
        let weight = |outcome: &Outcome| {
            if outcome.is_steered { 1.0 / (1.0 - holdout) } else { -1.0 / holdout }
        };
        if let Some(baseline) = self.baseline_ln_goodput {
            for outcome in outcomes.clone() {
                let arm = if outcome.is_steered { &mut self.steered } else { &mut self.held_out };
                *arm = arm.saturating_add(1);
                let off = outcome.ln_goodput - baseline;
                self.goodput.add(off * weight(outcome));
                self.toss_variance += off * off / (holdout * (1.0 - holdout));
                if let Some(share) = outcome.retransmitted_share {
                    self.retransmitted.add((share - self.baseline_retransmitted) * weight(outcome));
                }
            }
        }
        self.follow(outcomes, holdout);
    }

    /// Moves the baselines towards what leaves the least variance: the mean of the arms, each weighted by the other's share.
    fn follow<'a>(&mut self, outcomes: impl Iterator<Item = &'a Outcome>, holdout: f64) {
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

    /// Whether either arm has at least so many connections.
    pub fn is_enough(&self, connections_min: u32) -> bool {
        self.steered.min(self.held_out) >= connections_min
    }

    /// The logarithm of the e-value against "steering does not help", under a rule that holds out the share `holdout`. 1/α is reached
    /// with a chance of at most α if it does nothing. Zero of no connections.
    pub fn ln_e_helped(&self, holdout: f64) -> f64 {
        self.ln_e(1.0, holdout)
    }

    /// The same against "it does not harm".
    pub fn ln_e_harmed(&self, holdout: f64) -> f64 {
        self.ln_e(-1.0, holdout)
    }

    fn ln_e(&self, sign: f64, holdout: f64) -> f64 {
        let (sum, variance) = self.sum_and_variance();
        ln_e_one_sided(sign * sum, variance, TIGHT_AT * unit(holdout))
    }

    /// The sum of effects on log goodput, and its variance were there none.
    pub(crate) fn sum_and_variance(&self) -> (f64, f64) {
        let sum = self.goodput.mean * self.goodput.count as f64;
        (sum, (self.goodput.squares_about(0.0) + 2.0 * self.toss_variance) / 3.0)
    }

    /// Whether more or fewer are held out than the rule says: then something but the toss decides who is in which arm, and the
    /// arms cannot be compared.
    pub fn is_skewed(&self, holdout: f64) -> bool {
        let of = f64::from(self.steered) + f64::from(self.held_out);
        let off = f64::from(self.held_out) - of * holdout;
        ln_e_two_sided(off / (holdout * (1.0 - holdout)).sqrt(), of) >= -FALSE_SKEW_SHARE.ln()
    }
}

/// The variance of a connection's effect for which e-values are largest.
pub(crate) fn unit(holdout: f64) -> f64 {
    LN_GOODPUT_SPREAD.powi(2) / (holdout * (1.0 - holdout))
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::simulate::normal;

    /// Windows of connections of one prefix; log goodput falls and rises for all by `day`.
    fn windows(effect: f64, holdout: f64, day: f64, windows: usize) -> Evidence {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut evidence = Evidence::from(Some(13.0));
        for at in 0..windows {
            let level = 13.0 + day * (at as f64 / 40.0).sin();
            let outcomes: Vec<_> = (0..20)
                .map(|_| {
                    let is_steered = !random.random_bool(holdout);
                    let rise = if is_steered { effect } else { 0.0 };
                    let ln_goodput = level + rise + 0.5 * normal(&mut random);
                    let retransmitted_share = Some(if is_steered { 0.03 } else { 0.01 });
                    Outcome { bundle: 1, is_steered, ln_goodput, retransmitted_share }
                })
                .collect();
            evidence.add(outcomes.iter(), holdout);
        }
        evidence
    }

    #[test]
    fn the_effect_is_found_whatever_the_day_does() {
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

    /// Of streams of connections to which steering does nothing, with noise that is skewed and of heavy tails, those that are
    /// ever told to be helped and to be harmed.
    fn told_of_nothing(holdout: f64, alpha: f64) -> [usize; 2] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
        let mut told = [0; 2];
        for _ in 0..STREAMS {
            let (mut evidence, mut is_told) = (Evidence::from(Some(13.0)), [false; 2]);
            for _ in 0..100 {
                let outcomes: Vec<_> = (0..20)
                    .map(|_| Outcome {
                        bundle: 1,
                        is_steered: !random.random_bool(holdout),
                        // Log-normal: at times far slower, never far faster.
                        ln_goodput: 14.0 - (1.2 * normal(&mut random)).exp().min(14.0),
                        retransmitted_share: None,
                    })
                    .collect();
                evidence.add(outcomes.iter(), holdout);
                is_told[0] |= evidence.ln_e_helped(holdout) >= -alpha.ln();
                is_told[1] |= evidence.ln_e_harmed(holdout) >= -alpha.ln();
            }
            told.iter_mut().zip(is_told).for_each(|(told, is_told)| *told += usize::from(is_told));
        }
        told
    }

    const STREAMS: usize = 1_000;

    #[test]
    fn skew_and_heavy_tails_do_not_tell_falsely() {
        let alpha = 0.05;
        let n = STREAMS as f64;
        let most = n * alpha + 3.0 * (n * alpha * (1.0 - alpha)).sqrt();
        for holdout in [0.5, 0.1] {
            let told = told_of_nothing(holdout, alpha);
            assert!(told.iter().all(|told| (*told as f64) < most), "{holdout}: {told:?}");
            // What cannot tell at all would pass.
            assert!(holdout != 0.5 || told.iter().all(|told| *told > STREAMS / 200), "{holdout}: {told:?}");
        }
    }

    #[test]
    fn arms_that_the_toss_did_not_make_are_told() {
        let evidence = windows(0.2, 0.5, 0.0, 300);
        assert!(evidence.is_skewed(0.45) && evidence.is_skewed(0.55) && !evidence.is_skewed(0.5));
        assert!(!Evidence::default().is_skewed(0.1));
    }

    #[test]
    fn the_first_window_without_a_baseline_makes_one() {
        let mut evidence = Evidence::from(None);
        let outcome = Outcome { bundle: 1, is_steered: true, ln_goodput: 12.0, retransmitted_share: None };
        evidence.add([outcome.clone()].iter(), 0.5);
        assert_eq!((evidence.steered, evidence.baseline_ln_goodput), (0, Some(12.0)));
        evidence.add([outcome].iter(), 0.5);
        assert_eq!((evidence.steered, evidence.goodput.mean), (1, 0.0));
    }
}
