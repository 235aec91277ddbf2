//! Lets requests begin when they are due, whether or not earlier ones have ended: the open model.
//!
//! Clients that are free wait for a ticket. Each ticket's time is known beforehand, so a client that takes one late, since none was
//! free, counts from when it was due. A thread of its own sleeps until the next ticket is due: that is exact to some ten
//! microseconds, a runtime's own timer only to a millisecond.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use tokio::sync::Semaphore;

use super::schedule::Rate;

/// The thread looks so often whether it is to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Waits of those that nobody has taken are told in so many steps.
const STEPS: u64 = 10_000;

/// The tickets of a run.
#[derive(Debug)]
pub(super) struct Pacer {
    rate: Rate,
    begun: Instant,
    /// So many in all, for so many clients.
    most: (u64, usize),
    due: Semaphore,
    taken: AtomicU64,
    is_over: AtomicBool,
}

impl Pacer {
    /// `most` tickets in all, for so many clients.
    pub(super) fn new(rate: Rate, begun: Instant, most: (u64, usize)) -> Self {
        let (taken, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { rate, begun, most, due: Semaphore::new(0), taken, is_over }
    }

    /// Waits until the next request that nobody has taken is due; says when it was. `None` once there are no more.
    pub(super) async fn take(&self) -> Option<Instant> {
        self.due.acquire().await.expect("it is never closed").forget();
        let ticket = self.taken.fetch_add(1, Relaxed);
        (ticket < self.most.0).then(|| self.time_of(ticket))
    }

    /// Tells of those, `most` at most, that were due from the first of these times to the second and that nobody has taken: how long
    /// some of them had waited by then, at most [`STEPS`] times.
    pub(super) fn for_unsent(
        &self,
        (from, end): (Instant, Instant),
        most: u64,
        mut tell: impl FnMut(Duration, u64),
    ) {
        let before = |at: Instant| self.rate.due_before(at.saturating_duration_since(self.begun));
        let first = self.taken.load(Relaxed).max(before(from));
        let last = before(end).min(self.most.0).min(first.saturating_add(most));
        let step = last.saturating_sub(first).div_ceil(STEPS).max(1);
        let mut ticket = first;
        while ticket < last {
            let count = step.min(last - ticket);
            tell(end.saturating_duration_since(self.time_of(ticket)), count);
            ticket += count;
        }
    }

    /// Makes tickets due in time, until [`end`](Self::end).
    pub(super) fn run(&self) {
        // Without it the kernel is late by 50 us, to wake several threads at once (prctl(2)).
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut made = 0;
        while !self.is_over.load(Relaxed) {
            // The one whose time is now is due as well.
            let due = self.rate.due_before(self.begun.elapsed() + Duration::from_nanos(1)).min(self.most.0);
            self.due.add_permits(usize::try_from(due - made).unwrap_or(usize::MAX));
            made = due;
            if made == self.most.0 {
                // For each client to learn that there are no more.
                return self.due.add_permits(self.most.1);
            }
            thread::sleep(self.time_of(made).saturating_duration_since(Instant::now()).min(SLEEP_MAX));
        }
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn time_of(&self, ticket: u64) -> Instant {
        self.begun + self.rate.due(ticket)
    }
}
