//! Deadline of an exchange, which moves with nearly every system call.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

use super::exchange::Timeouts;
use crate::{ErrorKind, Failure};

/// The time by which data must arrive. The underlying timer is reset only when it fires, or when
/// the deadline moves to an earlier time.
#[derive(Debug)]
pub(super) struct Deadline {
    timeouts: Timeouts,
    awaits_head: bool,
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl Deadline {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let at = Instant::now() + timeouts.head;
        Self { timeouts, awaits_head: true, sleep: Box::pin(sleep_until(at.into())), at }
    }

    /// Sets the deadline for a head, counted from `since`.
    pub(super) fn await_head(&mut self, since: Instant) {
        self.awaits_head = true;
        self.set(since + self.timeouts.head);
    }

    /// Sets the deadline for more content, counted from `since`.
    pub(super) fn await_content(&mut self, since: Instant) {
        self.awaits_head = false;
        self.set(since + self.timeouts.content);
    }

    /// Waits until `poll` is ready and returns its result.
    ///
    /// # Errors
    ///
    /// Returns an error if the deadline passes first.
    pub(super) async fn bound<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Failure> {
        poll_fn(|context| match poll(context) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.poll_passed(context).map(|()| Err(self.late())),
        })
        .await
    }

    fn set(&mut self, at: Instant) {
        self.at = at;
        if at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(at.into());
        }
    }

    fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at.into());
        }
    }

    fn late(&self) -> Failure {
        if self.awaits_head {
            Failure::new(ErrorKind::HeadTimeout, format!("no head within {:?}", self.timeouts.head))
        } else {
            Failure::new(ErrorKind::ContentTimeout, format!("no content within {:?}", self.timeouts.content))
        }
    }
}
