//! Whether what was shown to help has turned to harm: an e-detector (Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework
//! for sequential change detection, New England Journal of Statistics in Data Science 2(2), 2024).
//!
//! Each window multiplies what there was, but at least 1, by its own e-value against "no harm": help before it does not count
//! against harm now, as it would in a test from the proof on. For each of some drifts there is one, of the same increments as in
//! `evidence.rs`, and their mean decides. Each is at most the sum over windows of the e-value that begins there, so that where
//! there is no harm the mean reaches n/α within n windows with a chance of at most α.

use serde::{Deserialize, Serialize};

/// Harm, as a change of log goodput, that is looked for.
const DRIFTS: [f64; 4] = [0.05, 0.1, 0.2, 0.4];

/// The logarithms of what there is against "no harm", for each drift.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detector {
    #[serde(with = "crate::exact::array")]
    pub(crate) ln_e: [f64; DRIFTS.len()],
}

impl Detector {
    /// Adds a window of connections with this sum of effects and variance of it, of values with the variance `unit` each.
    pub(crate) fn add(&mut self, sum: f64, variance: f64, unit: f64) {
        for (ln_e, drift) in self.ln_e.iter_mut().zip(DRIFTS) {
            let lambda = drift / unit;
            *ln_e = ln_e.max(0.0) - lambda * sum - lambda * lambda * variance / 2.0;
        }
    }

    /// Whether there is harm, which is told where there is none with a chance of at most `alpha` within so many windows.
    pub(crate) fn is_sure(&self, windows: u32, alpha: f64) -> bool {
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

    /// The window in which harm is told of connections, twenty a window, that gain by `before` for so many windows and then by
    /// `after`.
    fn told(before: (u32, f64), after: f64, random: &mut Xoshiro256PlusPlus, windows: u32) -> Option<u32> {
        let mut detector = Detector::default();
        (0..windows).find(|window| {
            let gain = if *window < before.0 { before.1 } else { after };
            let (mut sum, mut variance) = (0.0, 0.0);
            for _ in 0..20 {
                let value = gain + 2.0 * normal(random);
                (sum, variance) = (sum + value, variance + value * value);
            }
            detector.add(sum, variance, 4.0);
            detector.is_sure(WINDOWS, ALPHA)
        })
    }

    #[test]
    fn harm_is_told_as_soon_after_help_as_without_and_no_harm_seldom() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
        let runs = 1_000;
        let falsely = (0..runs).filter(|_| told((0, 0.0), 0.0, &mut random, WINDOWS).is_some()).count();
        let most = f64::from(runs) * ALPHA;
        assert!((falsely as f64) <= most + 3.0 * most.sqrt(), "{falsely}");
        let mut delays = |help: u32| {
            let mut delays: Vec<_> = (0..200)
                .map(|_| told((help, 0.3), -0.3, &mut random, 10_000).map(|at| at - help).unwrap())
                .collect();
            delays.sort_unstable();
            delays[delays.len() / 2]
        };
        let (soon, late) = (delays(0), delays(500));
        assert!(late <= soon + 5, "{soon} {late}");
        assert!(late < 72, "{late}");
    }
}
