//! Recent records, kept for followers that reconnect.
//!
//! **Invariant:** a record is stored here and sent to followers under one lock. A follower that
//! subscribes under the same lock therefore gets each record from its start number on exactly once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use thalweg_record::ResponseRecord;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{NumberedRecord, Shared};

/// Maximum number of records to keep.
const RECORDS_MAX: usize = 16 * 1024;
/// Approximate memory limit for the kept records, in bytes; the newest record is kept even if it is
/// larger.
const BYTES_MAX: usize = 32 << 20;

/// The most recent records, in order.
#[derive(Debug)]
pub(super) struct Recent {
    records: VecDeque<NumberedRecord>,
    bytes: usize,
    /// When the last follower disconnected or, if none has connected yet, when the edge started.
    pub(super) left: Instant,
    /// Whether records are kept, because the log has a follower or one may reconnect soon.
    pub(super) is_kept: bool,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { records: VecDeque::new(), bytes: 0, left: Instant::now(), is_kept: true }
    }

    /// Appends a record, and drops the oldest ones above the limits.
    pub(super) fn push(&mut self, record: NumberedRecord) {
        self.bytes += bytes(&record);
        self.records.push_back(record);
        while self.records.len() > RECORDS_MAX || (self.bytes > BYTES_MAX && self.records.len() > 1) {
            self.bytes -= self.records.pop_front().as_deref().map_or(0, bytes);
        }
    }

    /// Returns the records from `number` on.
    pub(super) fn from(&self, number: u64) -> VecDeque<NumberedRecord> {
        let first = self.records.partition_point(|record| record.number < number);
        self.records.range(first..).cloned().collect()
    }

    /// Drops all records, and keeps none until a follower connects.
    pub(super) fn stop_keeping(&mut self) {
        (self.records, self.bytes, self.is_kept) = (VecDeque::new(), 0, false);
    }
}

fn bytes(record: &ResponseRecord) -> usize {
    let lines: usize = record.lines.iter().map(|line| line.text.len()).sum();
    size_of::<ResponseRecord>() + record.host.len() + record.path.len() + lines
}

/// A handle that receives an edge's records in order.
#[derive(Debug)]
pub struct Follower {
    /// Number of the first record to return; the writer may still be processing earlier ones.
    pub(super) from: u64,
    pub(super) missed: VecDeque<NumberedRecord>,
    pub(super) next: broadcast::Receiver<NumberedRecord>,
    pub(super) shared: Arc<Shared>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.recent().left = Instant::now();
    }
}

impl Follower {
    /// Returns the next record.
    ///
    /// # Errors
    ///
    /// Returns `Lagged` with the number of records this follower lost by lagging, or `Closed` once
    /// the edge has exited.
    pub async fn recv(&mut self) -> Result<NumberedRecord, RecvError> {
        if let Some(missed) = self.missed.pop_front() {
            return Ok(missed);
        }
        loop {
            let next = self.next.recv().await?;
            if next.number >= self.from {
                return Ok(next);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record(number: u64, path_bytes: usize) -> NumberedRecord {
        let line = r#"{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"written_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        let mut record = ResponseRecord::from_json(line).unwrap();
        record.path = "/".repeat(path_bytes);
        NumberedRecord { number, record: Arc::new(record) }
    }

    fn numbers(recent: &Recent, from: u64) -> Vec<u64> {
        recent.from(from).iter().map(|record| record.number).collect()
    }

    #[test]
    fn newest_records_are_kept_within_limits() {
        let mut recent = Recent::new();
        for number in 0..RECORDS_MAX as u64 + 10 {
            recent.push(record(2 * number, 1));
        }
        let all = numbers(&recent, 0);
        assert_eq!((all.len(), all[0]), (RECORDS_MAX, 20));
        assert_eq!(numbers(&recent, 32_783), [32_784, 32_786], "a lost number is skipped");
        recent.push(record(40_000, BYTES_MAX));
        assert_eq!(numbers(&recent, 0), [40_000]);
        recent.push(record(40_001, 1));
        assert_eq!(numbers(&recent, 0), [40_001]);
        assert_eq!(recent.bytes, bytes(&record(0, 1)));
    }
}
