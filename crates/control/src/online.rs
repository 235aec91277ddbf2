//! Which of ever more trials are told to be helped, so that of all that were ever told few are false: e-LOND (Xu and Ramdas,
//! Online multiple testing with e-values, AISTATS 2024).
//!
//! Trial i, counted as it begins, is told once its e-value reaches 1 / (α γ_i k), where the γ sum to at most 1 and k counts the
//! trials told, those of the same round included. Each false one that is told has then E_i α γ_i k ≥ 1 and is at most one of k, so
//! that the false share of all told is at most α Σ γ_i E_i: on average at most α at any time, whatever trials have to do with
//! one another, and however often and in whatever order they are looked at. That each round tells as many together as can be told
//! is e-BH within it (Wang and Ramdas, JRSS B 84(3), 2022).
//!
//! γ_i = 1/log2(i+1) − 1/log2(i+2), whose sum is 1 exactly: it falls only as 1/(i log² i), so trials of the next years can still
//! be told.
//!
//! **Invariant:** what was told stays told and counted, also when the prefix has left.

use serde::{Deserialize, Serialize};

use crate::sequential::VALUES_MAX;

/// Trials so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// That have begun.
    pub begun: u64,
    /// That were told to be helped.
    pub told: u64,
}

impl Trials {
    /// Counts another one, and gives its number, from 1. After so many that numbers have run out it is the last.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun = (self.begun + 1).min(VALUES_MAX);
        self.begun
    }

    /// Of trials with these numbers and logarithms of e-values, which to tell so that at most a `share` of all ever told is
    /// false on average: those whose [`needed`] is at most what is given back.
    pub(crate) fn tell(&mut self, trials: &[(u64, f64)], share: f64) -> f64 {
        let mut all: Vec<_> = trials.iter().map(|(number, ln_e)| needed(*number, *ln_e, share)).collect();
        all.sort_unstable_by(f64::total_cmp);
        let before = self.told as f64;
        let together = (1..=all.len()).rev().find(|told| all[told - 1] <= before + *told as f64).unwrap_or(0);
        self.told = (self.told + together as u64).min(self.begun);
        if together > 0 { self.told as f64 } else { 0.0 }
    }
}

/// How many trials have to be told, with it, for a trial to be.
pub(crate) fn needed(number: u64, ln_e: f64, share: f64) -> f64 {
    (-ln_e - share.ln() - ln_weight(number)).exp()
}

/// The logarithm of γ. In this form no digit is lost to the difference.
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
    fn the_weights_sum_to_one() {
        let sum: f64 = (1..1_000_000).map(|number| ln_weight(number).exp()).sum();
        let rest = 1.0 / 1_000_001_f64.log2();
        assert!((sum + rest - 1.0).abs() < 1e-9, "{sum} {rest}");
    }

    #[test]
    fn of_later_trials_more_is_asked_and_less_after_some_were_told() {
        let mut trials = Trials { begun: 4, told: 0 };
        let least = |number: u64| -SHARE.ln() - ln_weight(number);
        assert_eq!(trials.tell(&[(1, least(1) - 0.01)], SHARE), 0.0);
        // Each of them by itself is too little, both together are not.
        let two = [(1, least(1) - 0.6), (2, least(2) - 0.6)];
        assert_eq!(trials.clone().tell(&two[..1], SHARE), 0.0);
        assert_eq!((trials.tell(&two, SHARE), trials.told), (2.0, 2));
        assert!(two.iter().all(|(number, ln_e)| needed(*number, *ln_e, SHARE) <= 2.0));
        // The third is one of three.
        assert_eq!(trials.tell(&[(4, least(4) - 1.2)], SHARE), 0.0);
        assert_eq!(trials.tell(&[(4, least(4) - 1.0)], SHARE), 3.0);
        assert_eq!(trials.tell(&[], SHARE), 0.0);
    }

    /// The false share of all told, on average over runs, of trials of which each `helped_each`-th is helped and told. Those
    /// that are null have the e-value that is the worst there can be: exactly what it takes, as often as an e-value may.
    fn false_share(helped_each: u64) -> (f64, f64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let runs = 20_000;
        let shares: Vec<_> = (0..runs)
            .map(|_| {
                let (mut trials, mut falsely) = (Trials::default(), 0);
                for _ in 0..200 {
                    let number = trials.begin();
                    let ln_least = -SHARE.ln() - ln_weight(number) - (trials.told as f64 + 1.0).ln() + 1e-9;
                    let is_helped = number.is_multiple_of(helped_each);
                    let ln_e = if is_helped || random.random_bool((-ln_least).exp().min(1.0)) {
                        ln_least
                    } else {
                        -20.0
                    };
                    let is_told = trials.tell(&[(number, ln_e)], SHARE) > 0.0;
                    falsely += u64::from(is_told && !is_helped);
                }
                falsely as f64 / trials.told.max(1) as f64
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / f64::from(runs);
        let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
        (mean, (squares / f64::from(runs) / f64::from(runs)).sqrt())
    }

    #[test]
    fn few_of_those_told_are_false() {
        for helped_each in [u64::MAX, 20, 4] {
            let (share, error) = false_share(helped_each);
            assert!(share <= SHARE + 3.0 * error, "{helped_each}: {share}");
            // Nearly all that may be false is: whatever asks for less would be found out.
            assert!(helped_each != u64::MAX || share > 0.7 * SHARE, "{share}");
        }
    }
}
