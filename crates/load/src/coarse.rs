//! Coarse histogram: counts of values with an error of at most 3 %, in little memory. A run has one
//! for each second; an HDR histogram would need 180 kB each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Significant bits of a value that are kept.
const KEPT_BITS: u32 = 6;

/// Counts of values, rounded to [`KEPT_BITS`]. Merging is exact: the sum of two histograms equals
/// that of all their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct CoarseHistogram {
    /// Number of values in each group that is rounded alike, by the group's lowest value. There are
    /// at most 32 groups per power of two.
    counts: BTreeMap<u64, u64>,
}

impl CoarseHistogram {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        *self.counts.entry(lowest_alike(value)).or_default() += 1;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the highest value that is rounded like the quantile, or `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let rank = ((self.count() as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map(|(lowest, _)| lowest + (span(*lowest) - 1))
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (lowest, count) in &other.counts {
            *self.counts.entry(*lowest).or_default() += count;
        }
    }
}

impl From<Vec<(u64, u64)>> for CoarseHistogram {
    /// Reads counts by value.
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (value, count) in counts {
            *histogram.counts.entry(lowest_alike(value)).or_default() += count;
        }
        histogram
    }
}

impl From<CoarseHistogram> for Vec<(u64, u64)> {
    fn from(histogram: CoarseHistogram) -> Self {
        histogram.counts.into_iter().collect()
    }
}

/// Returns the number of values that are rounded like `value`.
fn span(value: u64) -> u64 {
    1 << (u64::BITS - value.leading_zeros()).saturating_sub(KEPT_BITS)
}

fn lowest_alike(value: u64) -> u64 {
    value & !(span(value) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_three_percent_too_high() {
        for scale in [1, 7, 1000, 1_000_000] {
            let mut histogram = CoarseHistogram::default();
            (1..=1000).for_each(|value| histogram.record(value * scale));
            assert_eq!(histogram.count(), 1000);
            for (quantile, exact) in [(0.0, 1), (0.5, 500), (0.95, 950), (1.0, 1000)] {
                let found = histogram.quantile(quantile).unwrap();
                let exact = exact * scale;
                assert!((exact..=exact + exact / 32).contains(&found), "{quantile}: {found} for {exact}");
            }
        }
        assert_eq!(CoarseHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn extreme_values_are_counted() {
        let mut histogram = CoarseHistogram::default();
        [0, u64::MAX].into_iter().for_each(|value| histogram.record(value));
        assert_eq!([0.5, 1.0].map(|quantile| histogram.quantile(quantile)), [Some(0), Some(u64::MAX)]);
    }

    #[test]
    fn merging_and_json_are_exact() {
        let of = |values: &[u64]| {
            let mut histogram = CoarseHistogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            histogram
        };
        let mut merged = of(&[3, 900, 70_000]);
        merged.merge(&of(&[900, 905, 1]));
        assert_eq!(merged, of(&[1, 3, 900, 900, 905, 70_000]));
        let text = serde_json::to_string(&merged).unwrap();
        assert_eq!(text, "[[1,1],[3,1],[896,3],[69632,1]]");
        assert_eq!(serde_json::from_str::<CoarseHistogram>(&text).unwrap(), merged);
    }
}
