//! Statistics of one cell's samples, and comparisons of two cells.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence level of all intervals.
const CONFIDENCE: f64 = 0.95;

/// A mean with its confidence interval, by Student's t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the confidence interval; `None` for a single sample.
    pub margin: Option<f64>,
}

/// Summary of one cell's samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub samples: usize,
    /// Mean of the samples.
    pub mean: Mean,
    /// Median of the samples.
    pub median: f64,
    /// The 90th percentile, if there are enough samples for a distribution-free interval.
    pub p90: Option<f64>,
    /// The 99th percentile, if there are enough samples for a distribution-free interval.
    pub p99: Option<f64>,
}

/// Minimum samples for a distribution-free 95 % interval of a quantile: at least one sample exceeds
/// the quantile with probability 1 − q^n ≥ 0.975.
fn samples_min(quantile: f64) -> usize {
    ((1.0 - CONFIDENCE) / 2.0).log(quantile).ceil() as usize
}

/// Summarises samples, which must not be empty.
pub fn summarise(samples: &[f64]) -> Summary {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| supported_quantile(&sorted, quantile);
    Summary {
        samples: samples.len(),
        mean: mean(samples),
        median: quantile_of_sorted(&sorted, 0.5),
        p90: at(0.9),
        p99: at(0.99),
    }
}

/// Returns whether there are enough samples for a distribution-free interval of a quantile.
pub fn is_supported(samples: usize, quantile: f64) -> bool {
    samples >= samples_min(quantile)
}

/// Returns a quantile of sorted samples, if there are enough samples for a distribution-free
/// interval.
pub fn supported_quantile(sorted: &[f64], quantile: f64) -> Option<f64> {
    is_supported(sorted.len(), quantile).then(|| quantile_of_sorted(sorted, quantile))
}

/// Returns a quantile of sorted samples, interpolated linearly.
pub fn quantile_of_sorted(sorted: &[f64], quantile: f64) -> f64 {
    let position = quantile * (sorted.len() - 1) as f64;
    let (below, part) = (position.floor() as usize, position.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * part
}

/// Returns the mean of samples, which must not be empty.
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

/// Returns the half-width of the confidence interval in standard errors, for `freedom` degrees of
/// freedom.
fn t(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).expect("at least one degree of freedom");
    student.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0)
}

/// Returns whether the mean of `a` is significantly below the mean of `b`: Welch's interval for the
/// difference excludes zero.
pub fn is_below(a: &[f64], b: &[f64]) -> bool {
    let ((mean_a, Some(variance_a)), (mean_b, Some(variance_b))) = (moments(a), moments(b)) else {
        return false;
    };
    let (part_a, part_b) = (variance_a / a.len() as f64, variance_b / b.len() as f64);
    if part_a + part_b == 0.0 {
        return mean_a < mean_b;
    }
    let freedom = freedom((part_a, a.len()), (part_b, b.len()));
    mean_a + t(freedom) * (part_a + part_b).sqrt() < mean_b
}

/// Returns the mean of the differences of the means of pairs of sample sets, none of which may be
/// empty; there must be at least one pair. Its interval is Welch's, for one pair and for more.
pub fn mean_difference(pairs: &[(Vec<f64>, Vec<f64>)]) -> Mean {
    let weight = 1.0 / pairs.len() as f64;
    let (mut mean, mut variance, mut squares) = (0.0, Some(0.0), 0.0);
    for (sign, samples) in pairs.iter().flat_map(|(a, b)| [(weight, a), (-weight, b)]) {
        let (mean_here, variance_here) = moments(samples);
        mean += sign * mean_here;
        let part = variance_here.map(|here| weight.powi(2) * here / samples.len() as f64);
        squares += part.map_or(0.0, |part| part.powi(2) / (samples.len() as f64 - 1.0));
        variance = variance.zip(part).map(|(sum, part)| sum + part);
    }
    let margin = variance.map(|variance| match variance {
        0.0 => 0.0,
        _ => t(variance.powi(2) / squares) * variance.sqrt(),
    });
    Mean { mean, margin }
}

/// Returns the degrees of freedom of the sum of two means' variances (Welch and Satterthwaite).
/// Each argument is a mean's variance and its number of samples.
fn freedom((part_a, count_a): (f64, usize), (part_b, count_b): (f64, usize)) -> f64 {
    let of = |part: f64, count: usize| part.powi(2) / (count as f64 - 1.0);
    (part_a + part_b).powi(2) / (of(part_a, count_a) + of(part_b, count_b))
}

/// Ratio of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The first mean divided by the second.
    pub ratio: f64,
    /// The ratio's 95 % interval, which need not be symmetric; `None` for a single sample, or if
    /// the divisor's interval contains zero.
    pub interval: Option<(f64, f64)>,
}

/// Returns the ratio of the means of independent samples with unequal variances. Fieller's interval
/// (1954) contains all ratios `r` for which `mean_a - r * mean_b` does not differ significantly
/// from zero, with the degrees of freedom at the measured ratio (Tamhane and Logan, 2004).
pub fn ratio(a: &[f64], b: &[f64]) -> Ratio {
    let ((mean_a, variance_a), (mean_b, variance_b)) = (moments(a), moments(b));
    let ratio = mean_a / mean_b;
    let (Some(variance_a), Some(variance_b)) = (variance_a, variance_b) else {
        return Ratio { ratio, interval: None };
    };
    let (part_a, part_b) = (variance_a / a.len() as f64, variance_b / b.len() as f64);
    let scaled_b = ratio.powi(2) * part_b;
    if part_a + scaled_b == 0.0 {
        return Ratio { ratio, interval: Some((ratio, ratio)) };
    }
    let t = t(freedom((part_a, a.len()), (scaled_b, b.len())));
    let share = t.powi(2) * part_b / mean_b.powi(2);
    let interval = (share < 1.0).then(|| {
        let margin = t / mean_b.abs() * (part_a + scaled_b - share * part_a).sqrt();
        ((ratio - margin) / (1.0 - share), (ratio + margin) / (1.0 - share))
    });
    Ratio { ratio, interval }
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

    /// One pair is Welch's comparison: the means differ by 1.5. Two equal pairs have the same mean
    /// and a narrower interval.
    #[test]
    fn mean_difference_pools_pairs() {
        let pair = (vec![1.0, 2.0, 3.0, 4.0], vec![2.0, 4.0, 6.0]);
        let one = mean_difference(std::slice::from_ref(&pair));
        let (part_a, part_b) = (5.0 / 3.0 / 4.0, 4.0 / 3.0);
        let expected = t(freedom((part_a, 4), (part_b, 3))) * (part_a + part_b).sqrt();
        assert!((one.mean + 1.5).abs() < 1e-12 && (one.margin.unwrap() - expected).abs() < 1e-9, "{one:?}");
        let two = mean_difference(&[pair.clone(), pair.clone()]);
        assert!((two.mean + 1.5).abs() < 1e-12 && two.margin.unwrap() < one.margin.unwrap() / 1.4);
        assert_eq!(mean_difference(&[pair, (vec![1.0], vec![1.0])]).margin, None);
    }

    #[test]
    fn mean_interval_is_students_t() {
        // Five samples with standard deviation 1.5811; t is 2.7764 for four degrees of freedom.
        let mean = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean.margin.unwrap() - 1.9632).abs() < 1e-4, "{mean:?}");
        assert_eq!(super::mean(&[2.0]), Mean { mean: 2.0, margin: None });
    }

    #[test]
    fn ratio_interval_is_fiellers() {
        let (a, b) = ([9.0, 10.0, 12.0, 11.0, 8.0], [2.0, 2.5, 1.5, 2.2, 1.8]);
        let Ratio { ratio: found, interval } = ratio(&a, &b);
        let (least, most) = interval.unwrap();
        assert!((found - 5.0).abs() < 1e-12 && most - found > found - least, "{least} {found} {most}");
        // At each end of the interval, `a - end * b` is exactly t standard errors from zero. t has
        // the ratio's degrees of freedom.
        let (part_a, part_b) = (2.5 / 5.0, 0.145 / 5.0);
        let t = t(freedom((part_a, 5), (25.0 * part_b, 5)));
        for end in [least, most] {
            let away = (10.0 - end * 2.0).abs() / (part_a + end.powi(2) * part_b).sqrt();
            assert!((away - t).abs() < 1e-9, "{end}: {away} and {t}");
        }
        assert_eq!(ratio(&[4.0, 4.0], &[2.0, 2.0]).interval, Some((2.0, 2.0)));
        assert_eq!(ratio(&a, &[2.0]).interval, None);
        assert_eq!(ratio(&a, &[-20.0, 25.0]).interval, None, "the divisor may be zero");
    }

    #[test]
    fn is_below_needs_a_significant_difference() {
        let around = |centre: f64| -> Vec<f64> { (0..20).map(|n| centre + f64::from(n % 5) - 2.0).collect() };
        assert!(is_below(&around(10.0), &around(12.0)));
        assert!(!is_below(&around(10.0), &around(10.5)));
        assert!(!is_below(&around(12.0), &around(10.0)));
        assert!(!is_below(&[1.0], &[2.0]));
    }
}
