//! The writer: sets the head, appends content, and completes or fails the fill.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::buffer::{Content, FillBuffer, Inner, Phase, Stored};
use super::failure::Failure;
use super::reader::Reader;
#[cfg(not(loom))]
use super::trailer::Trailer;
use crate::arena::{Arena, NoRoom, Run};
use crate::sync::{self, Mutex, lock};
use crate::waiters::Waiters;
use crate::window::Window;

/// Minimum size, in bytes, of a run allocated for content of unknown length.
pub const GROWTH_BYTES: usize = crate::arena::SLAB_BYTES / 16;

/// The writing end of a fill. Dropping it before `complete` fails the fill.
pub struct Writer<H> {
    buffer: Arc<FillBuffer<H>>,
    /// Memory for stored content as it grows; `None` while the head is awaited, and for passed
    /// content.
    growth: Option<Growth>,
    done: bool,
}

/// Destination of a fill's content, decided when the head is set.
#[derive(Debug)]
pub enum Destination {
    /// The content is stored in full in the arena, for any number of readers.
    Store(Room),
    /// The content is passed through a window to the reader that started the fill.
    Pass {
        /// Maximum number of bytes waiting for the reader.
        window_bytes: usize,
    },
}

/// Arena space for content, reserved before the head is set, so that storing does not start without
/// room.
#[derive(Debug)]
pub struct Room {
    arena: sync::Arc<Arena>,
    reserved: VecDeque<Run>,
}

impl Room {
    /// Reserves room for `length` bytes, or for a first run if the length is unknown.
    ///
    /// # Errors
    ///
    /// Returns an error if the arena does not have that much room.
    pub fn reserve(arena: &sync::Arc<Arena>, length: Option<u64>) -> Result<Self, NoRoom> {
        let mut room = Self::growing(arena);
        let mut left = length.map_or(Ok(GROWTH_BYTES), usize::try_from).map_err(|_| NoRoom)?;
        while left > 0 {
            let run = Arena::allocate(arena, left)?;
            left -= run.len();
            room.reserved.push_back(run);
        }
        Ok(room)
    }

    /// Creates room without a reservation: runs are allocated as content arrives.
    pub fn growing(arena: &sync::Arc<Arena>) -> Self {
        Self { arena: arena.clone(), reserved: VecDeque::new() }
    }

    /// Returns the next run; `left` is the number of bytes ready to be written.
    fn next(&mut self, left: usize) -> Result<Run, NoRoom> {
        match self.reserved.pop_front() {
            Some(run) => Ok(run),
            None => Arena::allocate(&self.arena, left.max(GROWTH_BYTES)),
        }
    }
}

/// Memory for stored content as it grows: the room left, and the run being written, whose published
/// part is shared with readers.
struct Growth {
    room: Room,
    tail: Option<(sync::Arc<Run>, usize)>,
}

impl<H> fmt::Debug for Writer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?})", self.buffer)
    }
}

impl<H: Clone> FillBuffer<H> {
    /// Creates a fill that awaits its head; returns it with its writer and the reader that started
    /// it.
    pub fn new() -> (Arc<Self>, Writer<H>, Reader<H>) {
        let inner = Inner {
            phase: Phase::AwaitingHead,
            waiters: Waiters::default(),
            first_reader: true,
            trailer: None,
            deserted: None,
        };
        let buffer = Arc::new(Self { inner: Mutex::new(inner), readers: AtomicUsize::new(0) });
        let writer = Writer::new(buffer.clone());
        let reader = Reader::first(buffer.clone());
        (buffer, writer, reader)
    }

    /// Creates a fill whose head is known from the start and whose content is stored.
    pub fn stored(arena: &sync::Arc<Arena>, head: H) -> (Arc<Self>, Writer<H>) {
        let (buffer, mut writer, _) = Self::new();
        writer.set_head(head, Destination::Store(Room::growing(arena)));
        (buffer, writer)
    }
}

impl<H> Writer<H> {
    pub(super) fn new(buffer: Arc<FillBuffer<H>>) -> Self {
        Self { buffer, growth: None, done: false }
    }

    /// Sets the head and wakes all readers that wait for it.
    ///
    /// # Panics
    ///
    /// Panics if the head was already set.
    pub fn set_head(&mut self, head: H, destination: Destination) {
        let content = match destination {
            Destination::Store(room) => {
                self.growth = Some(Growth { room, tail: None });
                Content::Stored(Stored::default())
            }
            Destination::Pass { window_bytes } => Content::Passed(Window::new(window_bytes)),
        };
        self.change(|inner| {
            assert!(matches!(inner.phase, Phase::AwaitingHead), "the head of a fill is set only once");
            inner.phase = Phase::Filling(head, content);
        });
    }

    /// Waits until there is room for more content. Stored content never waits; passed content waits
    /// until the reader has read some.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Abandoned`] if content is passed and its reader was dropped.
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

    /// Waits until there are no readers.
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

    /// Publishes more content and wakes all readers that wait for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the arena has no room for all bytes. The bytes that fit are published,
    /// but the caller must then fail the fill.
    ///
    /// # Panics
    ///
    /// Panics if the head is not set yet.
    pub fn append(&mut self, bytes: Bytes) -> Result<(), NoRoom> {
        let Some(growth) = &mut self.growth else {
            self.change(|inner| match inner.phase.content_mut() {
                Some(Content::Passed(window)) => window.push(bytes),
                _ => panic!("content was appended before the head"),
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

    /// Sets the trailer, which readers see once the fill is complete.
    #[cfg(not(loom))]
    pub(crate) fn set_trailer(&mut self, trailer: Trailer) {
        lock(&self.buffer.inner).trailer = Some(Arc::new(trailer));
    }

    /// Completes the fill once all content has arrived.
    pub fn complete(mut self) {
        self.done = true;
        if let Some((run, used)) = self.growth.take().and_then(|growth| growth.tail) {
            run.shrink_to(used);
        }
        self.change(|inner| {
            inner.phase = match std::mem::replace(&mut inner.phase, Phase::AwaitingHead) {
                Phase::Filling(head, content) => Phase::Complete(head, content),
                _ => panic!("a fill without a head cannot complete"),
            };
        });
    }

    /// Sets the head and completes the fill. Its `length` content bytes are stored in other fills,
    /// so there is nothing to read here.
    pub fn complete_elsewhere(mut self, head: H, length: u64) {
        self.done = true;
        let content = Content::Elsewhere {
            length,
            #[cfg(not(loom))]
            backing: super::buffer::Backing::None,
        };
        self.change(|inner| inner.phase = Phase::Complete(head, content));
    }

    /// Fails the fill.
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

    /// Changes the buffer under its lock, then wakes all waiting readers.
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
    /// Writes into the tail run and into new runs, which are added to `runs` but not yet published.
    /// Returns the number of bytes written, as `Err` if not all bytes fit.
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
