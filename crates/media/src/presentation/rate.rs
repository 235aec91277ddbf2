//! Bitrates measured from segment sizes.
//!
//! The peak is defined as for `BANDWIDTH` in RFC 8216bis §4.4.6.2: the largest bitrate of any
//! contiguous run of segments lasting 0.5 to 1.5 times the target duration. A short last segment
//! alone does not count. The peak also satisfies DASH's `@bandwidth` with one segment of buffer.

use crate::track::Segment;

/// Maximum segments per run. Only tracks with extremely uneven segments have more in 1.5 target
/// durations.
const RUN_SEGMENTS_MAX: usize = 64;

/// Bits per second, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bitrate {
    /// Bitrate over all segments.
    pub average: u64,
    /// Largest bitrate over a run of segments; see the module documentation.
    pub peak: u64,
}

/// Measures the bitrates of `segments`, whose durations are in `timescale`.
pub fn measure(segments: &[Segment], timescale: u32) -> Bitrate {
    let sizes: Vec<(u64, u64)> = segments.iter().map(|s| (s.size, s.duration)).collect();
    measure_sizes(&sizes, timescale)
}

/// Measures the bitrates of segments given as (bytes, duration).
pub fn measure_sizes(segments: &[(u64, u64)], timescale: u32) -> Bitrate {
    let bytes: u64 = segments.iter().map(|s| s.0).sum();
    let duration: u64 = segments.iter().map(|s| s.1).sum();
    let average = bits_per_second(bytes, duration, timescale);
    let target = segments.iter().map(|s| s.1).max().unwrap_or(0);
    let peak = (0..segments.len()).map(|i| peak_from(&segments[i..], target, timescale)).max().unwrap_or(0);
    Bitrate { average, peak: peak.max(average) }
}

/// Returns the largest bitrate of any run that begins with the first segment.
fn peak_from(segments: &[(u64, u64)], target: u64, timescale: u32) -> u64 {
    let (mut bytes, mut duration, mut peak) = (0, 0, 0);
    for segment in segments.iter().take(RUN_SEGMENTS_MAX) {
        bytes += segment.0;
        duration += segment.1;
        if duration * 2 > target * 3 {
            break;
        }
        if duration * 2 >= target {
            peak = peak.max(bits_per_second(bytes, duration, timescale));
        }
    }
    peak
}

fn bits_per_second(bytes: u64, duration: u64, timescale: u32) -> u64 {
    let bits = u128::from(bytes) * 8 * u128::from(timescale);
    let duration = u128::from(duration.max(1));
    u64::try_from(bits.div_ceil(duration)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_last_segment_does_not_set_the_peak() {
        // Two segments of 2 s (1000 B and 1500 B), then one of 0.1 s (900 B). The last is shorter
        // than half the 2 s target, so it counts only in a run: 2400 B in 2.1 s is the peak.
        let rate = measure_sizes(&[(1000, 20), (1500, 20), (900, 1)], 10);
        assert_eq!(rate, Bitrate { average: 6635, peak: 9143 });
    }

    #[test]
    fn peak_run_is_at_most_one_and_a_half_targets() {
        let rate = measure_sizes(&[(100, 10), (100, 10), (800, 10), (100, 10)], 10);
        assert_eq!(rate, Bitrate { average: 2200, peak: 6400 });
    }

    #[test]
    fn empty_track_has_zero_bitrate() {
        assert_eq!(measure_sizes(&[], 1000), Bitrate::default());
    }
}
