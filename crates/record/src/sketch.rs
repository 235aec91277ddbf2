//! DDSketch (Masson, Rim, Lee, VLDB 2019): mergeable sketches that estimate quantiles of positive
//! numbers within 1 %. The agent stores the sketches, and the controller ranks networks by them.
//!
//! The crate sketches-ddsketch is not used, because it exposes its buckets only in a binary form,
//! and SQL queries must read the stored buckets as text.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Ratio of consecutive bucket bounds: (1 + a) / (1 - a) for an accuracy a of 1 %.
const GAMMA: f64 = 1.01 / 0.99;

/// Counts of values by bucket: bucket i counts values above γ^(i-1) and up to γ^i. Values are below
/// 2^64, so a sketch has at most 2219 buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch(BTreeMap<u16, u64>);

impl Sketch {
    /// Counts a value; zero is ignored, because it has no logarithm.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts a value `times` times.
    pub fn add_times(&mut self, value: u64, times: u64) {
        if value > 0 && times > 0 {
            let bucket = ((value as f64).ln() / GAMMA.ln()).ceil();
            *self.0.entry(bucket as u16).or_default() += times;
        }
    }

    /// Adds the counts of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    /// Returns the number of counted values.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the `q`-quantile of the counted values, within 1 %; `None` if the sketch is empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        let mut upto = 0;
        let bucket = self.0.iter().find(|(_, count_in)| {
            upto += **count_in;
            // Uses the same rank as ClickHouse's quantilesDD.
            upto as f64 > q * (count - 1) as f64
        });
        bucket.map(|(bucket, _)| 2.0 * GAMMA.powi((*bucket).into()) / (GAMMA + 1.0))
    }

    /// Formats the sketch as a JSON object that maps buckets to counts.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(2 + 8 * self.0.len());
        text.push('{');
        for (at, (bucket, count)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}\"{bucket}\":{count}").expect("writing to a String cannot fail");
        }
        text.push('}');
        text
    }

    /// Parses the output of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// Returns an error if `text` has any other form.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_hundredth(mut values in vec(1u64..1 << 40, 1..300), q in 0.01f64..1.0) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            values.sort_unstable();
            let exact = values[(q * (values.len() - 1) as f64) as usize] as f64;
            let estimate = sketch.quantile(q).unwrap();
            // Allows for the rounding of bucket bounds to doubles.
            prop_assert!((estimate - exact).abs() <= exact * 0.010_001, "{estimate} {exact}");
        }

        #[test]
        fn merged_sketches_equal_the_sketch_of_all_values(one in vec(any::<u64>(), 0..50), other in vec(any::<u64>(), 0..50)) {
            let sketch = |values: &mut dyn Iterator<Item = &u64>| {
                let mut sketch = Sketch::default();
                values.for_each(|value| sketch.add(*value));
                sketch
            };
            let whole = sketch(&mut one.iter().chain(&other));
            let mut merged = sketch(&mut one.iter());
            merged.merge(&sketch(&mut other.iter()));
            prop_assert_eq!(&merged, &whole);
            prop_assert_eq!(merged.count(), one.iter().chain(&other).filter(|value| **value > 0).count() as u64);
        }

        #[test]
        fn json_round_trip(values in vec(any::<u64>(), 0..50)) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            prop_assert_eq!(Sketch::from_json(&sketch.to_json()).unwrap(), sketch);
        }
    }

    #[test]
    fn buckets_match_the_schema() {
        let mut sketch = Sketch::default();
        [0, 1, 2, 2, 1_000_000, u64::MAX].into_iter().for_each(|value| sketch.add(value));
        expect_test::expect![[r#"{"0":1,"35":2,"691":1,"2218":1}"#]].assert_eq(&sketch.to_json());
        assert_eq!(Sketch::default().quantile(0.5), None);
    }
}
