//! The newest records, for followers that come back: who was away for a moment is given what it missed.
//!
//! **Invariant:** a record is put here and handed to the followers under one lock, so one that begins under that lock has each
//! record from its number on once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use thalweg_record::ResponseRecord;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{Numbered, Shared};

/// Records that are kept.
const RECORDS_MAX: usize = 16 * 1024;
/// Bytes that they take, about; the newest stays whatever it takes.
const BYTES_MAX: usize = 32 << 20;

/// The newest records, in order.
#[derive(Debug)]
pub(super) struct Recent {
    records: VecDeque<Numbered>,
    bytes: usize,
    /// When the last follower left, or the edge began.
    pub(super) left: Instant,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { records: VecDeque::new(), bytes: 0, left: Instant::now() }
    }

    /// Adds the newest; the oldest go where there are too many.
    pub(super) fn push(&mut self, record: Numbered) {
        self.bytes += bytes(&record);
        self.records.push_back(record);
        while self.records.len() > RECORDS_MAX || (self.bytes > BYTES_MAX && self.records.len() > 1) {
            self.bytes -= self.records.pop_front().as_deref().map_or(0, bytes);
        }
    }

    /// Those from a number on.
    pub(super) fn from(&self, number: u64) -> VecDeque<Numbered> {
        let first = self.records.partition_point(|record| record.number < number);
        self.records.range(first..).cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        (self.records, self.bytes) = (VecDeque::new(), 0);
    }
}

fn bytes(record: &ResponseRecord) -> usize {
    let lines: usize = record.lines.iter().map(|line| line.text.len()).sum();
    size_of::<ResponseRecord>() + record.host.len() + record.path.len() + lines
}

/// Who follows the records of an edge.
#[derive(Debug)]
pub struct Follower {
    /// Records before that number, which wait for the writer still, are not for it.
    pub(super) from: u64,
    pub(super) missed: VecDeque<Numbered>,
    pub(super) next: broadcast::Receiver<Numbered>,
    pub(super) shared: Arc<Shared>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.recent().left = Instant::now();
    }
}

impl Follower {
    /// The next record.
    ///
    /// # Errors
    /// How many it lagged behind too far for, or that the edge has ended.
    pub async fn recv(&mut self) -> Result<Numbered, RecvError> {
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

    fn record(number: u64, path_bytes: usize) -> Numbered {
        let line = r#"{"v":1,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"duration_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        let mut record = ResponseRecord::from_json(line).unwrap();
        record.path = "/".repeat(path_bytes);
        Numbered { number, record: Arc::new(record) }
    }

    fn numbers(recent: &Recent, from: u64) -> Vec<u64> {
        recent.from(from).iter().map(|record| record.number).collect()
    }

    #[test]
    fn the_newest_are_kept_within_their_bounds() {
        let mut recent = Recent::new();
        for number in 0..RECORDS_MAX as u64 + 10 {
            recent.push(record(2 * number, 1));
        }
        let all = numbers(&recent, 0);
        assert_eq!((all.len(), all[0]), (RECORDS_MAX, 20));
        assert_eq!(numbers(&recent, 32_783), [32_784, 32_786], "a number that was lost is not there");
        recent.push(record(40_000, BYTES_MAX));
        assert_eq!(numbers(&recent, 0), [40_000]);
        recent.push(record(40_001, 1));
        assert_eq!(numbers(&recent, 0), [40_001]);
        assert_eq!(recent.bytes, bytes(&record(0, 1)));
    }
}
