//! Followers: readers of an edge's records, in order.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::coop::consume_budget;

use super::{NumberedRecord, Shared};

/// Maximum number of records that a follower copies at once.
const BATCH_RECORDS_MAX: usize = 256;

/// A handle that receives an edge's records in order.
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    shared: Arc<Shared>,
}

/// Why a follower received no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowError {
    /// The follower lagged so far behind that the edge dropped this many records before the
    /// follower received them.
    Lagged(u64),
    /// The edge has exited.
    Closed,
}

impl fmt::Display for FollowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(lost) => write!(f, "{lost} records were dropped before they were received"),
            Self::Closed => f.write_str("the edge has exited"),
        }
    }
}

impl std::error::Error for FollowError {}

/// Position of a follower.
#[derive(Debug)]
struct Reader {
    /// Number of the first record to return; the writer may still be processing earlier ones.
    from: u64,
    /// Position after the last record copied.
    position: u64,
    /// Records copied and not yet returned.
    batch: VecDeque<NumberedRecord>,
}

impl Reader {
    /// Returns the next record or error; `None` if no record has arrived.
    fn next(&mut self, shared: &Shared) -> Option<Result<NumberedRecord, FollowError>> {
        loop {
            while let Some(record) = self.batch.pop_front() {
                if record.number >= self.from {
                    return Some(Ok(record));
                }
            }
            let recent = shared.recent();
            let lost = recent.first().saturating_sub(self.position);
            if lost > 0 {
                self.position = recent.first();
                return Some(Err(FollowError::Lagged(lost)));
            }
            self.batch.extend(recent.from(self.position).take(BATCH_RECORDS_MAX).cloned());
            if self.batch.is_empty() {
                return recent.is_closed.then_some(Err(FollowError::Closed));
            }
            self.position += self.batch.len() as u64;
        }
    }
}

impl Follower {
    /// Creates a follower that returns the records from `position` on whose number is at least
    /// `from`. The caller must have counted the follower.
    pub(super) fn new(from: u64, position: u64, shared: Arc<Shared>) -> Self {
        Self { reader: Reader { from, position, batch: VecDeque::new() }, shared }
    }

    /// Returns the next record.
    ///
    /// # Errors
    ///
    /// Returns `Lagged` with the number of records this follower lost by lagging, or `Closed` once
    /// the edge has exited.
    pub async fn recv(&mut self) -> Result<NumberedRecord, FollowError> {
        // A follower that catches up finds a record each time, and must not starve other tasks.
        consume_budget().await;
        let Self { reader, shared } = self;
        loop {
            // Most records are already in the batch, so try it before registering for arrivals.
            if let Some(next) = reader.next(shared) {
                return next;
            }
            // Register before the second look, so that no arrival in between is missed.
            let mut arrival = pin!(shared.arrivals.notified());
            arrival.as_mut().enable();
            if let Some(next) = reader.next(shared) {
                return next;
            }
            arrival.await;
        }
    }

    /// Returns the next record or error; `None` if no record has arrived.
    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Option<Result<NumberedRecord, FollowError>> {
        self.reader.next(&self.shared)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut recent = self.shared.recent();
        recent.followers -= 1;
        recent.left = Instant::now();
    }
}
