//! Reservoir sampling of a connection's measurements: Algorithm R (Vitter, ACM TOMS 11(1), 1985). A
//! hash supplies the randomness, so the same records produce the same window. Only the median is
//! used.
//!
//! The median is exact for up to [`SAMPLES_MAX`] samples. Beyond that it is the median of 15 random
//! samples, whose rank follows Beta(8, 8): 50 % on average, with a standard deviation of 12
//! percentage points.

use twox_hash::XxHash3_64;

/// Maximum number of samples of each kind stored per connection and window. Odd, so that the median
/// is one of them.
pub const SAMPLES_MAX: usize = 15;

const _: () = assert!(SAMPLES_MAX % 2 == 1);

/// Reservoir of samples of one kind.
#[derive(Debug, Default)]
pub(super) struct Samples {
    seen: u32,
    kept: Vec<u64>,
}

impl Samples {
    /// Adds a sample. `key` identifies the connection and seeds the random choice.
    pub(super) fn add(&mut self, key: u64, sample: u64) {
        self.seen = self.seen.saturating_add(1);
        if self.kept.len() < SAMPLES_MAX {
            self.kept.push(sample);
            return;
        }
        let chance = XxHash3_64::oneshot_with_seed(key, &self.seen.to_le_bytes());
        // A random index below the number of samples seen.
        let at = (u128::from(chance) * u128::from(self.seen)) >> u64::BITS;
        if let Some(kept) = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at)) {
            *kept = sample;
        }
    }

    /// Returns the lower median of the stored samples.
    pub(super) fn median(mut self) -> Option<u64> {
        let middle = self.kept.len().checked_sub(1)? / 2;
        Some(*self.kept.select_nth_unstable(middle).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(key: u64, samples: impl Iterator<Item = u64>) -> Option<u64> {
        let mut kept = Samples::default();
        samples.for_each(|sample| kept.add(key, sample));
        kept.median()
    }

    #[test]
    fn median_of_few_samples_is_exact() {
        assert_eq!(median(1, [].into_iter()), None);
        assert_eq!(median(1, [3, 9, 1, 4].into_iter()), Some(3));
        assert_eq!(median(1, (0..15).rev()), Some(7));
    }

    /// Samples increase steadily, so storing only the first or the last ones would shift the median
    /// far off.
    #[test]
    fn median_of_many_samples_is_that_of_a_random_subset() {
        const SEEN: u64 = 10_000;
        const CONNECTIONS: u64 = 4_000;
        let ranks: Vec<_> =
            (0..CONNECTIONS).map(|key| median(key, 0..SEEN).unwrap() as f64 / SEEN as f64).collect();
        let mean = ranks.iter().sum::<f64>() / CONNECTIONS as f64;
        let variance = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / CONNECTIONS as f64;
        // Beta(8, 8) has mean 1/2 and variance 1/68; the bounds are four standard errors.
        assert!((mean - 0.5).abs() < 4.0 * (1.0_f64 / 68.0 / CONNECTIONS as f64).sqrt(), "{mean}");
        assert!((variance * 68.0 - 1.0).abs() < 4.0 * (2.0 / CONNECTIONS as f64).sqrt(), "{variance}");
    }
}
