//! A piece of content on its way out: where it lies, for `sendfile`, and its bytes.

use std::fmt;

use bytes::Bytes;
#[cfg(not(loom))]
use rustix::fd::BorrowedFd;

use crate::arena::Run;
#[cfg(not(loom))]
use crate::disk;
#[cfg(not(loom))]
use crate::fill::Failure;
use crate::sync;

/// Some content, held for as long as the piece is. Never empty.
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
        copy: std::sync::Arc<disk::Copy>,
        open: std::sync::Arc<disk::Open>,
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

    /// Bytes of the disk's copy, of which byte `offset` of the content is the first.
    #[cfg(not(loom))]
    pub(super) fn of_file(
        copy: std::sync::Arc<disk::Copy>,
        open: std::sync::Arc<disk::Open>,
        offset: u64,
        len: usize,
    ) -> Self {
        let at = open.file_offset(offset);
        Self(Held::File { copy, open, at, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Run { len, .. } => *len,
            Held::Heap(bytes) => bytes.len(),
            #[cfg(not(loom))]
            Held::File { len, .. } => *len,
        }
    }

    /// The file and the offset in it, for `sendfile`: the arena's, or that of the disk's copy, whose bytes were in the
    /// page cache when the piece was made. `None` for passed content.
    #[cfg(not(loom))]
    pub fn in_file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.0 {
            Held::Run { run, at, .. } => Some((run.arena().file(), run.file_offset(*at))),
            Held::Heap(_) => None,
            Held::File { open, at, .. } => Some((open.file(), *at)),
        }
    }

    /// How many bytes after the first `sent` can be sent without waiting for the disk: waits, where the page cache has not
    /// kept them, until they are read and verified again. To be asked whenever there was a wait since the piece was made or
    /// this was answered, and where as many were sent as it said.
    ///
    /// # Errors
    /// [`Failure::Unreadable`]: the disk does not give them.
    #[cfg(not(loom))]
    pub async fn ready(&self, sent: usize) -> Result<usize, Failure> {
        let Held::File { copy, open, at, len } = &self.0 else { return Ok(self.len() - sent) };
        let offset = open.offset(*at) + sent as u64;
        if !copy.is_ready(open, offset) {
            let content = copy.content().ok_or(Failure::Unreadable)?;
            content.reader(offset).read_again(copy).await?;
        }
        Ok((len - sent).min(disk::content::left_in_block(offset)))
    }

    /// The bytes, where they lie in memory.
    #[cfg(not(loom))]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.0 {
            Held::Run { run, at, len } => Some(run.read(*at, *len)),
            Held::Heap(bytes) => Some(bytes),
            Held::File { .. } => None,
        }
    }

    /// The bytes without copying them, where they lie in memory; they hold their slab for as long as they are kept.
    #[cfg(not(loom))]
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.0 {
            Held::Heap(bytes) => Some(bytes),
            Held::Run { run, at, len } => Some(Bytes::from_owner(InRun { run, at, len })),
            Held::File { .. } => None,
        }
    }

    /// The file did not give the bytes: those of a copy on disk are verified before anybody gets them again.
    #[cfg(not(loom))]
    pub fn doubt(&self) {
        if let Held::File { copy, open, at, len } = &self.0 {
            copy.doubt(open, *at, *len);
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

/// Bytes of a run, for as long as they are kept.
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
