//! The `FillBuffer`: one writer, any number of readers, content that is only ever appended.
//!
//! ```text
//! Awaiting head → Filling(head) → Complete
//!        └──────────────┴──────→ Failed(reason)
//! ```
//!
//! A reader asks for the bytes at its offset and gets what is there, or is woken **by the append itself**. A hit on
//! complete content, a client that joins in the middle, a range that has not arrived: all are this one reader at
//! another offset.
//!
//! Invariants:
//! - Bytes are published, never changed: what one reader got at an offset every reader gets.
//! - A writer that is dropped without saying how it ended has failed. A failed fill never ends cleanly: its
//!   readers get what had arrived, then the failure.
//! - The content of a *stored* fill is kept whole in the arena and no reader holds up the writer. The content of a
//!   *passed* fill is a bounded window for the one reader that started it, and the writer waits for room.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::arena::{Arena, NoRoom, Run};
use crate::sync::{self, Mutex, lock};
use crate::waiters::{Ticket, Waiters};
use crate::window::Window;

/// Bytes of the runs that content of unknown length grows by.
pub const GROWTH_BYTES: usize = crate::arena::SLAB_BYTES / 16;

/// Content and its head, while it arrives and afterwards.
pub struct FillBuffer<H> {
    inner: Mutex<Inner<H>>,
}

struct Inner<H> {
    phase: Phase<H>,
    waiters: Waiters,
    /// Whether the reader that started the fill is still there.
    first_reader: bool,
}

enum Phase<H> {
    AwaitingHead,
    Filling(H, Content),
    Complete(H, Content),
    /// With the head and the content that had arrived, if the head had.
    Failed(Option<(H, Content)>, Failure),
}

enum Content {
    Stored(Stored),
    Passed(Window),
}

/// Runs of the arena, of which the first `len` bytes are published.
#[derive(Default)]
struct Stored {
    runs: Vec<sync::Arc<Run>>,
    len: u64,
}

/// Why a fill ended before its content did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The writer went away without a word.
    Abandoned,
    /// The backend's side failed; in words for the log.
    Backend(String),
    /// The backend took longer than it may; in words for the log.
    BackendTimeout(String),
    /// There was no room to keep more of it.
    NoRoom,
    /// The fill was never needed: the stored response was found to be still good.
    Superseded,
    /// Passed content is for the one reader that started it.
    NotShared,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned => f.write_str("the fill was abandoned"),
            Self::Backend(reason) | Self::BackendTimeout(reason) => f.write_str(reason),
            Self::NoRoom => NoRoom.fmt(f),
            Self::Superseded => f.write_str("the stored response was validated instead"),
            Self::NotShared => f.write_str("the content is passed to another client alone"),
        }
    }
}

impl std::error::Error for Failure {}

/// How far a fill has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The head has not arrived.
    AwaitingHead,
    /// This many bytes have arrived, and more will.
    Filling(u64),
    /// All has arrived: this many bytes.
    Complete(u64),
    /// It failed after this many bytes.
    Failed(u64),
}

/// Where the content of a fill goes, decided with its head.
#[derive(Debug, Clone)]
pub enum Keep {
    /// Whole into the arena, for any number of readers.
    Store {
        /// The memory it goes into.
        arena: sync::Arc<Arena>,
        /// Content bytes, if the head says how many.
        length: Option<u64>,
    },
    /// Through a window, to the reader that started the fill.
    Pass {
        /// Bytes that may wait for the reader.
        window_bytes: usize,
    },
}

impl<H: Clone> FillBuffer<H> {
    /// A fill that awaits its head, its writer, and the reader that started it.
    pub fn new() -> (Arc<Self>, Writer<H>, Reader<H>) {
        let inner = Inner { phase: Phase::AwaitingHead, waiters: Waiters::default(), first_reader: true };
        let buffer = Arc::new(Self { inner: Mutex::new(inner) });
        let writer = Writer { buffer: buffer.clone(), growth: None, done: false };
        let reader = Reader { buffer: buffer.clone(), offset: 0, first: true, ticket: None };
        (buffer, writer, reader)
    }

    /// A fill whose head is known from the start and whose content is stored.
    pub fn stored(arena: &sync::Arc<Arena>, head: H) -> (Arc<Self>, Writer<H>) {
        let (buffer, mut writer, _) = Self::new();
        writer.set_head(head, Keep::Store { arena: arena.clone(), length: None });
        (buffer, writer)
    }

    /// A reader at `offset`, which may lie past what has arrived.
    pub fn reader(self: &Arc<Self>, offset: u64) -> Reader<H> {
        Reader { buffer: self.clone(), offset, first: false, ticket: None }
    }

    /// The head, if it has arrived.
    pub fn head(&self) -> Option<H> {
        lock(&self.inner).phase.head().cloned()
    }

    /// How far the fill has come.
    pub fn progress(&self) -> Progress {
        let inner = lock(&self.inner);
        let len = inner.phase.content().map_or(0, Content::len);
        match &inner.phase {
            Phase::AwaitingHead => Progress::AwaitingHead,
            Phase::Filling(..) => Progress::Filling(len),
            Phase::Complete(..) => Progress::Complete(len),
            Phase::Failed(..) => Progress::Failed(len),
        }
    }
}

impl<H> fmt::Debug for FillBuffer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = lock(&self.inner);
        let phase = match &inner.phase {
            Phase::AwaitingHead => "awaiting head",
            Phase::Filling(..) => "filling",
            Phase::Complete(..) => "complete",
            Phase::Failed(..) => "failed",
        };
        write!(f, "FillBuffer({phase}, {} bytes)", inner.phase.content().map_or(0, Content::len))
    }
}

impl<H> Phase<H> {
    fn head(&self) -> Option<&H> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(head, _) | Self::Complete(head, _) | Self::Failed(Some((head, _)), _) => Some(head),
        }
    }

    fn content(&self) -> Option<&Content> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(_, content) | Self::Complete(_, content) | Self::Failed(Some((_, content)), _) => {
                Some(content)
            }
        }
    }

    fn content_mut(&mut self) -> Option<&mut Content> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(_, content) | Self::Complete(_, content) | Self::Failed(Some((_, content)), _) => {
                Some(content)
            }
        }
    }
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Stored(stored) => stored.len,
            Self::Passed(window) => window.end(),
        }
    }
}

impl Stored {
    /// The run that holds published byte `offset`, and where in it.
    fn find(&self, offset: u64) -> (&sync::Arc<Run>, usize) {
        let mut at = usize::try_from(offset).expect("stored content fits the memory");
        for run in &self.runs {
            if at < run.len() {
                return (run, at);
            }
            at -= run.len();
        }
        unreachable!("a published byte lies in a run")
    }
}

/// The one who fills a buffer. Dropped before `complete`, it fails the fill.
pub struct Writer<H> {
    buffer: Arc<FillBuffer<H>>,
    /// Where stored content grows; `None` while the head is awaited and for passed content.
    growth: Option<Growth>,
    done: bool,
}

/// Where stored content grows: the run being written, which readers share below what is published.
struct Growth {
    arena: sync::Arc<Arena>,
    remaining: Option<u64>,
    tail: Option<(sync::Arc<Run>, usize)>,
}

impl<H> fmt::Debug for Writer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?})", self.buffer)
    }
}

impl<H> Writer<H> {
    /// The head has arrived: all who wait for it go on.
    ///
    /// # Panics
    /// When the head was set before: a programmer's error.
    pub fn set_head(&mut self, head: H, keep: Keep) {
        let content = match keep {
            Keep::Store { arena, length } => {
                self.growth = Some(Growth { arena, remaining: length, tail: None });
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
                    let left = (bytes.len() - written) as u64;
                    let want = self.remaining.unwrap_or(GROWTH_BYTES as u64).max(left);
                    let want = usize::try_from(want).unwrap_or(usize::MAX);
                    let run = sync::Arc::new(Arena::take(&self.arena, want).map_err(|NoRoom| written)?);
                    runs.push(run.clone());
                    let (run, used) = tail.insert((run, 0));
                    (run, used)
                }
            };
            let piece = (run.len() - *used).min(bytes.len() - written);
            run.write(*used, &bytes[written..written + piece]);
            *used += piece;
            written += piece;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(piece as u64));
        }
        Ok(written)
    }
}

/// One who reads a fill, from any offset on.
pub struct Reader<H> {
    buffer: Arc<FillBuffer<H>>,
    offset: u64,
    first: bool,
    ticket: Option<Ticket>,
}

impl<H> fmt::Debug for Reader<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {:?})", self.offset, self.buffer)
    }
}

impl<H: Clone> Reader<H> {
    /// How far the fill has come.
    pub fn progress(&self) -> Progress {
        self.buffer.progress()
    }

    /// The head, as soon as it has arrived.
    ///
    /// # Errors
    /// When the fill failed before.
    pub async fn head(&mut self) -> Result<H, Failure> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<H, Failure>> {
        let mut inner = lock(&self.buffer.inner);
        match (inner.phase.head(), &inner.phase) {
            (Some(head), _) => Poll::Ready(Ok(head.clone())),
            (None, Phase::Failed(_, failure)) => Poll::Ready(Err(failure.clone())),
            (None, _) => {
                inner.waiters.register(&mut self.ticket, cx.waker());
                Poll::Pending
            }
        }
    }
}

impl<H> Reader<H> {
    /// Where the next byte comes from.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to `offset`. What is passed, not stored, is gone once it was read or skipped.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The next content: at least one byte and at most `max` of them, or `None` at the clean end.
    ///
    /// # Errors
    /// When the fill failed and all that had arrived was read.
    pub async fn next(&mut self, max: usize) -> Result<Option<Piece>, Failure> {
        poll_fn(|cx| self.poll_next(cx, max)).await
    }

    /// [`Reader::next`], if it need not wait.
    pub fn try_next(&mut self, max: usize) -> Option<Result<Option<Piece>, Failure>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop()), max) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    /// [`Reader::next`] as a poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Option<Piece>, Failure>> {
        let mut inner = lock(&self.buffer.inner);
        let (piece, room) = match inner.phase.content_mut() {
            Some(Content::Stored(stored)) => (stored.piece(self.offset, max), None),
            Some(Content::Passed(_)) if !self.first => return Poll::Ready(Err(Failure::NotShared)),
            Some(Content::Passed(window)) => {
                let (bytes, room) = window.take(self.offset, max);
                (bytes.map(|bytes| Piece(Held::Heap(bytes))), room)
            }
            None => (None, None),
        };
        let next = match (piece, &inner.phase) {
            (Some(piece), _) => {
                self.offset += piece.len() as u64;
                Poll::Ready(Ok(Some(piece)))
            }
            (None, Phase::Complete(..)) => Poll::Ready(Ok(None)),
            (None, Phase::Failed(_, failure)) => Poll::Ready(Err(failure.clone())),
            (None, Phase::AwaitingHead | Phase::Filling(..)) => {
                inner.waiters.register(&mut self.ticket, cx.waker());
                Poll::Pending
            }
        };
        drop(inner);
        if let Some(writer) = room {
            writer.wake();
        }
        next
    }

    /// Waits for the end of the fill and says how many bytes it had.
    ///
    /// # Errors
    /// When it failed.
    pub async fn ended(&mut self) -> Result<u64, Failure> {
        poll_fn(|cx| {
            let mut inner = lock(&self.buffer.inner);
            match &inner.phase {
                Phase::Complete(_, content) => Poll::Ready(Ok(content.len())),
                Phase::Failed(_, failure) => Poll::Ready(Err(failure.clone())),
                Phase::AwaitingHead | Phase::Filling(..) => {
                    inner.waiters.register(&mut self.ticket, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<H> Drop for Reader<H> {
    fn drop(&mut self) {
        let mut inner = lock(&self.buffer.inner);
        inner.waiters.forget(&mut self.ticket);
        let mut writer: Option<Waker> = None;
        if self.first {
            inner.first_reader = false;
            if let Some(Content::Passed(window)) = inner.phase.content_mut() {
                writer = window.abandon();
            }
        }
        drop(inner);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl Stored {
    fn piece(&self, offset: u64, max: usize) -> Option<Piece> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        let (run, at) = self.find(offset);
        let len = (run.len() - at).min(max).min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(Piece(Held::Run { run: run.clone(), at, len }))
    }
}

/// Some content, held for as long as the piece is. Never empty.
pub struct Piece(Held);

enum Held {
    Run { run: sync::Arc<Run>, at: usize, len: usize },
    Heap(Bytes),
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len())
    }
}

#[allow(clippy::len_without_is_empty, reason = "a piece has at least one byte")]
impl Piece {
    /// Bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Run { len, .. } => *len,
            Held::Heap(bytes) => bytes.len(),
        }
    }

    /// The arena and the offset in its file, for `sendfile`; `None` for passed content.
    pub fn in_file(&self) -> Option<(&Arena, u64)> {
        match &self.0 {
            Held::Run { run, at, .. } => Some((run.arena(), run.file_offset(*at))),
            Held::Heap(_) => None,
        }
    }

    /// The bytes.
    #[cfg(not(loom))]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Held::Run { run, at, len } => run.read(*at, *len),
            Held::Heap(bytes) => bytes,
        }
    }

    /// The bytes without copying them; they hold their slab for as long as they are kept.
    #[cfg(not(loom))]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Held::Heap(bytes) => bytes,
            Held::Run { .. } => Bytes::from_owner(self),
        }
    }

    /// A copy of the bytes.
    #[cfg(loom)]
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.0 {
            Held::Run { run, at, len } => run.copy(*at, *len),
            Held::Heap(bytes) => bytes.to_vec(),
        }
    }
}

#[cfg(not(loom))]
impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}
