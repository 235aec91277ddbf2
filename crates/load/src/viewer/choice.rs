//! Track selection by throughput and buffer level.
//!
//! The rule follows hls.js. The throughput estimate is the lower of a fast and a slow exponentially
//! weighted mean (`ewma-bandwidth-estimator.ts`, half-lives of 3 and 9 s of transfer time, used
//! here for both live and on-demand presentations). A track is kept while its bitrate is at most
//! 0.95 of the estimate; a better track is chosen if its bitrate is at most 0.7 of the estimate
//! (`abrBandWidthFactor`, `abrBandWidthUpFactor`). Switching down is immediate when the buffer runs
//! low; switching up requires several segments since the last switch.

use std::time::Duration;

/// Estimate before any measurement, in bits per second: hls.js's `abrEwmaDefaultEstimate`.
pub const ESTIMATE_BITS_PER_S: f64 = 500_000.0;
/// Minimum transfer time of a measurement, which limits the weight of bursts: hls.js's
/// `minDelayMs_`.
pub const TRANSFER_MIN: Duration = Duration::from_millis(50);
/// Half-lives of the two means, in seconds of transfer.
const HALF_LIVES_S: (f64, f64) = (3.0, 9.0);
/// Maximum bitrate of a track to keep, as a share of the throughput.
const SHARE_TO_KEEP: f64 = 0.95;
/// Maximum bitrate of a better track to choose, as a share of the throughput.
const SHARE_TO_RISE: f64 = 0.7;
/// Share of the target buffer below which the buffer counts as low.
const SHARE_LOW: f64 = 0.25;
/// Number of segments after joining during which a low buffer is ignored, because it is still
/// filling: dash.js's `segmentIgnoreCount`.
pub const SEGMENTS_UNTIL_FILLED: u32 = 2;
/// Number of segments required on a track before switching up.
pub const SEGMENTS_BEFORE_RISE: u32 = 3;

/// Throughput estimate and switching state of a viewer.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    fast: Mean,
    slow: Mean,
    segments: u32,
    segments_since_switch: u32,
}

/// An exponentially weighted mean, corrected for its initial value of 0.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    weight_s: f64,
}

impl Mean {
    fn add(&mut self, half_life_s: f64, weight_s: f64, value: f64) {
        let kept = 0.5f64.powf(weight_s / half_life_s);
        self.sum = self.sum * kept + value * (1.0 - kept);
        self.weight_s += weight_s;
    }

    fn get(&self, half_life_s: f64) -> Option<f64> {
        let known = 1.0 - 0.5f64.powf(self.weight_s / half_life_s);
        (known > 0.0).then(|| self.sum / known)
    }
}

impl Choice {
    /// Adds a measurement: bytes of a segment and their transfer time, excluding waits for media
    /// that did not exist yet.
    pub fn measured(&mut self, bytes: u64, transfer: Duration) {
        let transfer_s = transfer.max(TRANSFER_MIN).as_secs_f64();
        let bits_per_s = bytes as f64 * 8.0 / transfer_s;
        self.fast.add(HALF_LIVES_S.0, transfer_s, bits_per_s);
        self.slow.add(HALF_LIVES_S.1, transfer_s, bits_per_s);
        self.segments = self.segments.saturating_add(1);
        self.segments_since_switch = self.segments_since_switch.saturating_add(1);
    }

    /// Returns the expected throughput in bits per second, or `None` before any measurement.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        Some(self.fast.get(HALF_LIVES_S.0)?.min(self.slow.get(HALF_LIVES_S.1)?))
    }

    /// Returns the first track to play. `bitrates` are in bits per second, ascending and not empty.
    #[must_use]
    pub fn first(&self, bitrates: &[u64]) -> usize {
        highest_below(bitrates, SHARE_TO_RISE * self.estimate().unwrap_or(ESTIMATE_BITS_PER_S))
    }

    /// Returns the index of the track for the next segment. `current` is the index of the current
    /// track, `buffered` the duration of the buffered media, and `wanted` the target duration.
    /// `bitrates` are ascending and not empty.
    pub fn next(&mut self, bitrates: &[u64], current: usize, buffered: Duration, wanted: Duration) -> usize {
        let estimate = self.estimate().unwrap_or(ESTIMATE_BITS_PER_S);
        let is_low = self.segments > SEGMENTS_UNTIL_FILLED && buffered < wanted.mul_f64(SHARE_LOW);
        let fits = highest_below(bitrates, SHARE_TO_KEEP * estimate);
        let better = highest_below(bitrates, SHARE_TO_RISE * estimate);
        let chosen = match () {
            () if is_low => fits.min(current.saturating_sub(1)),
            () if fits < current => fits,
            () if self.segments_since_switch >= SEGMENTS_BEFORE_RISE => better.max(current),
            () => current,
        };
        if chosen != current {
            self.segments_since_switch = 0;
        }
        chosen
    }
}

/// Returns the index of the highest bitrate not above `bits_per_s`, or of the lowest if all are
/// above it.
fn highest_below(bitrates: &[u64], bits_per_s: f64) -> usize {
    bitrates.partition_point(|bitrate| *bitrate as f64 <= bits_per_s).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LADDER: [u64; 4] = [400_000, 1_000_000, 3_000_000, 6_000_000];
    const WANTED: Duration = Duration::from_secs(4);

    fn at(bits_per_s: u64, seconds: u64) -> Choice {
        let mut choice = Choice::default();
        for _ in 0..seconds {
            choice.measured(bits_per_s / 8, Duration::from_secs(1));
        }
        choice
    }

    #[test]
    fn estimate_is_the_lower_mean() {
        assert_eq!(Choice::default().estimate(), None);
        let estimate = at(2_000_000, 1).estimate().unwrap();
        assert!((estimate - 2e6).abs() < 1.0, "{estimate}");
        // After a fall the fast mean is lower; after a rise, the slow mean is.
        let mut falls = at(8_000_000, 30);
        falls.measured(1_000_000 / 8 * 6, Duration::from_secs(6));
        assert!((falls.estimate().unwrap() - 2.75e6).abs() < 1e4);
        let mut rises = at(1_000_000, 30);
        rises.measured(8_000_000 / 8 * 6, Duration::from_secs(6));
        assert!(rises.estimate().unwrap() < 4e6);
    }

    #[test]
    fn switches_up_only_after_several_segments() {
        let mut choice = Choice::default();
        assert_eq!(choice.first(&LADDER), 0);
        let taken: Vec<usize> = (0..5)
            .scan(0, |current, _| {
                choice.measured(10_000_000 / 8, Duration::from_secs(1));
                *current = choice.next(&LADDER, *current, WANTED, WANTED);
                Some(*current)
            })
            .collect();
        assert_eq!(taken, [0, 0, 3, 3, 3]);
    }

    #[test]
    fn switches_down_immediately() {
        assert_eq!(at(10_000_000, 9).next(&LADDER, 3, Duration::ZERO, WANTED), 2);
        assert_eq!(at(1_200_000, 9).next(&LADDER, 3, WANTED, WANTED), 1);
        assert_eq!(at(1_200_000, 9).next(&LADDER, 3, Duration::ZERO, WANTED), 1);
        // An empty buffer does not count as low just after joining.
        assert_eq!(at(10_000_000, 2).next(&LADDER, 3, Duration::ZERO, WANTED), 3);
        assert_eq!(at(100_000, 9).next(&LADDER, 0, Duration::ZERO, WANTED), 0);
    }

    #[test]
    fn keeping_a_track_requires_less_throughput_than_choosing_it() {
        let mut choice = at(3_500_000, 9);
        assert_eq!(choice.next(&LADDER, 1, WANTED, WANTED), 1);
        assert_eq!(choice.next(&LADDER, 2, WANTED, WANTED), 2);
    }

    proptest! {
        #[test]
        fn any_measurement_selects_a_valid_track(
            transfers in prop::collection::vec((any::<u64>(), 0..100_000u64, 0..9000u64), 0..50),
            bitrates in prop::collection::vec(any::<u64>(), 1..10),
        ) {
            let mut bitrates = bitrates;
            bitrates.sort_unstable();
            let mut choice = Choice::default();
            let mut current = choice.first(&bitrates);
            for (bytes, transfer_ms, buffered_ms) in transfers {
                choice.measured(bytes, Duration::from_millis(transfer_ms));
                current = choice.next(&bitrates, current, Duration::from_millis(buffered_ms), WANTED);
                prop_assert!(current < bitrates.len());
            }
        }
    }
}
