//! DDSketch (Masson, Rim, Lee, VLDB 2019): quantiles of positive numbers within 1 %, in counts that add up over any sets. The one
//! sketch: what the agent keeps, and what control ranks by.
//!
//! Our own, because what is kept is the buckets, as text that SQL can read: sketches-ddsketch gives no access to them but for a
//! binary form of its own.

use std::collections::BTreeMap;
use std::fmt::Write;

/// How much larger each bucket's bound is than the one before: (1 + a) / (1 - a) with an accuracy a of 1 %.
const GAMMA: f64 = 1.01 / 0.99;

/// Counts of values by bucket: bucket i has those above γ^(i-1) and up to γ^i. At most 2219 buckets, since values are below
/// 2^64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch(BTreeMap<u16, u64>);

impl Sketch {
    /// Counts a value; zero is not counted, it has no logarithm.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts a value as often as it was found.
    pub fn add_times(&mut self, value: u64, times: u64) {
        if value > 0 && times > 0 {
            let bucket = ((value as f64).ln() / GAMMA.ln()).ceil();
            *self.0.entry(bucket as u16).or_default() += times;
        }
    }

    /// Counts all that another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    /// How many values it has counted.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The smallest value that at least the part `q` of the values does not exceed, within 1 %; nothing of no values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        let mut upto = 0;
        let bucket = self.0.iter().find(|(_, count_in)| {
            upto += **count_in;
            // The rank that ClickHouse's quantilesDD takes.
            upto as f64 > q * (count - 1) as f64
        });
        bucket.map(|(bucket, _)| 2.0 * GAMMA.powi((*bucket).into()) / (GAMMA + 1.0))
    }

    /// As a JSON object from bucket to count.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(2 + 8 * self.0.len());
        text.push('{');
        for (at, (bucket, count)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}\"{bucket}\":{count}").expect("a String takes every write");
        }
        text.push('}');
        text
    }

    /// Reads [`to_json`](Self::to_json)'s form.
    ///
    /// # Errors
    /// When it is not of that form.
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
            let told = sketch.quantile(q).unwrap();
            // The bucket's bound is met to the accuracy of a double.
            prop_assert!((told - exact).abs() <= exact * 0.010_001, "{told} {exact}");
        }

        #[test]
        fn parts_make_the_whole(one in vec(any::<u64>(), 0..50), other in vec(any::<u64>(), 0..50)) {
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
        fn its_text_is_read_back(values in vec(any::<u64>(), 0..50)) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            prop_assert_eq!(Sketch::from_json(&sketch.to_json()).unwrap(), sketch);
        }
    }

    #[test]
    fn buckets_are_those_of_the_schema() {
        let mut sketch = Sketch::default();
        [0, 1, 2, 2, 1_000_000, u64::MAX].into_iter().for_each(|value| sketch.add(value));
        expect_test::expect![[r#"{"0":1,"35":2,"691":1,"2218":1}"#]].assert_eq(&sketch.to_json());
        assert_eq!(Sketch::default().quantile(0.5), None);
    }
}
