//! The index of a track's file, made by few ranged reads and without I/O of its own.
//!
//! The [`Indexer`] says which bytes it wants, is given them, and ends with a [`TrackIndex`]. It reads
//! the header, a sidx, box headers and moofs; it jumps over mdat.
//!
//! ```text
//! let mut indexer = Indexer::new(file_size, options);
//! loop {
//!     match indexer.step()? {
//!         Step::Want(want) => indexer.feed(&read(want.offset, want.len)),
//!         Step::Done(index) => break index,
//!     }
//! }
//! ```

use crate::error::Result;
use crate::track::TrackIndex;

/// How to index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Duration of a segment that fragments are grouped to, in milliseconds, where the file has no
    /// sidx that says where its segments are.
    pub segment_target_ms: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { segment_target_ms: 2000 }
    }
}

/// Bytes that the indexer wants. They lie wholly in the file, as its size was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// From the start of the file.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// What an [`Indexer`] needs next, or what it has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read these bytes and [`feed`](Indexer::feed) them.
    Want(Want),
    /// The file is indexed.
    Done(TrackIndex),
}

/// Indexes one file.
#[derive(Debug)]
pub struct Indexer {
    file_size: u64,
    options: IndexOptions,
}

impl Indexer {
    /// An indexer of a file of `file_size` bytes (from its metadata, or from Content-Range).
    #[must_use]
    pub fn new(file_size: u64, options: IndexOptions) -> Self {
        Self { file_size, options }
    }

    /// What to do next. The same again until it is fed.
    ///
    /// # Errors
    /// The file's first fault, with its offset and box. It stays.
    pub fn step(&mut self) -> Result<Step> {
        let _ = (self.file_size, self.options);
        todo!()
    }

    /// Takes the bytes found at the offset last wanted. Fewer than wanted say that the file ends there.
    pub fn feed(&mut self, bytes: &[u8]) {
        let _ = bytes;
        todo!()
    }
}
