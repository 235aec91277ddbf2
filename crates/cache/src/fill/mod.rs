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
//! - Stored content that is complete may move to the disk and back. Its readers go on where they are; only what cannot
//!   be read any more makes it fail after it was complete.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use crate::arena::{Arena, NoRoom, Run};
#[cfg(not(loom))]
use crate::disk;
use crate::sync::{self, Mutex, lock};
use crate::waiters::Waiters;
use crate::window::Window;

mod moving;
#[cfg(not(loom))]
mod on_disk;
mod piece;
mod reader;
mod trailer;
mod writer;

#[cfg(not(loom))]
pub(crate) use on_disk::{Backing, Settled};
pub use piece::Piece;
pub use reader::Reader;
pub use trailer::Trailer;
pub use writer::{GROWTH_BYTES, Room, Writer};

/// Content and its head, while it arrives and afterwards.
pub struct FillBuffer<H> {
    inner: Mutex<Inner<H>>,
    /// Beside the lock: readers of complete content are not to wait for it once more.
    readers: AtomicUsize,
}

struct Inner<H> {
    phase: Phase<H>,
    waiters: Waiters,
    /// Whether the reader that started the fill is still there.
    first_reader: bool,
    trailer: Option<Arc<Trailer>>,
    /// Who waits for the last reader to leave.
    deserted: Option<Waker>,
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
    /// So many bytes, which are not kept here: the head says where. What the disk has of it is the head alone.
    Elsewhere {
        length: u64,
        #[cfg(not(loom))]
        backing: Backing,
    },
    #[cfg(not(loom))]
    OnDisk(Arc<disk::Copy>),
}

/// Runs of the arena, of which the first `len` bytes are published.
#[derive(Default)]
struct Stored {
    runs: Vec<sync::Arc<Run>>,
    len: u64,
    #[cfg(not(loom))]
    backing: Backing,
}

/// Why a fill ended before its content did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The writer went away without a word.
    Abandoned,
    /// The backend's side failed; in words for the log.
    Backend(String),
    /// The backend answered with this status, which is no answer to what it was asked.
    Status(u16),
    /// The backend took longer than it may; in words for the log.
    BackendTimeout(String),
    /// Too many fetches are under way; in words for the log.
    Busy(String),
    /// There was no room to keep more of it.
    NoRoom,
    /// The fill was never needed: the stored response was found to be still good.
    Superseded,
    /// Passed content is for the one reader that started it.
    NotShared,
    /// The backend's answer is no slice of the response: another representation, or no such range.
    NotSliced(&'static str),
    /// The operator's policy gave the fetch up; why.
    Policy(&'static str),
    /// It was stored, and cannot be read from the disk any more.
    Unreadable,
}

impl Failure {
    /// What the backend answered with, if that is what failed.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned => f.write_str("the fill was abandoned"),
            Self::Backend(reason) | Self::BackendTimeout(reason) | Self::Busy(reason) => f.write_str(reason),
            Self::Status(status) => write!(f, "the backend answered with status {status}"),
            Self::NoRoom => NoRoom.fmt(f),
            Self::Superseded => f.write_str("the stored response was validated instead"),
            Self::NotSliced(reason) => write!(f, "no slice of the response: {reason}"),
            Self::Policy(reason) => f.write_str(reason),
            Self::NotShared => f.write_str("the content is passed to another client alone"),
            Self::Unreadable => f.write_str("the stored content could not be read from the disk"),
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
#[derive(Debug)]
pub enum Keep {
    /// Whole into the arena, for any number of readers.
    Store(Room),
    /// Through a window, to the reader that started the fill.
    Pass {
        /// Bytes that may wait for the reader.
        window_bytes: usize,
    },
}

impl<H> FillBuffer<H> {
    /// Whether fields came after the content.
    pub fn has_trailer(&self) -> bool {
        lock(&self.inner).trailer.is_some()
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        self.readers.load(SeqCst)
    }
}

impl<H: Clone> FillBuffer<H> {
    /// A fill that awaits its head, its writer, and the reader that started it.
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

    /// A fill whose head is known from the start and whose content is stored.
    pub fn stored(arena: &sync::Arc<Arena>, head: H) -> (Arc<Self>, Writer<H>) {
        let (buffer, mut writer, _) = Self::new();
        writer.set_head(head, Keep::Store(Room::growing(arena)));
        (buffer, writer)
    }

    /// A reader at `offset`, which may lie past what has arrived.
    pub fn reader(self: &Arc<Self>, offset: u64) -> Reader<H> {
        Reader::at(self.clone(), offset)
    }

    /// The head, if it has arrived.
    pub fn head(&self) -> Option<H> {
        lock(&self.inner).phase.head().cloned()
    }

    /// Bytes of content that are kept here.
    pub fn kept_bytes(&self) -> u64 {
        match lock(&self.inner).phase.content() {
            Some(Content::Stored(stored)) => stored.len,
            _ => 0,
        }
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
            Self::Elsewhere { length, .. } => *length,
            #[cfg(not(loom))]
            Self::OnDisk(copy) => copy.length(),
        }
    }
}

impl Stored {
    /// Up to `max` published bytes at `offset`.
    fn piece(&self, offset: u64, max: usize) -> Option<Piece> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        let (run, at) = self.find(offset);
        let len = (run.len() - at).min(max).min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(Piece::of_run(run.clone(), at, len))
    }

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
