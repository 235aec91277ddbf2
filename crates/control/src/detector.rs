//! Change detection after a proof: whether steering that helped has started to harm. This is an
//! e-detector (Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential
//! change detection, New England Journal of Statistics in Data Science 2(2), 2024).
//!
//! The detector keeps one value for each of several drifts. Each window raises the value to at
//! least 1 and multiplies it by the window's e-value against "no harm". Earlier help therefore does
//! not offset later harm, as it would in a test that starts at the proof. The increments are the
//! same as in `evidence.rs`, and detection uses the mean over the drifts. Each value is at most the
//! sum of the e-values that start in each window, so without harm the mean reaches n/α within n
//! windows with probability at most α.

use serde::{Deserialize, Serialize};

/// Sizes of harm to detect, as changes in log goodput.
const DRIFTS: [f64; 4] = [0.05, 0.1, 0.2, 0.4];

/// Detector of a change from help to harm: for each drift, the logarithm of the detector's value
/// against "no harm".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detector {
    #[serde(with = "crate::exact::array")]
    pub(crate) ln_e: [f64; DRIFTS.len()],
}

impl Detector {
    /// Adds a window whose effects have the given sum and variance. `unit` is the variance of one
    /// value.
    pub(crate) fn add(&mut self, sum: f64, variance: f64, unit: f64) {
        for (ln_e, drift) in self.ln_e.iter_mut().zip(DRIFTS) {
            let lambda = drift / unit;
            *ln_e = ln_e.max(0.0) - lambda * sum - lambda * lambda * variance / 2.0;
        }
    }

    /// Returns whether harm is detected. Without harm, the probability of detecting any within
    /// `windows` windows is at most `alpha`.
    pub(crate) fn detects_harm(&self, windows: u32, alpha: f64) -> bool {
        let largest = self.ln_e.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = self.ln_e.iter().map(|ln_e| (ln_e - largest).exp()).sum();
        largest + (sum / DRIFTS.len() as f64).ln() >= (f64::from(windows) / alpha).ln()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;
    use crate::simulate::normal;

    const WINDOWS: u32 = 72;
    const ALPHA: f64 = 0.05;

    /// Simulates 20 connections per window with a mean effect of `help` for `helped_windows`
    /// windows and `after` from then on. Returns the window in which harm is detected.
    fn detection_window(
        helped_windows: u32,
        help: f64,
        after: f64,
        random: &mut Xoshiro256PlusPlus,
        windows: u32,
    ) -> Option<u32> {
        let mut detector = Detector::default();
        (0..windows).find(|window| {
            let gain = if *window < helped_windows { help } else { after };
            let (mut sum, mut variance) = (0.0, 0.0);
            for _ in 0..20 {
                let value = gain + 2.0 * normal(random);
                (sum, variance) = (sum + value, variance + value * value);
            }
            detector.add(sum, variance, 4.0);
            detector.detects_harm(WINDOWS, ALPHA)
        })
    }

    #[test]
    fn detects_harm_as_fast_after_help_and_rarely_without_harm() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
        let runs = 1_000;
        let falsely =
            (0..runs).filter(|_| detection_window(0, 0.0, 0.0, &mut random, WINDOWS).is_some()).count();
        let most = f64::from(runs) * ALPHA;
        assert!((falsely as f64) <= most + 3.0 * most.sqrt(), "{falsely}");
        let mut delays = |helped: u32| {
            let mut delays: Vec<_> = (0..200)
                .map(|_| {
                    detection_window(helped, 0.3, -0.3, &mut random, 10_000).map(|at| at - helped).unwrap()
                })
                .collect();
            delays.sort_unstable();
            delays[delays.len() / 2]
        };
        let (soon, late) = (delays(0), delays(500));
        assert!(late <= soon + 5, "{soon} {late}");
        assert!(late < 72, "{late}");
    }
}
