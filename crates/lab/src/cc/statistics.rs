//! What many samples of one cell say, and of two.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How sure an interval is.
const CONFIDENCE: f64 = 0.95;

/// A mean with its interval, by Student's t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The interval reaches so far on both sides; `None` of a single sample.
    pub margin: Option<f64>,
}

/// What the samples of one cell say.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub samples: usize,
    /// Their mean.
    pub mean: Mean,
    /// Their median.
    pub median: f64,
    /// The 90th percentile, if there are enough for an interval of it that assumes nothing.
    pub p90: Option<f64>,
    /// The same of the 99th.
    pub p99: Option<f64>,
}

/// Samples without which no distribution-free 95 % interval of a quantile exists: one that lies beyond it on its far side
/// has to be there with that probability, 1 − q^n ≥ 0.975.
fn samples_min(quantile: f64) -> usize {
    ((1.0 - CONFIDENCE) / 2.0).log(quantile).ceil() as usize
}

/// Summarises samples, of which there is at least one.
pub fn summarise(samples: &[f64]) -> Summary {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| (samples.len() >= samples_min(quantile)).then(|| of_sorted(&sorted, quantile));
    Summary {
        samples: samples.len(),
        mean: mean(samples),
        median: of_sorted(&sorted, 0.5),
        p90: at(0.9),
        p99: at(0.99),
    }
}

/// The quantile of sorted samples, by straight lines between them.
pub fn of_sorted(sorted: &[f64], quantile: f64) -> f64 {
    let place = quantile * (sorted.len() - 1) as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * part
}

/// The mean of samples, of which there is at least one.
pub fn mean(samples: &[f64]) -> Mean {
    let (mean, variance) = moments(samples);
    let count = samples.len() as f64;
    let margin = variance.map(|variance| t(count - 1.0) * (variance / count).sqrt());
    Mean { mean, margin }
}

fn moments(samples: &[f64]) -> (f64, Option<f64>) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (samples.len() > 1).then(|| squares / (count - 1.0)))
}

/// So many standard errors the interval reaches.
fn t(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).expect("there is at least one degree of freedom");
    student.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0)
}

/// Whether the mean of `a` is below that of `b` by more than chance: Welch's interval of their difference leaves zero out.
pub fn is_below(a: &[f64], b: &[f64]) -> bool {
    let ((mean_a, Some(variance_a)), (mean_b, Some(variance_b))) = (moments(a), moments(b)) else {
        return false;
    };
    let (part_a, part_b) = (variance_a / a.len() as f64, variance_b / b.len() as f64);
    if part_a + part_b == 0.0 {
        return mean_a < mean_b;
    }
    let (freedom_a, freedom_b) = (a.len() as f64 - 1.0, b.len() as f64 - 1.0);
    let freedom = (part_a + part_b).powi(2) / (part_a.powi(2) / freedom_a + part_b.powi(2) / freedom_b);
    mean_a + t(freedom) * (part_a + part_b).sqrt() < mean_b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_enough_samples() {
        assert_eq!((samples_min(0.9), samples_min(0.99)), (36, 368));
        let samples: Vec<f64> = (0..100).map(f64::from).collect();
        let summary = summarise(&samples);
        assert_eq!((summary.median, summary.p90.map(f64::round), summary.p99), (49.5, Some(89.0), None));
        assert_eq!(summarise(&samples[..35]).p90, None);
        assert!(summarise(&(0..368).map(f64::from).collect::<Vec<_>>()).p99.is_some());
    }

    #[test]
    fn the_interval_is_students() {
        // Five samples with a standard deviation of 1.5811; t of four degrees of freedom is 2.7764.
        let mean = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean.margin.unwrap() - 1.9632).abs() < 1e-4, "{mean:?}");
        assert_eq!(super::mean(&[2.0]), Mean { mean: 2.0, margin: None });
    }

    #[test]
    fn who_wins_does_so_by_more_than_chance() {
        let around = |centre: f64| -> Vec<f64> { (0..20).map(|n| centre + f64::from(n % 5) - 2.0).collect() };
        assert!(is_below(&around(10.0), &around(12.0)));
        assert!(!is_below(&around(10.0), &around(10.5)));
        assert!(!is_below(&around(12.0), &around(10.0)));
        assert!(!is_below(&[1.0], &[2.0]));
    }
}
