//! The writer: sets the head, appends, and says how it ended.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

#[cfg(not(loom))]
use super::Trailer;
use super::{Content, Failure, FillBuffer, Inner, Keep, Phase, Stored};
use crate::arena::{Arena, NoRoom, Run};
use crate::sync::{self, lock};
use crate::window::Window;

/// Bytes of the runs that content of unknown length grows by.
pub const GROWTH_BYTES: usize = crate::arena::SLAB_BYTES / 16;

/// The one who fills a buffer. Dropped before `complete`, it fails the fill.
pub struct Writer<H> {
    buffer: Arc<FillBuffer<H>>,
    /// Where stored content grows; `None` while the head is awaited and for passed content.
    growth: Option<Growth>,
    done: bool,
}

/// Room for content in the arena, taken before the head is set, so that what begins to be stored has a place.
#[derive(Debug)]
pub struct Room {
    arena: sync::Arc<Arena>,
    reserved: VecDeque<Run>,
}

impl Room {
    /// Room for `length` bytes, or for the first of them where it is not known.
    ///
    /// # Errors
    /// When the arena has not that much.
    pub fn reserve(arena: &sync::Arc<Arena>, length: Option<u64>) -> Result<Self, NoRoom> {
        let mut room = Self::growing(arena);
        let mut left = length.map_or(Ok(GROWTH_BYTES), usize::try_from).map_err(|_| NoRoom)?;
        while left > 0 {
            let run = Arena::take(arena, left)?;
            left -= run.len();
            room.reserved.push_back(run);
        }
        Ok(room)
    }

    /// Nothing taken yet: content takes what it needs as it comes.
    pub fn growing(arena: &sync::Arc<Arena>) -> Self {
        Self { arena: arena.clone(), reserved: VecDeque::new() }
    }

    /// The next run for content of which `left` bytes are there to be written.
    fn next(&mut self, left: usize) -> Result<Run, NoRoom> {
        match self.reserved.pop_front() {
            Some(run) => Ok(run),
            None => Arena::take(&self.arena, left.max(GROWTH_BYTES)),
        }
    }
}

/// Where stored content grows: the run being written, which readers share below what is published.
struct Growth {
    room: Room,
    tail: Option<(sync::Arc<Run>, usize)>,
}

impl<H> fmt::Debug for Writer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?})", self.buffer)
    }
}

impl<H> Writer<H> {
    pub(super) fn new(buffer: Arc<FillBuffer<H>>) -> Self {
        Self { buffer, growth: None, done: false }
    }

    /// The head has arrived: all who wait for it go on.
    ///
    /// # Panics
    /// When the head was set before: a programmer's error.
    pub fn set_head(&mut self, head: H, keep: Keep) {
        let content = match keep {
            Keep::Store(room) => {
                self.growth = Some(Growth { room, tail: None });
                Content::Stored(Stored::default())
            }
            Keep::Pass { window_bytes } => Content::Passed(Window::new(window_bytes)),
        };
        self.change(|inner| {
            assert!(matches!(inner.phase, Phase::AwaitingHead), "a fill has one head");
            inner.phase = Phase::Filling(head, content);
        });
    }

    /// Waits until there is room for more: at once for stored content, until the reader has taken some of what
    /// is passed.
    ///
    /// # Errors
    /// [`Failure::Abandoned`] when content is passed and its reader is gone.
    pub async fn room(&mut self) -> Result<(), Failure> {
        poll_fn(|cx| self.poll_room(cx)).await
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut inner = lock(&self.buffer.inner);
        let first_reader = inner.first_reader;
        match inner.phase.content_mut() {
            Some(Content::Passed(_)) if !first_reader => Poll::Ready(Err(Failure::Abandoned)),
            Some(Content::Passed(window)) if !window.has_room() => {
                window.wait_for_room(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Waits until nobody reads.
    pub async fn deserted(&self) {
        poll_fn(|cx| {
            let mut inner = lock(&self.buffer.inner);
            if self.buffer.readers() == 0 {
                return Poll::Ready(());
            }
            inner.deserted = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Publishes more content and wakes all who wait for it.
    ///
    /// # Errors
    /// When the arena has no room; what did fit is published, and the fill can only fail.
    ///
    /// # Panics
    /// Before the head: a programmer's error.
    pub fn append(&mut self, bytes: Bytes) -> Result<(), NoRoom> {
        let Some(growth) = &mut self.growth else {
            self.change(|inner| match inner.phase.content_mut() {
                Some(Content::Passed(window)) => window.push(bytes),
                _ => panic!("content comes after the head"),
            });
            return Ok(());
        };
        let mut runs = Vec::new();
        let written = growth.write(&bytes, &mut runs);
        self.change(|inner| match inner.phase.content_mut() {
            Some(Content::Stored(stored)) => {
                stored.runs.append(&mut runs);
                stored.len += *written.as_ref().unwrap_or_else(|short| short) as u64;
            }
            _ => unreachable!("stored content grows in runs"),
        });
        written.map_or(Err(NoRoom), |_| Ok(()))
    }

    /// What came after the content: readers have it once the fill is complete.
    #[cfg(not(loom))]
    pub(crate) fn set_trailer(&mut self, trailer: Trailer) {
        lock(&self.buffer.inner).trailer = Some(Arc::new(trailer));
    }

    /// All content has arrived.
    pub fn complete(mut self) {
        self.done = true;
        if let Some((run, used)) = self.growth.take().and_then(|growth| growth.tail) {
            run.give_back(used);
        }
        self.change(|inner| {
            inner.phase = match std::mem::replace(&mut inner.phase, Phase::AwaitingHead) {
                Phase::Filling(head, content) => Phase::Complete(head, content),
                _ => panic!("only what has a head can be complete"),
            };
        });
    }

    /// The head has arrived, and `length` bytes of content are kept in other fills: here there is nothing to read.
    pub fn complete_elsewhere(mut self, head: H, length: u64) {
        self.done = true;
        let content = Content::Elsewhere {
            length,
            #[cfg(not(loom))]
            backing: super::Backing::None,
        };
        self.change(|inner| inner.phase = Phase::Complete(head, content));
    }

    /// The fill cannot go on.
    pub fn fail(mut self, failure: Failure) {
        self.end_in(failure);
    }

    fn end_in(&mut self, failure: Failure) {
        self.done = true;
        self.change(|inner| {
            inner.phase = match std::mem::replace(&mut inner.phase, Phase::AwaitingHead) {
                Phase::Filling(head, content) => Phase::Failed(Some((head, content)), failure),
                _ => Phase::Failed(None, failure),
            };
        });
    }

    /// Changes the buffer under its lock, and wakes all who wait after it.
    fn change(&self, change: impl FnOnce(&mut Inner<H>)) {
        let mut inner = lock(&self.buffer.inner);
        change(&mut inner);
        let woken = inner.waiters.take();
        drop(inner);
        woken.wake();
    }
}

impl<H> Drop for Writer<H> {
    fn drop(&mut self) {
        if !self.done {
            self.end_in(Failure::Abandoned);
        }
    }
}

impl Growth {
    /// Writes into the tail and into new runs, which go to `runs` unpublished. Says how much fitted: all, or less.
    fn write(&mut self, bytes: &[u8], runs: &mut Vec<sync::Arc<Run>>) -> Result<usize, usize> {
        let mut written = 0;
        while written < bytes.len() {
            let (run, used) = match &mut self.tail {
                Some((run, used)) if *used < run.len() => (run, used),
                tail => {
                    let run = self.room.next(bytes.len() - written).map_err(|NoRoom| written)?;
                    let run = sync::Arc::new(run);
                    runs.push(run.clone());
                    let (run, used) = tail.insert((run, 0));
                    (run, used)
                }
            };
            let piece = (run.len() - *used).min(bytes.len() - written);
            run.write(*used, &bytes[written..written + piece]);
            *used += piece;
            written += piece;
        }
        Ok(written)
    }
}
