//! State shared by a fill's writer and readers: phase, head, content, and waiting wakers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use super::failure::Failure;
use super::trailer::Trailer;
use crate::arena::Run;
#[cfg(not(loom))]
use crate::disk::content::DiskCopy;
use crate::sync::{self, Mutex, lock};
use crate::waiters::Waiters;
use crate::window::Window;

/// Content and its head, while they arrive and afterwards.
pub struct FillBuffer<H> {
    pub(super) inner: Mutex<Inner<H>>,
    /// Number of readers, outside the lock so that creating a reader does not take the lock.
    pub(super) readers: AtomicUsize,
}

pub(super) struct Inner<H> {
    pub(super) phase: Phase<H>,
    pub(super) waiters: Waiters,
    /// Whether the reader that started the fill still exists.
    pub(super) first_reader: bool,
    pub(super) trailer: Option<Arc<Trailer>>,
    /// Waker of a writer waiting for the last reader to leave.
    pub(super) deserted: Option<Waker>,
}

pub(super) enum Phase<H> {
    AwaitingHead,
    Filling(H, Content),
    Complete(H, Content),
    /// The failure, with the head and the content so far if the head had arrived.
    Failed(Option<(H, Content)>, Failure),
}

pub(super) enum Content {
    Stored(Stored),
    Passed(Window),
    /// Content of this length, stored in other fills (slices). The disk copy has only the head.
    Elsewhere {
        length: u64,
        #[cfg(not(loom))]
        backing: Backing,
    },
    #[cfg(not(loom))]
    OnDisk(Arc<DiskCopy>),
}

/// Runs in the arena, of which the first `len` bytes are published.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) runs: Vec<sync::Arc<Run>>,
    pub(super) len: u64,
    #[cfg(not(loom))]
    pub(super) backing: Backing,
}

/// State of the disk copy of content that is in memory.
#[cfg(not(loom))]
#[derive(Debug, Clone, Default)]
pub(crate) enum Backing {
    /// The disk has no copy.
    #[default]
    None,
    /// The disk has no copy, because the write queue was full.
    Refused,
    /// The disk has no copy yet; its write is queued.
    Awaited,
    /// The disk has a complete copy.
    Copy(Arc<DiskCopy>),
}

/// Progress of a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The head has not arrived.
    AwaitingHead,
    /// This many bytes have arrived, and more will follow.
    Filling(u64),
    /// All content has arrived; the value is its length in bytes.
    Complete(u64),
    /// The fill failed after this many bytes.
    Failed(u64),
}

impl<H> FillBuffer<H> {
    /// Returns whether the fill has a trailer section.
    pub fn has_trailer(&self) -> bool {
        lock(&self.inner).trailer.is_some()
    }

    /// Returns the number of readers.
    pub fn readers(&self) -> usize {
        self.readers.load(SeqCst)
    }
}

impl<H: Clone> FillBuffer<H> {
    /// Returns the head, if it has arrived.
    pub fn head(&self) -> Option<H> {
        lock(&self.inner).phase.head().cloned()
    }

    /// Returns the number of content bytes in memory.
    pub fn kept_bytes(&self) -> u64 {
        match lock(&self.inner).phase.content() {
            Some(Content::Stored(stored)) => stored.len,
            _ => 0,
        }
    }

    /// Returns how far the fill has progressed.
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
    pub(super) fn head(&self) -> Option<&H> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(head, _) | Self::Complete(head, _) | Self::Failed(Some((head, _)), _) => Some(head),
        }
    }

    pub(super) fn content(&self) -> Option<&Content> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(_, content) | Self::Complete(_, content) | Self::Failed(Some((_, content)), _) => {
                Some(content)
            }
        }
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Content> {
        match self {
            Self::AwaitingHead | Self::Failed(None, _) => None,
            Self::Filling(_, content) | Self::Complete(_, content) | Self::Failed(Some((_, content)), _) => {
                Some(content)
            }
        }
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
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
    /// Returns the run that contains published byte `offset`, and the byte's offset within the run.
    pub(super) fn find(&self, offset: u64) -> (&sync::Arc<Run>, usize) {
        let mut at = usize::try_from(offset).expect("stored content fits in memory");
        for run in &self.runs {
            if at < run.len() {
                return (run, at);
            }
            at -= run.len();
        }
        unreachable!("every published byte is in a run")
    }
}
