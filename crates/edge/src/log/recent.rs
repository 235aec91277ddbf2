//! Recent records, kept for followers that lag or reconnect.
//!
//! A record is kept for [`RecordsKept::time`], or less if the records exceed
//! [`RecordsKept::bytes_max`]. Each record has a position: the number of records kept before it
//! since the edge started. Followers read by position.
//!
//! **Invariant:** a follower that reads on from the position after its last record gets each record
//! once, or the number of records dropped in between.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thalweg_record::{ResponseRecord, Steered};

use super::NumberedRecord;

/// Approximate memory used by a record's short strings and allocations, in bytes.
const OVERHEAD_BYTES: usize = 128;

/// Limits on the records kept for followers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordsKept {
    /// Time for which a record is kept.
    pub(crate) time: Duration,
    /// Approximate memory limit, in bytes; the newest record is kept even if it is larger.
    pub(crate) bytes_max: usize,
}

/// The most recent records, in order.
#[derive(Debug)]
pub(super) struct Recent {
    records: VecDeque<(Instant, NumberedRecord)>,
    /// Position of the oldest record.
    first: u64,
    bytes: usize,
    pub(super) limits: RecordsKept,
    /// Number of connected followers.
    pub(super) followers: usize,
    /// When the last follower disconnected or, if none has connected yet, when the edge started.
    pub(super) left: Instant,
    /// Whether records are kept, because the log has a follower or one may reconnect soon.
    pub(super) is_kept: bool,
    /// Whether the writer has exited.
    pub(super) is_closed: bool,
}

impl Recent {
    pub(super) fn new(limits: RecordsKept) -> Self {
        Self {
            records: VecDeque::new(),
            first: 0,
            bytes: 0,
            limits,
            followers: 0,
            left: Instant::now(),
            is_kept: true,
            is_closed: false,
        }
    }

    /// Appends a record, and drops the oldest ones above the limits. `now` must not decrease.
    pub(super) fn push(&mut self, record: NumberedRecord, now: Instant) {
        self.bytes += bytes(&record);
        self.records.push_back((now, record));
        let exceeds = |it: &Self| it.bytes > it.limits.bytes_max || it.age(now) > it.limits.time;
        while self.records.len() > 1 && exceeds(self) {
            let Some((_, oldest)) = self.records.pop_front() else { break };
            self.bytes -= bytes(&oldest);
            self.first += 1;
        }
    }

    /// Returns the age of the oldest record; zero without records.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.records.front().map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// Returns the approximate memory used by the records, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the position of the oldest record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position after the newest record.
    pub(super) fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Returns the position of the first record numbered `number` or above.
    pub(super) fn position(&self, number: u64) -> u64 {
        self.first + self.records.partition_point(|(_, record)| record.number < number) as u64
    }

    /// Returns the records from `position` on, which must not be below [`Recent::first`].
    pub(super) fn from(&self, position: u64) -> impl Iterator<Item = &NumberedRecord> {
        let skipped = usize::try_from(position - self.first).unwrap_or(usize::MAX);
        self.records.range(skipped.min(self.records.len())..).map(|(_, record)| record)
    }

    /// Drops all records, and keeps none until a follower connects.
    pub(super) fn stop_keeping(&mut self) {
        self.first = self.end();
        (self.records, self.bytes, self.is_kept) = (VecDeque::new(), 0, false);
    }
}

/// Returns the approximate memory used by a record, in bytes.
fn bytes(record: &ResponseRecord) -> usize {
    let lines: usize = record.lines.iter().map(|line| line.text.len()).sum();
    let steered = record.steered.as_ref().map_or(0, steered_bytes);
    size_of::<ResponseRecord>() + OVERHEAD_BYTES + record.host.len() + record.path.len() + lines + steered
}

fn steered_bytes(steered: &Steered) -> usize {
    let Steered { rule, experiment, arm, refused, .. } = steered;
    [rule, experiment, arm, refused].into_iter().flatten().map(String::len).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Config;

    fn record(number: u64, path_bytes: usize) -> NumberedRecord {
        let line = r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"written_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        let mut record = ResponseRecord::from_json(line).unwrap();
        record.path = "/".repeat(path_bytes);
        NumberedRecord { number, record: Arc::new(record) }
    }

    fn numbers(recent: &Recent, from: u64) -> Vec<u64> {
        recent.from(recent.position(from)).map(|record| record.number).collect()
    }

    #[test]
    fn records_are_kept_for_the_time() {
        let limits = RecordsKept { time: Duration::from_secs(10), bytes_max: usize::MAX };
        let (mut recent, start) = (Recent::new(limits), Instant::now());
        for at_s in 0..=30 {
            recent.push(record(2 * at_s, 1), start + Duration::from_secs(at_s));
            let all: Vec<_> = (at_s.saturating_sub(10)..=at_s).map(|second| 2 * second).collect();
            assert_eq!(numbers(&recent, 0), all, "after {at_s} s");
            assert_eq!(recent.age(start + Duration::from_secs(at_s)), Duration::from_secs(at_s.min(10)));
        }
        assert_eq!((recent.first(), recent.end()), (20, 31));
        assert_eq!(numbers(&recent, 57), [58, 60], "a lost number is skipped");
        recent.stop_keeping();
        assert_eq!((recent.first(), recent.end(), recent.bytes()), (31, 31, 0));
    }

    #[test]
    fn newest_records_are_kept_within_the_memory() {
        let limits = RecordsKept { time: Duration::MAX, bytes_max: 3 * bytes(&record(0, 100)) };
        let (mut recent, now) = (Recent::new(limits), Instant::now());
        (0..10).for_each(|number| recent.push(record(number, 100), now));
        assert_eq!((numbers(&recent, 0), recent.first()), (vec![7, 8, 9], 7));
        recent.push(record(10, limits.bytes_max), now);
        assert_eq!(numbers(&recent, 0), [10]);
        recent.push(record(11, 1), now);
        assert_eq!((numbers(&recent, 0), recent.bytes()), (vec![11], bytes(&record(0, 1))));
    }

    /// An agent restarts within a few seconds; an edge serves 10,000 requests per second.
    #[test]
    fn default_memory_holds_ten_seconds_at_ten_thousand_records_per_second() {
        const RECORDS: u64 = 100_000;
        let Config { records_kept, records_kept_bytes_max, .. } = Config::default();
        let bytes_max = usize::try_from(records_kept_bytes_max).unwrap();
        let limits = RecordsKept { time: records_kept, bytes_max };
        let (mut recent, start) = (Recent::new(limits), Instant::now());
        // All records have the same path, of a typical length.
        let one = record(0, 100);
        for number in 0..RECORDS {
            let now = start + Duration::from_micros(100) * u32::try_from(number).unwrap();
            recent.push(NumberedRecord { number, ..one.clone() }, now);
        }
        assert_eq!(recent.position(0), 0);
        assert_eq!(recent.end() - recent.first(), RECORDS);
    }
}
