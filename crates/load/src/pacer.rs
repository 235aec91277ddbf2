//! Pacer for the open model: lets requests start when due, whether or not earlier ones have
//! completed.
//!
//! Free clients wait for a ticket. A ticket's due time is fixed, so a request that starts late
//! because no client was free is still measured from its due time. A separate thread sleeps until
//! the next ticket is due, which is accurate to tens of microseconds; the runtime's timer has a
//! resolution of one millisecond.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use tokio::sync::Semaphore;

use super::schedule::Rate;

/// Maximum sleep before the thread checks whether to stop.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Maximum distinct waiting times reported for unsent requests.
const STEPS: u64 = 10_000;

/// Issues the tickets of a run.
#[derive(Debug)]
pub(super) struct Pacer {
    rate: Rate,
    started: Instant,
    /// Number of tickets, and number of clients.
    most: (u64, usize),
    due: Semaphore,
    taken: AtomicU64,
    is_over: AtomicBool,
}

impl Pacer {
    /// Creates a pacer with `most.0` tickets for `most.1` clients.
    pub(super) fn new(rate: Rate, started: Instant, most: (u64, usize)) -> Self {
        let (taken, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { rate, started, most, due: Semaphore::new(0), taken, is_over }
    }

    /// Waits for the next ticket and returns its due time; `None` when no tickets are left.
    pub(super) async fn next_ticket(&self) -> Option<Instant> {
        self.due.acquire().await.expect("the semaphore is never closed").forget();
        let ticket = self.taken.fetch_add(1, Relaxed);
        (ticket < self.most.0).then(|| self.time_of(ticket))
    }

    /// Reports up to `most` requests that were due in a period but never sent. Calls `report` at
    /// most [`STEPS`] times, each time with the waiting time of a group of requests at the period's
    /// end and the number of requests in the group.
    pub(super) fn for_unsent(
        &self,
        (from, end): (Instant, Instant),
        most: u64,
        mut report: impl FnMut(Duration, u64),
    ) {
        let before = |at: Instant| self.rate.due_before(at.saturating_duration_since(self.started));
        let first = self.taken.load(Relaxed).max(before(from));
        let last = before(end).min(self.most.0).min(first.saturating_add(most));
        let step = last.saturating_sub(first).div_ceil(STEPS).max(1);
        let mut ticket = first;
        while ticket < last {
            let count = step.min(last - ticket);
            report(end.saturating_duration_since(self.time_of(ticket)), count);
            ticket += count;
        }
    }

    /// Releases tickets when due, until [`end`](Self::end) is called.
    pub(super) fn run(&self) {
        // By default, the kernel delays wake-ups by up to 50 us to batch them (prctl(2)).
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut released = 0;
        while !self.is_over.load(Relaxed) {
            // A ticket due exactly now counts as due.
            let due = self.rate.due_before(self.started.elapsed() + Duration::from_nanos(1)).min(self.most.0);
            self.due.add_permits(usize::try_from(due - released).unwrap_or(usize::MAX));
            released = due;
            if released == self.most.0 {
                // Wake each client once more, so that it sees that no tickets are left.
                return self.due.add_permits(self.most.1);
            }
            thread::sleep(self.time_of(released).saturating_duration_since(Instant::now()).min(SLEEP_MAX));
        }
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn time_of(&self, ticket: u64) -> Instant {
        self.started + self.rate.due(ticket)
    }
}
