//! Moves complete content between memory and disk.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::buffer::{Backing, Content, FillBuffer, Inner, Phase, Stored};
use super::failure::Failure;
use crate::arena::{Arena, NoRoom};
use crate::disk::content::DiskCopy;
use crate::sync::{self, lock};
use crate::waiters::Waiters;

/// The result of moving content out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demotion {
    /// The disk serves the content from now on.
    OnDisk,
    /// The disk already served the content.
    Already,
    /// The disk has no copy yet, but its write is queued; try again later.
    Awaited,
    /// The disk has no copy.
    No,
}

impl<H: Clone> FillBuffer<H> {
    /// Creates complete content that is only on disk. If `elsewhere` is set, the copy has only the
    /// head, and that many content bytes are stored in other fills.
    pub(crate) fn on_disk(head: H, copy: Arc<DiskCopy>, elsewhere: Option<u64>) -> Arc<Self> {
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
    /// Returns whether none of the content is in memory.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(lock(&self.inner).phase, Phase::Complete(_, Content::OnDisk(_) | Content::Elsewhere { .. }))
    }

    /// Returns the disk copy, if any.
    pub(crate) fn copy(&self) -> Option<Arc<DiskCopy>> {
        match &lock(&self.inner).phase {
            Phase::Complete(_, Content::OnDisk(copy)) => Some(copy.clone()),
            Phase::Complete(_, content) => match content.backing()? {
                Backing::Copy(copy) => Some(copy.clone()),
                Backing::None | Backing::Refused | Backing::Awaited => None,
            },
            _ => None,
        }
    }

    /// Marks the content as queued for writing. Returns false unless it is complete, in memory, and
    /// not yet on disk.
    pub(crate) fn await_copy(&self) -> bool {
        if let Phase::Complete(_, content) = &mut lock(&self.inner).phase
            && let Some(backing @ (Backing::None | Backing::Refused)) = content.backing_mut()
        {
            *backing = Backing::Awaited;
            return true;
        }
        false
    }

    /// Returns whether the write queue had no room for the content.
    pub(crate) fn was_refused(&self) -> bool {
        match &lock(&self.inner).phase {
            Phase::Complete(_, content) => matches!(content.backing(), Some(Backing::Refused)),
            _ => false,
        }
    }

    /// Sets the state of the disk copy of content that is in memory.
    pub(crate) fn set_backing(&self, backing: Backing) {
        if let Phase::Complete(_, content) = &mut lock(&self.inner).phase
            && let Some(now) = content.backing_mut()
        {
            *now = backing;
        }
    }

    /// Frees the content's memory if the disk has a copy.
    pub(crate) fn demote(&self) -> Demotion {
        let mut inner = lock(&self.inner);
        let Phase::Complete(_, content) = &mut inner.phase else { return Demotion::No };
        let copy = match content {
            Content::Stored(Stored { backing: Backing::Copy(copy), .. }) => copy.clone(),
            Content::Stored(Stored { backing: Backing::Awaited, .. })
            | Content::Elsewhere { backing: Backing::Awaited, .. } => return Demotion::Awaited,
            Content::OnDisk(_) | Content::Elsewhere { backing: Backing::Copy(_), .. } => {
                return Demotion::Already;
            }
            _ => return Demotion::No,
        };
        let left = std::mem::replace(content, Content::OnDisk(copy));
        drop(inner);
        drop(left);
        Demotion::OnDisk
    }

    /// Copies small content back to memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the arena has no room for the content.
    pub(crate) fn promote(&self, arena: &sync::Arc<Arena>, bytes: &[u8]) -> Result<(), NoRoom> {
        let run = Arena::allocate(arena, bytes.len())?;
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

    /// Wakes all readers that wait for the disk.
    pub(crate) fn wake(&self) {
        let woken = lock(&self.inner).waiters.take();
        woken.wake();
    }

    /// Fails unreadable content that was only on disk, so that readers receive no more of it. The
    /// response must already have left the index.
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
