//! Online false-discovery control over an unbounded stream of switchbacks: e-LOND (Xu and Ramdas,
//! Online multiple testing with e-values, AISTATS 2024). The trials that precede them decide only
//! which switchbacks start: given everything before its start, a switchback's e-value is valid.
//!
//! Switchback *i* (numbered at its start) is declared a discovery once its e-value reaches `1 / (α
//! γ_i k)`, where `Σγ ≤ 1` and *k* is the number of discoveries, including those of the same round.
//! Each false discovery then has `E_i α γ_i k ≥ 1` and is at most one of *k*, so the share of false
//! discoveries is at most `α Σ γ_i E_i`. The expected share is at most α at any time, under any
//! dependence between switchbacks and any order of looks. Declaring the largest possible set per
//! round is e-BH (Wang and Ramdas, JRSS B 84(3), 2022).
//!
//! `γ_i = 1/log2(i+1) − 1/log2(i+2)` sums to exactly 1 and decays as `1/(i log² i)`, slow enough to
//! keep power for switchbacks years from now.
//!
//! **Invariant:** a discovery is never revoked or uncounted, even after its prefix is withdrawn.

use serde::{Deserialize, Serialize};

use crate::sequential::VALUES_MAX;

/// Counts of trials and switchbacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// Number of trials started.
    #[serde(rename = "begun")]
    pub started: u64,
    /// Number of switchbacks started.
    #[serde(default)]
    pub switchbacks: u64,
    /// Number of switchbacks declared discoveries.
    #[serde(rename = "told")]
    pub discoveries: u64,
}

impl Trials {
    /// Counts a new trial and returns its number, starting at 1. Once the numbers run out, the last
    /// number is reused.
    pub(crate) fn start(&mut self) -> u64 {
        self.started = (self.started + 1).min(VALUES_MAX);
        self.started
    }

    /// Counts a new switchback and returns its number, like [`Trials::start`].
    pub(crate) fn start_switchback(&mut self) -> u64 {
        self.switchbacks = (self.switchbacks + 1).min(VALUES_MAX);
        self.switchbacks
    }

    /// Declares the largest set of discoveries among `switchbacks` (numbers and log e-values) that
    /// keeps the expected share of false discoveries at most `share`. Returns the threshold: a
    /// switchback is a discovery if its [`discoveries_needed`] is at most the threshold.
    pub(crate) fn declare_discoveries(&mut self, switchbacks: &[(u64, f64)], share: f64) -> f64 {
        let mut all: Vec<_> =
            switchbacks.iter().map(|(number, ln_e)| discoveries_needed(*number, *ln_e, share)).collect();
        all.sort_unstable_by(f64::total_cmp);
        let before = self.discoveries as f64;
        let together =
            (1..=all.len()).rev().find(|count| all[count - 1] <= before + *count as f64).unwrap_or(0);
        self.discoveries = (self.discoveries + together as u64).min(self.switchbacks);
        if together > 0 { self.discoveries as f64 } else { 0.0 }
    }
}

/// Returns how many discoveries, including this switchback, are needed for the switchback to become
/// a discovery.
pub(crate) fn discoveries_needed(number: u64, ln_e: f64, share: f64) -> f64 {
    (-ln_e - share.ln() - ln_weight(number)).exp()
}

/// Returns ln γ in a form that avoids cancellation.
fn ln_weight(number: u64) -> f64 {
    let (one, two) = (number as f64 + 1.0, number as f64 + 2.0);
    (std::f64::consts::LN_2 * (1.0 / one).ln_1p() / (one.ln() * two.ln())).ln()
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const SHARE: f64 = 0.2;

    #[test]
    fn weights_sum_to_one() {
        let sum: f64 = (1..1_000_000).map(|number| ln_weight(number).exp()).sum();
        let rest = 1.0 / 1_000_001_f64.log2();
        assert!((sum + rest - 1.0).abs() < 1e-9, "{sum} {rest}");
    }

    #[test]
    fn later_trials_need_more_evidence_and_discoveries_lower_the_bar() {
        let mut trials = Trials { switchbacks: 4, ..Trials::default() };
        let least = |number: u64| -SHARE.ln() - ln_weight(number);
        assert_eq!(trials.declare_discoveries(&[(1, least(1) - 0.01)], SHARE), 0.0);
        // Neither trial suffices alone, but together they do.
        let two = [(1, least(1) - 0.6), (2, least(2) - 0.6)];
        assert_eq!(trials.clone().declare_discoveries(&two[..1], SHARE), 0.0);
        assert_eq!((trials.declare_discoveries(&two, SHARE), trials.discoveries), (2.0, 2));
        assert!(two.iter().all(|(number, ln_e)| discoveries_needed(*number, *ln_e, SHARE) <= 2.0));
        // The third trial is now one of three discoveries.
        assert_eq!(trials.declare_discoveries(&[(4, least(4) - 1.2)], SHARE), 0.0);
        assert_eq!(trials.declare_discoveries(&[(4, least(4) - 1.0)], SHARE), 3.0);
        assert_eq!(trials.declare_discoveries(&[], SHARE), 0.0);
    }

    /// Returns the mean share of false discoveries, and its standard error, over runs in which
    /// every `helped_each`-th trial is helped and becomes a discovery. Null trials get the worst
    /// possible e-value: exactly the threshold, with the largest probability allowed for an
    /// e-value.
    fn false_share(helped_each: u64) -> (f64, f64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let runs = 20_000;
        let shares: Vec<_> = (0..runs)
            .map(|_| {
                let (mut trials, mut false_discoveries) = (Trials::default(), 0);
                for _ in 0..200 {
                    let number = trials.start_switchback();
                    let ln_least =
                        -SHARE.ln() - ln_weight(number) - (trials.discoveries as f64 + 1.0).ln() + 1e-9;
                    let is_helped = number.is_multiple_of(helped_each);
                    let ln_e = if is_helped || random.random_bool((-ln_least).exp().min(1.0)) {
                        ln_least
                    } else {
                        -20.0
                    };
                    let is_discovery = trials.declare_discoveries(&[(number, ln_e)], SHARE) > 0.0;
                    false_discoveries += u64::from(is_discovery && !is_helped);
                }
                false_discoveries as f64 / trials.discoveries.max(1) as f64
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / f64::from(runs);
        let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
        (mean, (squares / f64::from(runs) / f64::from(runs)).sqrt())
    }

    #[test]
    fn share_of_false_discoveries_is_bounded() {
        for helped_each in [u64::MAX, 20, 4] {
            let (share, error) = false_share(helped_each);
            assert!(share <= SHARE + 3.0 * error, "{helped_each}: {share}");
            // Nearly the whole allowance is used, so a looser threshold would fail this test.
            assert!(helped_each != u64::MAX || share > 0.7 * SHARE, "{share}");
        }
    }
}
