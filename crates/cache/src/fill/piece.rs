//! A piece of content on its way out: where it lies, for `sendfile`, and its bytes.

use std::fmt;

use bytes::Bytes;

use crate::arena::{Arena, Run};
use crate::sync;

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
    pub(super) fn of_run(run: sync::Arc<Run>, at: usize, len: usize) -> Self {
        Self(Held::Run { run, at, len })
    }

    pub(super) fn of_heap(bytes: Bytes) -> Self {
        Self(Held::Heap(bytes))
    }

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
