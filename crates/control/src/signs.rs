//! Sign-symmetric test of paired differences, valid at every look, and the interval that inverts
//! it.
//!
//! If a fair coin decides the order of each pair, and the effect is zero, each difference d is as
//! likely as −d, whatever its size and the sizes of the others. Then exp(Σ(λd − ln cosh λd)) is a
//! martingale with mean 1 for every λ, exactly, for any number of pairs: a betting test of symmetry
//! (Ramdas, Ruf, Larsson and Koolen, International Journal of Approximate Reasoning 141, 2022). The
//! e-value is a mixture over λ > 0. It is at least as large as the mixture of exp(λd − λ²d²/2),
//! because ln cosh x ≤ x²/2: a pair can double the e-value, rather than multiply it by at most
//! 1.65.
//!
//! The e-value falls as the tested effect rises, so the effects that are not rejected form an
//! interval. It is exact if the effect is the same in all pairs.

use std::f64::consts::LN_2;

use crate::sequential::Interval;

/// Values of λ, per unit of log goodput. They suit effects from about 0.05 to 1.
const LAMBDAS: [f64; 5] = [2.0, 4.0, 8.0, 16.0, 32.0];
/// Maximum absolute difference: log goodputs are between 0 and 45.
pub(crate) const DIFFERENCE_MAX: f64 = 45.0;
/// Number of bisection steps for an end of the interval. The steps narrow the end to 2^-40 of its
/// range.
const HALVINGS: u32 = 40;

/// Returns the log e-value against "the effect is at most `bound`". If that is true, it reaches
/// ln 1/α with probability at most α. Returns 0 without differences.
pub(crate) fn ln_e_above(differences: &[f64], bound: f64) -> f64 {
    let ln_e = LAMBDAS.map(|lambda| differences.iter().map(|it| ln_bet(lambda * (it - bound))).sum::<f64>());
    let largest = ln_e.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = ln_e.iter().map(|ln_e| (ln_e - largest).exp()).sum();
    largest + (sum / LAMBDAS.len() as f64).ln()
}

/// Returns the log e-value against "the effect is at least `bound`".
pub(crate) fn ln_e_below(differences: &[f64], bound: f64) -> f64 {
    let negated: Vec<_> = differences.iter().map(|it| -it).collect();
    ln_e_above(&negated, -bound)
}

/// Returns the interval of the effect at error level `alpha`. `None` if there are too few
/// differences to reject any effect.
pub(crate) fn interval(differences: &[f64], alpha: f64) -> Option<Interval> {
    let least = (2.0 / alpha).ln();
    let is_bounded = ln_e_above(differences, -2.0 * DIFFERENCE_MAX) >= least;
    let negated: Vec<_> = differences.iter().map(|it| -it).collect();
    is_bounded.then(|| Interval { low: lowest(differences, least), high: -lowest(&negated, least) })
}

/// Returns the lowest effect whose e-value stays below `least`.
fn lowest(differences: &[f64], least: f64) -> f64 {
    let (mut low, mut high) = (-2.0 * DIFFERENCE_MAX, 2.0 * DIFFERENCE_MAX);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if ln_e_above(differences, middle) >= least { low = middle } else { high = middle }
    }
    low
}

/// Returns x − ln cosh x, without overflow.
fn ln_bet(x: f64) -> f64 {
    let y = -2.0 * x;
    LN_2 - if y > 40.0 { y } else { y.exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::simulate::normal;

    const ALPHA: f64 = 0.05;

    /// Simulates streams of differences with heavy-tailed, autocorrelated sizes, whose signs are
    /// fair coin flips apart from `effect`. Returns the shares of streams that are ever declared
    /// helped, that are ever declared harmed, and whose interval ever misses the effect.
    fn rejections(effect: f64, streams: u32) -> [f64; 3] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(23);
        let mut rejected = [0; 3];
        for _ in 0..streams {
            let (mut differences, mut scale, mut is_rejected) = (Vec::new(), 0.0, [false; 3]);
            for _ in 0..48 {
                scale = 0.9 * scale + 0.4 * normal(&mut random);
                let size = (0.15 * scale.exp() * normal(&mut random).abs().exp()).min(20.0);
                differences.push(effect + if random.random_bool(0.5) { size } else { -size });
                is_rejected[0] |= ln_e_above(&differences, 0.0) >= -ALPHA.ln();
                is_rejected[1] |= ln_e_below(&differences, 0.0) >= -ALPHA.ln();
                // The interval misses the effect once either one-sided test rejects it.
                let least = (2.0 / ALPHA).ln();
                let ln_e = ln_e_above(&differences, effect).max(ln_e_below(&differences, effect));
                is_rejected[2] |= ln_e >= least;
                if differences.len() % 16 == 0 {
                    let misses = |it: Interval| !(it.low..=it.high).contains(&effect);
                    assert_eq!(interval(&differences, ALPHA).is_some_and(misses), ln_e >= least);
                }
            }
            rejected.iter_mut().zip(is_rejected).for_each(|(sum, is)| *sum += u32::from(is));
        }
        rejected.map(|rejected| f64::from(rejected) / f64::from(streams))
    }

    #[test]
    fn error_rate_holds_at_every_look_despite_heavy_tails() {
        let most = ALPHA + 3.0 * (ALPHA * (1.0 - ALPHA) / 2_000.0_f64).sqrt();
        let [above, below, missed] = rejections(0.0, 2_000);
        assert!(above <= most && below <= most && missed <= most, "{above} {below} {missed}");
        // An uninformative test would pass the assertion above.
        assert!(above > 0.005 && below > 0.005, "{above} {below}");
        let [above, _, missed] = rejections(0.6, 300);
        assert!(above > 0.6 && missed <= 0.1, "{above} {missed}");
    }

    #[test]
    fn each_agreeing_pair_doubles_the_e_value() {
        for pairs in 1..=60 {
            let ln_e = ln_e_above(&vec![0.7; pairs], 0.0);
            let (most, loss) = (pairs as f64 * LN_2, (LAMBDAS.len() as f64).ln());
            assert!((most - loss - 2.0..=most).contains(&ln_e), "{pairs}: {ln_e}");
        }
        assert_eq!(ln_e_above(&[], 0.0), 0.0);
        // With n pairs, two of the 2^n orders give all differences the same sign by chance. Five
        // pairs therefore cannot reject at 5 %, whatever the effect.
        assert_eq!(interval(&[0.7; 5], ALPHA), None);
        let some = interval(&[0.7; 8], ALPHA).unwrap();
        assert!(some.low < 0.7 && some.low > 0.2 && some.high > 0.7 && some.high < 1.2, "{some:?}");
    }

    #[test]
    fn extreme_differences_stay_finite() {
        for differences in [[DIFFERENCE_MAX; 40], [-DIFFERENCE_MAX; 40]] {
            let (above, below) = (ln_e_above(&differences, 0.0), ln_e_below(&differences, 0.0));
            assert!(above.is_finite() && below.is_finite(), "{above} {below}");
        }
    }
}
