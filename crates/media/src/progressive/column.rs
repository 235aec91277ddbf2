//! One value per sample, in the smallest of three forms.
//!
//! | form | bytes | chosen for |
//! |---|---|---|
//! | runs | 8 per run | durations, and flags of long groups of pictures |
//! | palette of at most 256 values | 1 per sample | composition offsets |
//! | packed | 1 to 4 per sample, as the largest value needs | sizes |

use std::collections::BTreeSet;

/// Maximum values in a palette, which a byte can number.
const PALETTE_MAX: usize = 256;
/// Size of one run in memory, in bytes.
const RUN_BYTES: usize = 8;

/// One 32-bit value per sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    /// Equal values in a row: the sample after the last of each run, and the run's value.
    Runs { ends: Vec<u32>, values: Vec<u32> },
    /// The number of each sample's value in `values`.
    Palette { values: Vec<u32>, at: Vec<u8> },
    /// The low bytes of each value, least significant first.
    Packed { width: u8, bytes: Vec<u8> },
}

/// Collects the values of a column as runs.
#[derive(Debug, Default)]
pub(super) struct ColumnBuilder {
    ends: Vec<u32>,
    values: Vec<u32>,
}

impl ColumnBuilder {
    /// Returns the number of samples so far.
    pub(super) fn count(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Adds `count` samples with the same value. The caller limits the total.
    pub(super) fn push(&mut self, value: u32, count: u32) {
        if count == 0 {
            return;
        }
        let end = self.count().saturating_add(count);
        match (self.values.last(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if *last == value => *last_end = end,
            _ => {
                self.values.push(value);
                self.ends.push(end);
            }
        }
    }

    /// Returns the column in its smallest form.
    pub(super) fn finish(mut self) -> Column {
        let count = self.count() as usize;
        let mut palette = BTreeSet::new();
        for value in &self.values {
            palette.insert(*value);
            if palette.len() > PALETTE_MAX {
                break;
            }
        }
        let largest = self.values.iter().copied().max().unwrap_or(0);
        let width = (4 - largest.leading_zeros() / 8).max(1) as u8;
        let of_runs = RUN_BYTES * self.values.len();
        let of_palette = if palette.len() > PALETTE_MAX { usize::MAX } else { count + 4 * palette.len() };
        let of_packed = count * usize::from(width);
        if of_runs <= of_palette.min(of_packed) {
            self.ends.shrink_to_fit();
            self.values.shrink_to_fit();
            return Column::Runs { ends: self.ends, values: self.values };
        }
        if of_palette <= of_packed {
            let values: Vec<u32> = palette.into_iter().collect();
            let number = |value: u32| values.partition_point(|v| *v < value) as u8;
            let at = self.expand(count, 1, |value, at| at.push(number(value)));
            return Column::Palette { values, at };
        }
        let kept = usize::from(width);
        let bytes = self.expand(count, kept, |value, bytes| bytes.extend(&value.to_le_bytes()[..kept]));
        Column::Packed { width, bytes }
    }

    fn expand(&self, count: usize, width: usize, write: impl Fn(u32, &mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * width);
        let mut start = 0;
        for (end, value) in self.ends.iter().zip(&self.values) {
            (start..*end).for_each(|_| write(*value, &mut bytes));
            start = *end;
        }
        bytes
    }
}

impl Column {
    /// Returns the values from sample `first` on.
    pub(super) fn values_from(&self, first: u32) -> Values<'_> {
        let run = match self {
            Self::Runs { ends, .. } => ends.partition_point(|end| *end <= first),
            Self::Palette { .. } | Self::Packed { .. } => 0,
        };
        Values { column: self, sample: first, run }
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Runs { ends, .. } => RUN_BYTES * ends.len(),
            Self::Palette { values, at } => 4 * values.len() + at.len(),
            Self::Packed { bytes, .. } => bytes.len(),
        }
    }
}

/// Iterates over the values of a column.
#[derive(Debug, Clone)]
pub(super) struct Values<'a> {
    column: &'a Column,
    sample: u32,
    run: usize,
}

impl Iterator for Values<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let sample = self.sample as usize;
        let value = match self.column {
            Column::Runs { ends, values } => {
                if ends.get(self.run).is_some_and(|end| *end <= self.sample) {
                    self.run += 1;
                }
                *values.get(self.run)?
            }
            Column::Palette { values, at } => values[usize::from(*at.get(sample)?)],
            Column::Packed { width, bytes } => {
                let width = usize::from(*width);
                let low = bytes.get(sample * width..)?.get(..width)?;
                low.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
            }
        };
        self.sample += 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(values: &[u32]) -> Column {
        let mut builder = ColumnBuilder::default();
        values.iter().for_each(|value| builder.push(*value, 1));
        builder.finish()
    }

    #[test]
    fn smallest_form_is_chosen() {
        let constant = column(&[7; 1000]);
        assert_eq!(constant, Column::Runs { ends: vec![1000], values: vec![7] });
        let alternating: Vec<u32> = (0..1000).map(|i| if i % 2 == 0 { u32::MAX } else { 3 }).collect();
        assert_eq!(column(&alternating).memory_bytes(), 1008);
        let sizes: Vec<u32> = (0..1000).map(|i| 300 + i).collect();
        assert_eq!(column(&sizes).memory_bytes(), 2000);
        assert_eq!(column(&[]).values_from(0).next(), None);
    }

    proptest! {
        #[test]
        fn values_come_back(
            values in prop_oneof![
                prop::collection::vec(any::<u32>(), 0..600),
                prop::collection::vec(0u32..3, 0..600),
                prop::collection::vec(0u32..300, 0..600),
                prop::collection::vec(0u32..70_000, 0..600),
            ],
            first in 0usize..600,
        ) {
            let first = first.min(values.len());
            let back: Vec<u32> = column(&values).values_from(first as u32).collect();
            prop_assert_eq!(&back[..], &values[first..]);
        }
    }
}
