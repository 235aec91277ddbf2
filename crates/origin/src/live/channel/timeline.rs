//! Epoch grid: converts between media time, segment number and wall clock.

use thalweg_media::presentation::{micros, rescale};

/// Immutable grid of a published epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    /// The reference track's timescale, used by the media times below.
    pub(super) timescale: u32,
    /// Media time at the start of segment `start_number`.
    pub(super) media_start: u64,
    /// Duration of a segment.
    pub(super) segment: u64,
    /// Duration of the longest chunk seen before publication.
    pub(super) chunk: u64,
    /// Wall-clock time of `media_start`. A chunk that ends at media time *t* is expected to arrive
    /// at the wall-clock time of *t*.
    pub(super) start_us: i64,
    /// Number of the first segment.
    pub(super) start_number: u64,
    /// Offset from received to served media times.
    pub(super) shift: i64,
}

impl Timeline {
    pub(super) fn segment_us(&self) -> i64 {
        signed(micros(self.segment, self.timescale))
    }

    pub(super) fn chunk_us(&self) -> i64 {
        signed(micros(self.chunk, self.timescale))
    }

    /// Returns `shift` in units of `timescale`.
    pub(super) fn shift(&self, timescale: u32) -> i64 {
        let by = rescale(self.shift.unsigned_abs(), self.timescale, timescale).cast_signed();
        if self.shift < 0 { -by } else { by }
    }

    /// Converts a received media time to the served one.
    pub(super) fn served(&self, time: u64, timescale: u32) -> u64 {
        time.saturating_add_signed(self.shift(timescale))
    }

    /// Returns the served media time at wall-clock time `wall_us`, in units of `timescale`; before
    /// the epoch's start, the media time at that start.
    pub(super) fn served_time_at(&self, wall_us: i64, timescale: u32) -> i64 {
        let start = rescale(self.served(self.media_start, self.timescale), self.timescale, timescale);
        let since = rescale((wall_us - self.start_us).max(0).cast_unsigned(), 1_000_000, timescale);
        start.saturating_add(since).cast_signed()
    }

    /// Returns the media time at the start of segment `number`, to the nearest unit of `timescale`.
    pub(super) fn grid(&self, number: u64, timescale: u32) -> u64 {
        let steps = u128::from(number.saturating_sub(self.start_number));
        let time = u128::from(self.media_start) + steps * u128::from(self.segment);
        let (from, to) = (u128::from(self.timescale), u128::from(timescale));
        u64::try_from((time * to + from / 2) / from).unwrap_or(u64::MAX)
    }

    /// Returns the number of the segment whose start is nearest to a media time.
    pub(super) fn number_at(&self, time: u64, timescale: u32) -> u64 {
        let (own, other) = (i128::from(self.timescale), i128::from(timescale));
        // Computed in units of 1 / (epoch timescale × track timescale), so that nothing is rounded.
        let since = i128::from(time) * own - i128::from(self.media_start) * other;
        let segment = i128::from(self.segment) * other;
        let steps = (2 * since + segment).div_euclid(2 * segment).max(0);
        self.start_number.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX))
    }

    /// Returns the number of the first segment that starts at or after wall-clock time `wall_us`,
    /// with a tolerance of a hundredth of a segment.
    pub(super) fn number_from(&self, wall_us: i64) -> u64 {
        let segment_us = self.segment_us().max(1);
        let steps = (wall_us - self.start_us - segment_us / 100).max(0) / segment_us + 1;
        self.start_number.saturating_add(steps.cast_unsigned())
    }

    /// Returns the wall-clock time of a media time.
    pub(super) fn wall_us(&self, time: u64, timescale: u32) -> i64 {
        self.start_us + signed(micros(time, timescale)) - signed(micros(self.media_start, self.timescale))
    }

    /// Returns the wall-clock time of the start of segment `number`.
    pub(super) fn segment_wall_us(&self, number: u64) -> i64 {
        self.wall_us(self.grid(number, self.timescale), self.timescale)
    }
}

/// Converts microseconds of media time to `i64`. A value that does not fit becomes a quarter of the
/// maximum, so that later sums do not overflow.
pub(super) fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::Timeline;
    use proptest::prelude::*;

    fn timeline() -> Timeline {
        // Segments of 60 frames, each lasting 1001/30,000 s.
        Timeline {
            timescale: 30_000,
            media_start: 3003,
            segment: 60_060,
            chunk: 15_015,
            start_us: 0,
            start_number: 7,
            shift: 0,
        }
    }

    #[test]
    fn time_maps_to_the_nearest_segment_start() {
        let t = timeline();
        assert_eq!([0, 3003, 33_032, 33_033, 63_063].map(|time| t.number_at(time, 30_000)), [7, 7, 7, 8, 8]);
    }

    #[test]
    fn grid_does_not_drift_in_another_timescale() {
        let t = timeline();
        // The media starts at 0.1001 s, so after 1,000,000 segments of 2.002 s the grid is at
        // 2,002,000.1001 s.
        assert_eq!(t.grid(1_000_007, 44_100), 88_288_204_414);
        assert_eq!(t.segment_wall_us(1_000_007), 2_002_000_000_000);
    }

    proptest! {
        #[test]
        fn number_is_the_inverse_of_grid(number in 7u64..1 << 32, timescale in 1000u32..10_000_000) {
            let t = timeline();
            prop_assert_eq!(t.number_at(t.grid(number, timescale), timescale), number);
        }
    }
}
