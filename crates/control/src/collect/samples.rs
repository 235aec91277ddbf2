//! A few of a connection's samples, each kept with the same chance: Algorithm R (Vitter, ACM TOMS 11(1), 1985), with a hash for chance, so that
//! the same records make the same window. Only their median is asked for.
//!
//! Of up to [`SAMPLES_MAX`] it is exact. Of more it is the middle of 15 drawn from them, whose rank among all is distributed as
//! Beta(8, 8): on average the middle, with a standard deviation of 12 percentage points.

use twox_hash::XxHash3_64;

/// Samples of a connection in a window that are kept, of each kind; odd, so that one is in the middle.
pub const SAMPLES_MAX: usize = 15;

const _: () = assert!(SAMPLES_MAX % 2 == 1);

/// Samples of one kind.
#[derive(Debug, Default)]
pub(super) struct Samples {
    seen: u32,
    kept: Vec<u64>,
}

impl Samples {
    /// Adds one; `key` is the connection's.
    pub(super) fn add(&mut self, key: u64, sample: u64) {
        self.seen = self.seen.saturating_add(1);
        if self.kept.len() < SAMPLES_MAX {
            self.kept.push(sample);
            return;
        }
        let chance = XxHash3_64::oneshot_with_seed(key, &self.seen.to_le_bytes());
        // One of as many places as samples were seen.
        let at = (u128::from(chance) * u128::from(self.seen)) >> u64::BITS;
        if let Some(kept) = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at)) {
            *kept = sample;
        }
    }

    /// The lower median of those that are kept.
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
    fn the_median_of_few_is_exact() {
        assert_eq!(median(1, [].into_iter()), None);
        assert_eq!(median(1, [3, 9, 1, 4].into_iter()), Some(3));
        assert_eq!(median(1, (0..15).rev()), Some(7));
    }

    /// Also where they rise all the time, so that those that come first or last alone would be far off.
    #[test]
    fn the_median_of_many_is_that_of_a_draw() {
        const SEEN: u64 = 10_000;
        const CONNECTIONS: u64 = 4_000;
        let ranks: Vec<_> =
            (0..CONNECTIONS).map(|key| median(key, 0..SEEN).unwrap() as f64 / SEEN as f64).collect();
        let mean = ranks.iter().sum::<f64>() / CONNECTIONS as f64;
        let variance = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / CONNECTIONS as f64;
        // Beta(8, 8) has the mean 1/2 and the variance 1/68; four standard errors of each.
        assert!((mean - 0.5).abs() < 4.0 * (1.0_f64 / 68.0 / CONNECTIONS as f64).sqrt(), "{mean}");
        assert!((variance * 68.0 - 1.0).abs() < 4.0 * (2.0 / CONNECTIONS as f64).sqrt(), "{variance}");
    }
}
