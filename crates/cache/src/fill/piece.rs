//! A piece of content to send: its bytes, and their location for `sendfile`.

use std::fmt;

use bytes::Bytes;
#[cfg(not(loom))]
use rustix::fd::BorrowedFd;

#[cfg(not(loom))]
use super::failure::Failure;
use crate::arena::Run;
#[cfg(not(loom))]
use crate::disk::content::{DiskCopy, Open, left_in_block};
use crate::sync;

/// A part of some content, kept alive by the piece; never empty.
pub struct Piece(Held);

enum Held {
    Run {
        run: sync::Arc<Run>,
        at: usize,
        len: usize,
    },
    Heap(Bytes),
    #[cfg(not(loom))]
    File {
        copy: std::sync::Arc<DiskCopy>,
        open: std::sync::Arc<Open>,
        at: u64,
        len: usize,
    },
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len())
    }
}

#[allow(clippy::len_without_is_empty, reason = "a piece has at least one byte")]
impl Piece {
    pub(super) fn of_run(run: sync::Arc<Run>, at: usize, len: usize) -> Self {
        Self(Held::Run { run, at, len })
    }

    pub(super) fn of_heap(bytes: Bytes) -> Self {
        Self(Held::Heap(bytes))
    }

    /// Creates a piece of the disk copy, starting at byte `offset` of the content.
    #[cfg(not(loom))]
    pub(super) fn of_file(
        copy: std::sync::Arc<DiskCopy>,
        open: std::sync::Arc<Open>,
        offset: u64,
        len: usize,
    ) -> Self {
        let at = open.file_offset(offset);
        Self(Held::File { copy, open, at, len })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Run { len, .. } => *len,
            Held::Heap(bytes) => bytes.len(),
            #[cfg(not(loom))]
            Held::File { len, .. } => *len,
        }
    }

    /// Returns the file and offset for `sendfile`, in the arena or in the disk copy; `None` for
    /// passed content. Bytes of a disk copy were in the page cache when the piece was created.
    #[cfg(not(loom))]
    pub fn in_file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.0 {
            Held::Run { run, at, .. } => Some((run.arena().file(), run.file_offset(*at))),
            Held::Heap(_) => None,
            Held::File { open, at, .. } => Some((open.file(), *at)),
        }
    }

    /// Returns how many bytes after the first `sent` can be sent without waiting for the disk. If
    /// the page cache has dropped them, waits until they are read and verified again.
    ///
    /// Call this before sending if the caller has waited since the piece was created or the last
    /// call returned, and after sending as many bytes as the last call allowed.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unreadable`] if the bytes cannot be read from disk.
    #[cfg(not(loom))]
    pub async fn ready(&self, sent: usize) -> Result<usize, Failure> {
        let Held::File { copy, open, at, len } = &self.0 else { return Ok(self.len() - sent) };
        let offset = open.offset(*at) + sent as u64;
        if !copy.is_ready(open, offset) {
            let content = copy.content().ok_or(Failure::Unreadable)?;
            content.reader(offset).read_again(copy).await?;
        }
        Ok((len - sent).min(left_in_block(offset)))
    }

    /// Returns the bytes, if they are in memory.
    #[cfg(not(loom))]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.0 {
            Held::Run { run, at, len } => Some(run.read(*at, *len)),
            Held::Heap(bytes) => Some(bytes),
            Held::File { .. } => None,
        }
    }

    /// Returns the bytes without copying, if they are in memory. The returned value keeps their
    /// slab in use.
    #[cfg(not(loom))]
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.0 {
            Held::Heap(bytes) => Some(bytes),
            Held::Run { run, at, len } => Some(Bytes::from_owner(InRun { run, at, len })),
            Held::File { .. } => None,
        }
    }

    /// Reports that these bytes could not be sent from the file. The disk copy then verifies them
    /// before serving them again.
    #[cfg(not(loom))]
    pub fn doubt(&self) {
        if let Held::File { copy, open, at, len } = &self.0 {
            copy.doubt(open, *at, *len);
        }
    }

    /// Copies the bytes.
    #[cfg(loom)]
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.0 {
            Held::Run { run, at, len } => run.copy(*at, *len),
            Held::Heap(bytes) => bytes.to_vec(),
        }
    }
}

/// Bytes of a run, which this value keeps alive.
#[cfg(not(loom))]
struct InRun {
    run: sync::Arc<Run>,
    at: usize,
    len: usize,
}

#[cfg(not(loom))]
impl AsRef<[u8]> for InRun {
    fn as_ref(&self) -> &[u8] {
        self.run.read(self.at, self.len)
    }
}
