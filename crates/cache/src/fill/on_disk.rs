//! Content that moves between memory and the disk while it is complete.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::{Content, Failure, FillBuffer, Inner, Phase, Stored};
use crate::arena::{Arena, NoRoom};
use crate::disk::Copy;
use crate::sync::{self, lock};
use crate::waiters::Waiters;

/// What the disk has of content that lies in memory.
#[derive(Debug, Clone, Default)]
pub(crate) enum Backing {
    /// Nothing.
    #[default]
    None,
    /// Nothing: there was no room to wait in.
    Refused,
    /// Nothing yet: it waits to be written.
    Awaited,
    /// All of it.
    Copy(Arc<Copy>),
}

/// What became of content that was to leave memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is read from the disk from now on.
    OnDisk,
    /// It was so before.
    Already,
    /// It waits to be written: later.
    Awaited,
    /// The disk has nothing of it.
    No,
}

impl<H: Clone> FillBuffer<H> {
    /// Complete content of which the disk alone has a copy; or, of `elsewhere` bytes that are not kept here, the head.
    pub(crate) fn on_disk(head: H, copy: Arc<Copy>, elsewhere: Option<u64>) -> Arc<Self> {
        let content = match elsewhere {
            Some(length) => Content::Elsewhere { length, backing: Backing::Copy(copy) },
            None => Content::OnDisk(copy),
        };
        let phase = Phase::Complete(head, content);
        let waiters = Waiters::default();
        let inner = Inner { phase, waiters, first_reader: false, trailer: None, deserted: None };
        Arc::new(Self { inner: sync::Mutex::new(inner), readers: AtomicUsize::new(0) })
    }
}

impl<H> FillBuffer<H> {
    /// Whether memory has none of its content.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(lock(&self.inner).phase, Phase::Complete(_, Content::OnDisk(_) | Content::Elsewhere { .. }))
    }

    /// The disk's copy, if there is one.
    pub(crate) fn copy(&self) -> Option<Arc<Copy>> {
        match &lock(&self.inner).phase {
            Phase::Complete(_, Content::OnDisk(copy)) => Some(copy.clone()),
            Phase::Complete(_, content) => match content.backing()? {
                Backing::Copy(copy) => Some(copy.clone()),
                Backing::None | Backing::Refused | Backing::Awaited => None,
            },
            _ => None,
        }
    }

    /// Says that it waits to be written. False unless it is complete, in memory, and on no disk yet.
    pub(crate) fn await_copy(&self) -> bool {
        if let Phase::Complete(_, content) = &mut lock(&self.inner).phase
            && let Some(backing @ (Backing::None | Backing::Refused)) = content.backing_mut()
        {
            *backing = Backing::Awaited;
            return true;
        }
        false
    }

    /// Whether it had no room to wait to be written.
    pub(crate) fn was_refused(&self) -> bool {
        match &lock(&self.inner).phase {
            Phase::Complete(_, content) => matches!(content.backing(), Some(Backing::Refused)),
            _ => false,
        }
    }

    /// Says what the disk has of it now, where memory has it.
    pub(crate) fn set_backing(&self, backing: Backing) {
        if let Phase::Complete(_, content) = &mut lock(&self.inner).phase
            && let Some(now) = content.backing_mut()
        {
            *now = backing;
        }
    }

    /// Gives back its memory if the disk has it.
    pub(crate) fn settle(&self) -> Settled {
        let mut inner = lock(&self.inner);
        let Phase::Complete(_, content) = &mut inner.phase else { return Settled::No };
        let copy = match content {
            Content::Stored(Stored { backing: Backing::Copy(copy), .. }) => copy.clone(),
            Content::Stored(Stored { backing: Backing::Awaited, .. })
            | Content::Elsewhere { backing: Backing::Awaited, .. } => return Settled::Awaited,
            Content::OnDisk(_) | Content::Elsewhere { backing: Backing::Copy(_), .. } => {
                return Settled::Already;
            }
            _ => return Settled::No,
        };
        let left = std::mem::replace(content, Content::OnDisk(copy));
        drop(inner);
        drop(left);
        Settled::OnDisk
    }

    /// Brings small content back to memory.
    ///
    /// # Errors
    /// When the arena has no room for it.
    pub(crate) fn raise(&self, arena: &sync::Arc<Arena>, bytes: &[u8]) -> Result<(), NoRoom> {
        let run = Arena::take(arena, bytes.len())?;
        run.write(0, bytes);
        let mut inner = lock(&self.inner);
        if let Phase::Complete(_, content) = &mut inner.phase
            && let Content::OnDisk(copy) = content
        {
            let backing = Backing::Copy(copy.clone());
            *content =
                Content::Stored(Stored { runs: vec![sync::Arc::new(run)], len: bytes.len() as u64, backing });
        }
        Ok(())
    }

    /// Wakes all who wait for the disk.
    pub(crate) fn wake(&self) {
        let woken = lock(&self.inner).waiters.take();
        woken.wake();
    }

    /// What only the disk had cannot be read: its readers get no more of it. It has left the index.
    pub(crate) fn lose(&self) {
        let mut inner = lock(&self.inner);
        if matches!(inner.phase, Phase::Complete(_, Content::OnDisk(_))) {
            inner.phase = Phase::Failed(None, Failure::Unreadable);
        }
        let woken = inner.waiters.take();
        drop(inner);
        woken.wake();
    }
}

impl Content {
    fn backing(&self) -> Option<&Backing> {
        match self {
            Self::Stored(Stored { backing, .. }) | Self::Elsewhere { backing, .. } => Some(backing),
            Self::Passed(_) | Self::OnDisk(_) => None,
        }
    }

    fn backing_mut(&mut self) -> Option<&mut Backing> {
        match self {
            Self::Stored(Stored { backing, .. }) | Self::Elsewhere { backing, .. } => Some(backing),
            Self::Passed(_) | Self::OnDisk(_) => None,
        }
    }
}
