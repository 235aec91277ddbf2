//! Pooling of effects across all trials: each estimate is shrunk towards the mean, and its
//! uncertainty is adjusted accordingly.
//!
//! Effects are modelled as draws from a normal distribution. The variance of this distribution is
//! the restricted maximum likelihood estimate (Veroniki et al., Research Synthesis Methods 7(1),
//! 2016). A shrunken effect and its variance follow Morris (Parametric empirical Bayes inference,
//! JASA 78(381), 1983, §5), which accounts for the pool's mean and variance being estimates. Even
//! if the variance is estimated as zero, a prefix in a pool of k keeps 2/(k−1) of its own estimate
//! and variance.
//!
//! A stopped trial contributes its estimate at the stop, without later observations. It stays in
//! the pool equally long whether it was declared helped or harmed. Including only trials declared
//! helped, or only trials declared harmed, would bias the pool (Schou and Marschner, Statistics in
//! Medicine 32(28), 2013). With both kinds, the data contain the reason for stopping, and the
//! likelihood is the same as without stops (Berger and Wolpert, The Likelihood Principle, 1988,
//! §4.2). The estimate therefore uses the likelihood, not moments. Normal effects and known
//! variances remain approximations.

use serde::{Deserialize, Serialize};

use crate::sequential::{Mean, probability_below};

/// Minimum number of estimates, one per prefix, that form a pool.
pub(crate) const POOL_MIN: usize = 8;
/// Number of bisection steps when solving for the variance. The steps narrow the interval to 2^-40
/// of its width.
const HALVINGS_MAX: u32 = 40;
/// Maximum number of doublings to bracket the variance before the bisection.
const DOUBLINGS_MAX: u32 = 40;

/// An effect and the variance of its estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Effect on log goodput.
    #[serde(with = "crate::exact")]
    pub effect: f64,
    /// Variance of the estimated effect.
    #[serde(with = "crate::exact")]
    pub variance: f64,
}

/// Distribution of effects across prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Mean effect.
    #[serde(with = "crate::exact")]
    pub mean: f64,
    /// Variance of effects, excluding the variance of their estimates.
    #[serde(with = "crate::exact")]
    pub variance: f64,
    /// Number of prefixes in the pool, at least [`POOL_MIN`].
    pub prefixes: usize,
    /// Inverse of the variance of the mean.
    #[serde(with = "crate::exact")]
    pub(crate) weight: f64,
    /// Mean variance of the estimates, weighted like the mean effect.
    #[serde(with = "crate::exact")]
    pub(crate) variance_own: f64,
}

impl Pool {
    /// Estimates the pool. Returns `None` with fewer than [`POOL_MIN`] prefixes.
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

    /// Creates the pool for a given variance of effects.
    fn with(estimates: &[Estimate], variance: f64) -> Self {
        let (mut weight, mut mean, mut own) = (0.0, 0.0, 0.0);
        for it in estimates {
            let w = 1.0 / (it.variance + variance);
            (weight, mean, own) = (weight + w, mean + w * it.effect, own + w * it.variance);
        }
        Self { mean: mean / weight, variance, prefixes: estimates.len(), weight, variance_own: own / weight }
    }

    /// Shrinks the estimate of one of the prefixes in the pool.
    pub fn shrink(&self, own: Estimate) -> Estimate {
        let k = self.prefixes as f64;
        let w = 1.0 / (own.variance + self.variance);
        let to_pool = (k - 3.0) / (k - 1.0) * own.variance * w;
        let leverage = w / self.weight;
        let off = own.effect - self.mean;
        // Uncertainty of the estimated variance.
        let uncertain = 2.0 / (k - 3.0) * to_pool.powi(2) * (self.variance_own + self.variance) * w;
        Estimate {
            effect: own.effect - to_pool * off,
            variance: own.variance * (1.0 - (1.0 - leverage) * to_pool) + uncertain * off * off,
        }
    }
}

/// Returns twice the derivative of the restricted log likelihood with respect to the variance of
/// effects.
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
    /// Creates an estimate from a mean of effects.
    pub(crate) fn of(mean: &Mean) -> Option<Self> {
        Some(Self { effect: mean.mean, variance: mean.variance_of_mean()? })
    }

    /// Returns the probability that the effect exceeds `bound`, under a normal distribution.
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
    fn recovers_the_distribution_of_effects() {
        for (mean, deviation) in [(0.1, 0.2), (-0.05, 0.0), (0.0, 0.5)] {
            let estimates: Vec<_> = drawn(2_000, mean, deviation).into_iter().map(|(_, it)| it).collect();
            let pool = Pool::of(&estimates).unwrap();
            assert!((pool.mean - mean).abs() < 0.03, "{pool:?}");
            assert!((pool.variance.sqrt() - deviation).abs() < 0.06, "{pool:?}");
        }
        assert_eq!(Pool::of(&[Estimate { effect: 1.0, variance: 1.0 }; POOL_MIN - 1]), None);
    }

    #[test]
    fn shrinkage_reduces_error_and_keeps_probabilities_valid() {
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
    fn small_pool_of_noise_is_rarely_confident() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let (mut wrong, mut sure) = (0, 0);
        for _ in 0..2_000 {
            // No effect exceeds the bound, so every confident estimate is wrong.
            let estimates: Vec<_> = (0..POOL_MIN)
                .map(|_| Estimate { effect: 0.05 + 0.2 * normal(&mut random), variance: 0.04 })
                .collect();
            let pool = Pool::of(&estimates).unwrap();
            sure += estimates.len();
            wrong += estimates.iter().filter(|own| pool.shrink(**own).probability_above(0.05) >= 0.9).count();
        }
        let share = wrong as f64 / sure as f64;
        assert!(share < 0.1, "{share}");
        assert!(share > 0.005, "never confident: {share}");
    }

    /// Simulates a trial of normal values that is checked every 20 values and stops at significant
    /// harm or help. Returns its estimate and whether it was declared helped.
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
        // Without the trials declared helped, the estimated mean is far from the truth.
        let failed: Vec<_> =
            trials.iter().filter(|(_, is_helped)| !is_helped).map(|(estimate, _)| *estimate).collect();
        assert!(Pool::of(&failed).unwrap().mean < mean - 0.05);
    }
}
