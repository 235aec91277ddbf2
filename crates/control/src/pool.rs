//! What all prefixes together say of one: shrinkage towards their mean, and how far they are from it.
//!
//! Effects are taken for draws from a normal distribution, whose mean and variance are estimated from all that have been tried:
//! Paule and Mandel's estimator (1982), which is Morris' empirical Bayes one (JASA 78(381), 1983) and the one that simulation
//! studies prefer (Veroniki et al., Research Synthesis Methods 7(1), 2016).

use serde::{Deserialize, Serialize};

use crate::sequential::probability_below;

/// Prefixes without which there is no pool.
const POOL_MIN: usize = 8;
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pool {
    /// The mean effect.
    pub mean: f64,
    /// The variance of effects, that of their estimates taken out.
    pub variance: f64,
    /// Prefixes that it is estimated from.
    pub prefixes: usize,
}

impl Pool {
    /// Estimates it; nothing of too few prefixes.
    pub fn of(estimates: &[Estimate]) -> Option<Self> {
        if estimates.len() < POOL_MIN {
            return None;
        }
        let expected = (estimates.len() - 1) as f64;
        let excess = |variance: f64| {
            let (weight, sum) = estimates.iter().fold((0.0, 0.0), |(weight, sum), it| {
                let own = 1.0 / (it.variance + variance);
                (weight + own, sum + own * it.effect)
            });
            let mean = sum / weight;
            let squares: f64 =
                estimates.iter().map(|it| (it.effect - mean).powi(2) / (it.variance + variance)).sum();
            (mean, squares - expected)
        };
        let (mut low, mut high) = (0.0, 1e-4);
        if excess(low).1 <= 0.0 {
            return Some(Self { mean: excess(0.0).0, variance: 0.0, prefixes: estimates.len() });
        }
        for _ in 0..DOUBLINGS_MAX {
            if excess(high).1 <= 0.0 {
                break;
            }
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..HALVINGS_MAX {
            let middle = f64::midpoint(low, high);
            if excess(middle).1 > 0.0 { low = middle } else { high = middle }
        }
        Some(Self { mean: excess(high).0, variance: high, prefixes: estimates.len() })
    }

    /// What is to be thought of a prefix with this estimate; of one without, the pool itself.
    pub fn shrink(&self, own: Option<Estimate>) -> Estimate {
        match own {
            None => Estimate { effect: self.mean, variance: self.variance },
            Some(own) => {
                let to_pool = own.variance / (own.variance + self.variance);
                Estimate {
                    effect: to_pool * self.mean + (1.0 - to_pool) * own.effect,
                    variance: (1.0 - to_pool) * own.variance,
                }
            }
        }
    }
}

impl Estimate {
    /// The probability that the effect is above zero, taken for normal.
    pub fn probability_above_zero(&self) -> f64 {
        if self.variance > 0.0 {
            probability_below(self.effect / self.variance.sqrt())
        } else {
            f64::from(u8::from(self.effect > 0.0))
        }
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
        assert!(error(&|own| pool.shrink(Some(*own)).effect) < 0.5 * error(&|own| own.effect));
        let sure: Vec<_> =
            drawn.iter().filter(|(_, own)| pool.shrink(Some(*own)).probability_above_zero() >= 0.9).collect();
        let right = sure.iter().filter(|(truth, _)| *truth > 0.0).count() as f64 / sure.len() as f64;
        assert!(sure.len() > 200 && right > 0.9, "{right} of {}", sure.len());
    }
}
