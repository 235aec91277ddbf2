//! What all prefixes together say of one: shrinkage towards their mean, and how far that is to be believed.
//!
//! Effects are taken for draws from a normal distribution. Its variance is the restricted maximum likelihood estimate (Veroniki et
//! al., Research Synthesis Methods 7(1), 2016). A shrunken effect and its variance are those of Morris (Parametric empirical
//! Bayes inference, JASA 78(381), 1983, §5), which have in them that mean and variance of the pool are estimates: also where the
//! variance is estimated as zero, a prefix keeps 2/(k−1) of its own estimate, and as much of its own variance.
//!
//! Trials that were stopped are in it with what they had shown at their stop, those that were told to be helped as well as those
//! that were harmed, for the same time after it, and with nothing from after it. To take one kind only would bias the pool (Schou
//! and Marschner, Statistics in Medicine 32(28), 2013). With both, why a trial was stopped is in what it has shown, and the
//! likelihood is what it would be without stops (Berger and Wolpert, The Likelihood Principle, 1988, §4.2), which is why the
//! estimate goes by it and not by moments. That effects are normal and the estimates' variances known remains an approximation.

use serde::{Deserialize, Serialize};

use crate::sequential::{Mean, probability_below};

/// Prefixes without which there is no pool.
pub(crate) const POOL_MIN: usize = 8;
/// Halvings in the search for the variance: to a 2^-40th of where it was looked for.
const HALVINGS_MAX: u32 = 40;
/// Doublings before it.
const DOUBLINGS_MAX: u32 = 40;

/// An effect and its variance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The effect on log goodput.
    #[serde(with = "crate::exact")]
    pub effect: f64,
    /// The variance of that estimate.
    #[serde(with = "crate::exact")]
    pub variance: f64,
}

/// The distribution of effects over prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The mean effect.
    #[serde(with = "crate::exact")]
    pub mean: f64,
    /// The variance of effects, that of their estimates taken out.
    #[serde(with = "crate::exact")]
    pub variance: f64,
    /// Prefixes that it is estimated from, at least [`POOL_MIN`].
    pub prefixes: usize,
    /// The inverse of the variance of the mean.
    #[serde(with = "crate::exact")]
    pub(crate) weight: f64,
    /// The mean variance of the estimates, weighted alike.
    #[serde(with = "crate::exact")]
    pub(crate) variance_own: f64,
}

impl Pool {
    /// Estimates it; nothing of too few prefixes.
    pub fn of(estimates: &[Estimate]) -> Option<Self> {
        if estimates.len() < POOL_MIN {
            return None;
        }
        let (mut low, mut high) = (0.0, 1e-4);
        if score(estimates, low) <= 0.0 {
            return Some(Self::with(estimates, 0.0));
        }
        for _ in 0..DOUBLINGS_MAX {
            if score(estimates, high) <= 0.0 {
                break;
            }
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..HALVINGS_MAX {
            let middle = f64::midpoint(low, high);
            if score(estimates, middle) > 0.0 { low = middle } else { high = middle }
        }
        Some(Self::with(estimates, high))
    }

    /// The one whose effects have this variance.
    fn with(estimates: &[Estimate], variance: f64) -> Self {
        let (mut weight, mut mean, mut own) = (0.0, 0.0, 0.0);
        for it in estimates {
            let w = 1.0 / (it.variance + variance);
            (weight, mean, own) = (weight + w, mean + w * it.effect, own + w * it.variance);
        }
        Self { mean: mean / weight, variance, prefixes: estimates.len(), weight, variance_own: own / weight }
    }

    /// What is to be thought of one of the prefixes that it is estimated from.
    pub fn shrink(&self, own: Estimate) -> Estimate {
        let k = self.prefixes as f64;
        let w = 1.0 / (own.variance + self.variance);
        let to_pool = (k - 3.0) / (k - 1.0) * own.variance * w;
        let leverage = w / self.weight;
        let off = own.effect - self.mean;
        // What the estimate of the variance is uncertain by.
        let uncertain = 2.0 / (k - 3.0) * to_pool.powi(2) * (self.variance_own + self.variance) * w;
        Estimate {
            effect: own.effect - to_pool * off,
            variance: own.variance * (1.0 - (1.0 - leverage) * to_pool) + uncertain * off * off,
        }
    }
}

/// The derivative of the restricted likelihood by the variance of effects, twice.
fn score(estimates: &[Estimate], variance: f64) -> f64 {
    let pool = Pool::with(estimates, variance);
    let (mut score, mut squares) = (0.0, 0.0);
    for it in estimates {
        let w = 1.0 / (it.variance + variance);
        score += (w * (it.effect - pool.mean)).powi(2) - w;
        squares += w * w;
    }
    score + squares / pool.weight
}

impl Estimate {
    /// By a mean of effects.
    pub(crate) fn of(mean: &Mean) -> Option<Self> {
        Some(Self { effect: mean.mean, variance: mean.variance_of_mean()? })
    }

    /// The probability that the effect is above `bound`, taken for normal.
    pub fn probability_above(&self, bound: f64) -> f64 {
        probability_below((self.effect - bound) / self.variance.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::simulate::normal;

    fn drawn(prefixes: usize, mean: f64, deviation: f64) -> Vec<(f64, Estimate)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut draw = || {
            let truth = mean + deviation * normal(&mut random);
            let error: f64 = random.random_range(0.05..0.6);
            (truth, Estimate { effect: truth + error * normal(&mut random), variance: error * error })
        };
        (0..prefixes).map(|_| draw()).collect()
    }

    #[test]
    fn the_distribution_of_effects_is_found() {
        for (mean, deviation) in [(0.1, 0.2), (-0.05, 0.0), (0.0, 0.5)] {
            let estimates: Vec<_> = drawn(2_000, mean, deviation).into_iter().map(|(_, it)| it).collect();
            let pool = Pool::of(&estimates).unwrap();
            assert!((pool.mean - mean).abs() < 0.03, "{pool:?}");
            assert!((pool.variance.sqrt() - deviation).abs() < 0.06, "{pool:?}");
        }
        assert_eq!(Pool::of(&[Estimate { effect: 1.0, variance: 1.0 }; POOL_MIN - 1]), None);
    }

    #[test]
    fn shrunken_effects_are_nearer_to_the_truth_and_their_probabilities_hold() {
        let drawn = drawn(4_000, 0.05, 0.2);
        let pool = Pool::of(&drawn.iter().map(|(_, it)| *it).collect::<Vec<_>>()).unwrap();
        let error = |of: &dyn Fn(&Estimate) -> f64| {
            drawn.iter().map(|(truth, own)| (of(own) - truth).powi(2)).sum::<f64>() / drawn.len() as f64
        };
        assert!(error(&|own| pool.shrink(*own).effect) < 0.5 * error(&|own| own.effect));
        let sure: Vec<_> =
            drawn.iter().filter(|(_, own)| pool.shrink(*own).probability_above(0.0) >= 0.9).collect();
        let right = sure.iter().filter(|(truth, _)| *truth > 0.0).count() as f64 / sure.len() as f64;
        assert!(sure.len() > 200 && right > 0.9, "{right} of {}", sure.len());
    }

    #[test]
    fn a_small_pool_of_noise_is_not_sure_of_anything() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let (mut wrong, mut sure) = (0, 0);
        for _ in 0..2_000 {
            // Nothing helps by more than the bound: whoever is sure is wrong.
            let estimates: Vec<_> = (0..POOL_MIN)
                .map(|_| Estimate { effect: 0.05 + 0.2 * normal(&mut random), variance: 0.04 })
                .collect();
            let pool = Pool::of(&estimates).unwrap();
            sure += estimates.len();
            wrong += estimates.iter().filter(|own| pool.shrink(**own).probability_above(0.05) >= 0.9).count();
        }
        let share = wrong as f64 / sure as f64;
        assert!(share < 0.1, "{share}");
        assert!(share > 0.005, "whoever is never sure would pass: {share}");
    }

    /// A trial of normal values, looked at every twentieth, that stops once it is sure of harm or help.
    fn stopped(truth: f64, random: &mut Xoshiro256PlusPlus) -> (Estimate, bool) {
        let mut mean = Mean::default();
        let sure = 20_f64.ln();
        loop {
            (0..20).for_each(|_| mean.add(truth + 1.2 * normal(random)));
            let harm = Mean { mean: -mean.mean, ..mean.clone() };
            let is_helped = mean.ln_e_above(0.0).unwrap() >= 2.0 * sure;
            if is_helped || harm.ln_e_above(0.0).unwrap() >= sure || mean.count >= 1_440 {
                let estimate = Estimate { effect: mean.mean, variance: mean.variance_of_mean().unwrap() };
                return (estimate, is_helped);
            }
        }
    }

    #[test]
    fn stopped_trials_do_not_bias_the_pool() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let (mean, deviation) = (0.05, 0.2);
        let trials: Vec<_> =
            (0..2_000).map(|_| stopped(mean + deviation * normal(&mut random), &mut random)).collect();
        let all: Vec<_> = trials.iter().map(|(estimate, _)| *estimate).collect();
        let pool = Pool::of(&all).unwrap();
        println!("{pool:?}");
        assert!((pool.mean - mean).abs() < 0.015, "{pool:?}");
        assert!((pool.variance.sqrt() - deviation).abs() < 0.03, "{pool:?}");
        // Without those that were told to be helped it is far off.
        let failed: Vec<_> =
            trials.iter().filter(|(_, is_helped)| !is_helped).map(|(estimate, _)| *estimate).collect();
        assert!(Pool::of(&failed).unwrap().mean < mean - 0.05);
    }
}
