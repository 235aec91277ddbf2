//! Sequential statistics of a mean: an interval and an e-value that are valid at every look,
//! regardless of how many looks there are.
//!
//! Both use Robbins' normal mixture over a sum with known or estimated variance. The interval is
//! the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (Annals of
//! Statistics 52(6), 2024, Theorem 2.2). The e-value is its one-sided test, with a mixture over
//! drifts of one sign (Howard, Ramdas, McAuliffe, Sekhon, Annals of Statistics 49(2), 2021,
//! Proposition 6). With an estimated variance they are asymptotic: the normal approximation must
//! hold from the first look on, which is why a minimum number of connections is required. The proof
//! of an effect uses another kind of variance: see `evidence.rs`.

use serde::{Deserialize, Serialize};
use statrs::function::erf::erfc;

/// Number of observations at which intervals are tightest.
pub(crate) const TIGHT_AT: f64 = 500.0;
/// Error level at which intervals are tightest.
const TIGHT_ALPHA: f64 = 0.01;

/// Maximum number of values in a mean, because a 64-bit float represents all integers exactly only
/// up to this number. Later values are ignored.
pub(crate) const VALUES_MAX: u64 = 1 << 53;

/// A running mean and variance (Welford).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mean {
    /// Number of values.
    pub count: u64,
    /// Mean of the values.
    #[serde(with = "crate::exact")]
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    #[serde(with = "crate::exact")]
    pub squares: f64,
}

/// A closed interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        if self.count == VALUES_MAX {
            return;
        }
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// Merges another mean (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm,
    /// 1979).
    pub(crate) fn merge(&mut self, other: &Self) {
        let count = self.count.saturating_add(other.count).min(VALUES_MAX);
        if other.count == 0 || count == 0 {
            return;
        }
        let (off, part) = (other.mean - self.mean, other.count as f64 / count as f64);
        self.mean += off * part;
        self.squares += other.squares + off * off * self.count as f64 * part;
        self.count = count;
    }

    /// Returns the mean with half the weight: the count and squared deviations are halved.
    pub(crate) fn halved(&self) -> Self {
        let count = self.count / 2;
        if count == 0 {
            return Self::default();
        }
        Self { count, mean: self.mean, squares: self.squares * (count as f64 / self.count as f64) }
    }

    /// Returns the variance of the values, or `None` with fewer than two values or if all are
    /// equal.
    pub fn variance(&self) -> Option<f64> {
        let variance = self.squares / (self.count.checked_sub(1)? as f64);
        (variance.is_finite() && variance > 0.0).then_some(variance)
    }

    /// Returns the variance of the mean, or `None` without a variance or if it underflows to zero.
    pub fn variance_of_mean(&self) -> Option<f64> {
        Some(self.variance()? / self.count as f64).filter(|variance| *variance > 0.0)
    }

    /// Returns the interval of the mean at error level `alpha`.
    pub fn interval(&self, alpha: f64) -> Option<Interval> {
        let (t, rho2) = (self.count as f64, rho2(TIGHT_AT));
        let spread = t * rho2 + 1.0;
        let width = (2.0 * spread / (t * t * rho2) * (spread.sqrt() / alpha).ln()).sqrt();
        let half = self.variance()?.sqrt() * width;
        Some(Interval { low: self.mean - half, high: self.mean + half })
    }

    /// Returns the sum of squared deviations from `bound`.
    pub(crate) fn squares_about(&self, bound: f64) -> f64 {
        self.squares + self.count as f64 * (self.mean - bound).powi(2)
    }

    /// Returns the log e-value against "the mean is at most `bound`". If that is true, it reaches
    /// ln 1/α with probability at most α.
    ///
    /// Values are standardized about the bound, not the mean, so a few extreme values add to the
    /// variance as well as to the sum.
    pub fn ln_e_above(&self, bound: f64) -> Option<f64> {
        let (count, squares) = (self.count as f64, self.squares_about(bound));
        (squares > 0.0 && self.count > 1)
            .then(|| ln_e_one_sided((self.mean - bound) * count, squares, TIGHT_AT * squares / count))
    }
}

/// Returns the log e-value of a sum with variance v against a drift of at most zero: 2 / √(vρ²+1) ·
/// exp(w·sum²/2) · Φ(√w·sum) with w = ρ²/(vρ²+1). This is the likelihood ratio mixed over positive
/// drifts; it is most powerful at a variance of `tight_at`.
pub(crate) fn ln_e_one_sided(sum: f64, variance: f64, tight_at: f64) -> f64 {
    let rho2 = rho2(tight_at);
    let spread = variance * rho2 + 1.0;
    let w = rho2 / spread;
    std::f64::consts::LN_2 - spread.ln() / 2.0 + w * sum * sum / 2.0 + ln_probability_below(w.sqrt() * sum)
}

/// Returns the log e-value against a zero drift, with a mixture over both signs.
pub(crate) fn ln_e_two_sided(sum: f64, t: f64) -> f64 {
    let rho2 = rho2(TIGHT_AT);
    let spread = t * rho2 + 1.0;
    rho2 / spread * sum * sum / 2.0 - spread.ln() / 2.0
}

/// Returns the mixture variance that makes the interval tightest when the sum has variance
/// `tight_at` (Waudby-Smith et al., Appendix C.3).
fn rho2(tight_at: f64) -> f64 {
    let log = -2.0 * TIGHT_ALPHA.ln();
    (log + (log + 1.0).ln()) / tight_at
}

/// Returns the logarithm of the normal distribution function, accurate even where the function
/// underflows (Abramowitz and Stegun, 26.2.12).
fn ln_probability_below(x: f64) -> f64 {
    if x > -20.0 {
        probability_below(x).ln()
    } else {
        -x * x / 2.0 - (-x * (2.0 * std::f64::consts::PI).sqrt()).ln() - (x * x).recip()
    }
}

/// Evaluates the normal distribution function.
pub(crate) fn probability_below(x: f64) -> f64 {
    erfc(-x / std::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::simulate::normal;

    /// Number of streams.
    const STREAMS: usize = 2_000;
    const VALUES_MAX: u64 = 3_000;
    const LOOKS_FROM: u64 = 60;

    /// Counts the streams of inverse-probability values that are ever declared above zero, and
    /// those whose interval ever misses their mean.
    fn rejections(effect: f64, steered_share: f64, alpha: f64) -> [usize; 2] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut rejected = [0; 2];
        for _ in 0..STREAMS {
            let (mut mean, mut is_rejected) = (Mean::default(), [false; 2]);
            while mean.count < VALUES_MAX {
                let is_steered = random.random_bool(steered_share);
                let outcome = 0.7 * normal(&mut random) + if is_steered { effect } else { 0.0 };
                let weight = if is_steered { 1.0 / steered_share } else { -1.0 / (1.0 - steered_share) };
                mean.add(outcome * weight);
                if mean.count >= LOOKS_FROM {
                    is_rejected[0] |= mean.ln_e_above(0.0).unwrap() >= -alpha.ln();

                    let interval = mean.interval(alpha).unwrap();
                    is_rejected[1] |= !(interval.low..=interval.high).contains(&effect);
                }
            }
            rejected
                .iter_mut()
                .zip(is_rejected)
                .for_each(|(rejected, is_rejected)| *rejected += usize::from(is_rejected));
        }
        rejected
    }

    #[test]
    fn error_rate_holds_when_checking_after_every_value() {
        let alpha = 0.05;
        // Three binomial standard deviations above the mean.
        let most = |share: f64| {
            let n = STREAMS as f64;
            (n * share + 3.0 * (n * share * (1.0 - share)).sqrt()) as usize
        };
        for steered_share in [0.5, 0.9] {
            let [above, missed] = rejections(0.0, steered_share, alpha);
            assert!(above <= most(alpha), "{steered_share}: {above}");
            assert!(missed <= most(alpha), "{steered_share}: {missed}");
            // The assertions above would also hold for a test that never rejects.
            let [above, missed] = rejections(0.3, steered_share, alpha);
            assert!(above > STREAMS * 9 / 10 && missed <= most(alpha), "{above} {missed}");
        }
    }

    #[test]
    fn merging_equals_adding_all_values() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        let (mut all, mut parts) = (Mean::default(), [Mean::default(), Mean::default(), Mean::default()]);
        for at in 0..60 {
            let value = 3.0 + normal(&mut random);
            all.add(value);
            parts[usize::from(at % 5 == 0)].add(value);
        }
        let mut merged = Mean::default();
        parts.iter().for_each(|part| merged.merge(part));
        assert_eq!(merged.count, 60);
        assert!((merged.mean - all.mean).abs() < 1e-12 && (merged.squares - all.squares).abs() < 1e-9);
    }

    #[test]
    fn sequential_interval_is_wider_than_a_fixed_one() {
        let mut mean = Mean::default();
        (0..500).for_each(|at| mean.add(f64::from(at % 2)));
        let interval = mean.interval(0.05).unwrap();
        let one_look = 1.96 * mean.variance_of_mean().unwrap().sqrt();
        let ratio = (interval.high - mean.mean) / one_look;
        assert!((1.3..2.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn no_interval_or_e_value_without_a_variance() {
        let mut mean = Mean::default();
        assert_eq!(mean.interval(0.05), None);
        (0..100).for_each(|_| mean.add(1.0));
        assert_eq!((mean.interval(0.05), mean.ln_e_above(1.0)), (None, None));
    }

    #[test]
    fn strong_contrary_evidence_gives_a_small_finite_e_value() {
        for sum in [-1.0, -1e2, -1e3, -1e4, -1e6, -1e9] {
            let ln_e = ln_e_one_sided(sum, 1e4, TIGHT_AT);
            assert!(ln_e < 0.0 && ln_e > -60.0, "{sum}: {ln_e}");
        }
        assert!(ln_e_one_sided(1e3, 1e4, TIGHT_AT) > 40.0);
        let (above, below) = (ln_probability_below(-19.999), ln_probability_below(-20.001));
        assert!((above - below - 0.002 * 20.05).abs() < 1e-3, "{above} {below}");
    }
}
