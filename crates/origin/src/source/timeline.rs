//! Chunk schedule of the looped presentation. Pure except for [`Clock::start`].
//!
//! One pass over the presentation lasts from the earliest track start to the latest track end. Each
//! pass begins at the same instant for all tracks, computed exactly from the pass number in each
//! track's timescale, so tracks never drift apart. If all tracks are equally long, times continue
//! from pass to pass without a gap. A track that ends before the longest one (6 s of video with
//! 6.016 s of AAC) has a gap at the end of each pass, because chunks are sent whole.
//!
//! *Live time* starts at 0 with the first pass, in units of a track's timescale.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::media::ChunkLocation;

/// Seconds as an exact fraction.
#[derive(Debug, Clone, Copy)]
struct Seconds {
    count: u128,
    per_s: u128,
}

impl Seconds {
    /// Returns this duration multiplied by `times`, in units of 1 / `per_s` seconds, rounded down.
    fn ticks(self, times: u64, per_s: u32) -> u64 {
        let ticks = self.count * u128::from(times) * u128::from(per_s) / self.per_s;
        u64::try_from(ticks).expect("no process runs for 2^64 timescale units")
    }

    fn is_after(self, other: Self) -> bool {
        self.count * other.per_s > other.count * self.per_s
    }

    fn minus(self, other: Self) -> Self {
        Self { count: self.count * other.per_s - other.count * self.per_s, per_s: self.per_s * other.per_s }
    }
}

/// The extent of one pass, the same for all tracks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    /// Media time at which the pass begins.
    origin: Seconds,
    period: Seconds,
}

/// A track's chunks and their timescale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) chunks: &'a [ChunkLocation],
    pub(super) per_s: u32,
}

/// Position of a chunk: its pass and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of previous passes.
    pub(super) pass: u64,
    /// Index in the track's table.
    pub(super) index: usize,
}

impl Timeline {
    /// Computes the timeline of the given tracks, each of which has at least one chunk.
    pub(super) fn of<'a>(tables: impl Iterator<Item = Table<'a>> + Clone) -> Self {
        let at = |time: u64, table: Table<'_>| Seconds { count: time.into(), per_s: table.per_s.into() };
        let first = |table: Table<'_>| at(table.chunks[0].decode_time, table);
        let last = |table: Table<'_>| at(table.chunks[table.chunks.len() - 1].decode_end(), table);
        let origin = tables.clone().map(first).reduce(|a, b| if a.is_after(b) { b } else { a });
        let end = tables.map(last).reduce(|a, b| if b.is_after(a) { b } else { a });
        let (Some(origin), Some(end)) = (origin, end) else { unreachable!("there is at least one track") };
        Self { origin, period: end.minus(origin) }
    }

    /// Returns the live time at which the chunk at `position` starts.
    pub(super) fn begin(self, table: Table<'_>, position: Position) -> u64 {
        let in_pass = table.chunks[position.index].decode_time - self.origin.ticks(1, table.per_s);
        self.period.ticks(position.pass, table.per_s) + in_pass
    }

    /// Returns the position of the first chunk that starts at or after `elapsed` with a sync
    /// sample.
    pub(super) fn next_start(self, table: Table<'_>, elapsed: Duration) -> Position {
        let period = duration(self.period.ticks(1, NANOS), NANOS).max(Duration::from_nanos(1));
        let pass =
            u64::try_from(elapsed.as_nanos() / period.as_nanos()).expect("no process runs for 2^64 passes");
        let starts_late_enough =
            |position: &Position| duration(self.begin(table, *position), table.per_s) >= elapsed;
        // The track's first chunk starts with a sync sample. In the pass after the current one, it
        // starts after `elapsed`, so the search is bounded.
        (pass..=pass + 1)
            .flat_map(|pass| (0..table.chunks.len()).map(move |index| Position { pass, index }))
            .filter(|position| table.chunks[position.index].starts_with_sync)
            .find(starts_late_enough)
            .unwrap_or(Position { pass: pass + 2, index: 0 })
    }
}

impl Position {
    /// Returns the position of the next chunk.
    pub(super) fn next(self, table: Table<'_>) -> Self {
        if self.index + 1 < table.chunks.len() {
            Self { index: self.index + 1, ..self }
        } else {
            Self { pass: self.pass + 1, index: 0 }
        }
    }

    /// Returns the chunk's mfhd sequence number, which counts from 1 over all passes and wraps
    /// around.
    pub(super) fn sequence_number(self, table: Table<'_>) -> u32 {
        let before = self.pass.wrapping_mul(table.chunks.len() as u64).wrapping_add(self.index as u64);
        (before as u32).wrapping_add(1)
    }
}

/// A started timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) timeline: Timeline,
    began: Instant,
    began_utc: SystemTime,
}

impl Clock {
    /// Starts the timeline at live time 0 now.
    pub(super) fn start(timeline: Timeline) -> Self {
        Self { timeline, began: Instant::now(), began_utc: SystemTime::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the instant at which live time `ticks` is reached.
    pub(super) fn instant(&self, ticks: u64, per_s: u32) -> Instant {
        self.began + duration(ticks, per_s)
    }

    /// Returns the wall-clock time at live time `ticks`.
    pub(super) fn utc(&self, ticks: u64, per_s: u32) -> SystemTime {
        self.began_utc + duration(ticks, per_s)
    }
}

const NANOS: u32 = 1_000_000_000;

/// Converts `ticks` units of 1 / `per_s` seconds to a duration, rounded down to the nanosecond.
fn duration(ticks: u64, per_s: u32) -> Duration {
    let (whole, part) = (ticks / u64::from(per_s), ticks % u64::from(per_s));
    let nanos = part * u64::from(NANOS) / u64::from(per_s);
    Duration::new(whole, u32::try_from(nanos).expect("less than 10^9 nanoseconds fit in u32"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns contiguous chunks from `first`; those with an index in `sync` start with a sync
    /// sample.
    fn chunks(first: u64, durations: &[u64], sync: &[usize]) -> Vec<ChunkLocation> {
        let mut decode_time = first;
        let chunk = |(index, &duration): (usize, &u64)| {
            let chunk = ChunkLocation::at(decode_time, duration, sync.contains(&index));
            decode_time += duration;
            chunk
        };
        durations.iter().enumerate().map(chunk).collect()
    }

    #[test]
    fn equal_tracks_loop_without_a_gap() {
        let video = chunks(0, &[50, 50], &[0]);
        let audio = chunks(0, &[1024, 976], &[0, 1]);
        let (video, audio) = (Table { chunks: &video, per_s: 100 }, Table { chunks: &audio, per_s: 2000 });
        let timeline = Timeline::of([video, audio].into_iter());
        let times = |table: Table<'_>| {
            let mut position = Position { pass: 0, index: 0 };
            std::iter::repeat_with(|| {
                let begin = timeline.begin(table, position);
                position = position.next(table);
                begin
            })
            .take(5)
            .collect::<Vec<_>>()
        };
        assert_eq!(times(video), [0, 50, 100, 150, 200]);
        assert_eq!(times(audio), [0, 1024, 2000, 3024, 4000]);
    }

    #[test]
    fn pass_spans_earliest_start_to_latest_end() {
        let early = chunks(10, &[90], &[0]);
        let late = chunks(30, &[90], &[0]);
        let (early, late) = (Table { chunks: &early, per_s: 10 }, Table { chunks: &late, per_s: 10 });
        let timeline = Timeline::of([early, late].into_iter());
        let begin = |table, pass| timeline.begin(table, Position { pass, index: 0 });
        assert_eq!((begin(early, 0), begin(late, 0)), (0, 20));
        assert_eq!((begin(early, 1), begin(late, 1)), (110, 130));
    }

    #[test]
    fn resumed_upload_starts_at_the_next_sync_sample() {
        let video = chunks(0, &[1, 1, 1, 1], &[0, 2]);
        let table = Table { chunks: &video, per_s: 1 };
        let timeline = Timeline::of([table].into_iter());
        let next = |ms| timeline.next_start(table, Duration::from_millis(ms));
        assert_eq!(next(0), Position { pass: 0, index: 0 });
        assert_eq!(next(1), Position { pass: 0, index: 2 });
        assert_eq!(next(2000), Position { pass: 0, index: 2 });
        assert_eq!(next(2001), Position { pass: 1, index: 0 });
        assert_eq!(next(9500), Position { pass: 2, index: 2 });
    }

    #[test]
    fn sequence_numbers_continue_over_passes_and_wrap() {
        let video = chunks(0, &[1, 1], &[0]);
        let table = Table { chunks: &video, per_s: 1 };
        assert_eq!(Position { pass: 0, index: 0 }.sequence_number(table), 1);
        assert_eq!(Position { pass: 3, index: 1 }.sequence_number(table), 8);
        assert_eq!(Position { pass: 1 << 31, index: 0 }.sequence_number(table), 1);
    }

    proptest! {
        /// However long a source runs, a track's times never leave the common period or decrease.
        #[test]
        fn times_do_not_drift(pass in 0u64..10_000_000, per_s in 1u32..200_000, other in 1u32..200_000, len in 1u64..1_000_000) {
            let (one, two) = (chunks(0, &[len], &[0]), chunks(0, &[1], &[0]));
            let (one, two) = (Table { chunks: &one, per_s }, Table { chunks: &two, per_s: other });
            let timeline = Timeline::of([one, two].into_iter());
            // Duration of the longer track, as a fraction.
            let is_first = u128::from(len) * u128::from(other) >= u128::from(per_s);
            let (count, of) = if is_first { (len, per_s) } else { (1, other) };
            for table in [one, two] {
                let begin = |pass| timeline.begin(table, Position { pass, index: 0 });
                let exact = u128::from(count) * u128::from(pass) * u128::from(table.per_s);
                prop_assert_eq!(u128::from(begin(pass)), exact / u128::from(of));
                prop_assert!(begin(pass + 1) >= begin(pass) + table.chunks[0].decode_end());
            }
        }
    }
}
