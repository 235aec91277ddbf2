//! The disk tier: stored responses on a file system, from which `sendfile` sends, and which outlive the process.
//!
//! - [`record`]: what a file says of its response, as bytes.
//! - [`journal`]: the purges that may not have been carried out on all that lies there, as bytes; [`journaling`] writes it.
//! - [`files`]: how files are made, read and removed.
//! - [`content`]: content on disk as a reader gets it: no byte before its block was verified, none that would make
//!   a worker wait for the disk.
//! - [`tier`]: the threads, the budget and what it evicts; [`write`] and [`scan`] are what they do, and [`owed`] what they
//!   could not.
//!
//! A response is written once it is complete, unless it is too short-lived to be of use; until then, and while its
//! write waits, memory alone has it. When memory evicts it, its content becomes the disk's: the entry of the index
//! stays as it is. Small content comes back to memory with its next use, larger is sent from the page cache.
//!
//! **Invariant:** what has to wait for the disk is done by a thread of the tier, which wakes readers, and by no worker.
//! **Invariant:** a response that cannot be read as it was written leaves the index before its readers hear of it.
//! **Invariant:** without the disk everything goes on: a response that cannot be written is kept in memory alone.
//!
//! Lock order: who evicts → a shard of the index → a `FillBuffer` → a copy → the queues of the tier.

pub(crate) mod content;
mod files;
mod jobs;
pub mod journal;
mod journaling;
mod owed;
mod queue;
pub mod record;
mod residency;
mod scan;
mod tier;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use content::{Copy, Open, Reading};
pub(crate) use queue::STEPS_MAX;
pub(crate) use tier::Tier;

use std::io;
use std::path::Path;

/// A directory for stored responses, locked and not yet read.
#[derive(Debug)]
pub struct Disk {
    directory: files::Directory,
    bytes_max: u64,
    start: journaling::Start,
    journal: Vec<journal::Entry>,
}

impl Disk {
    /// Takes `directory` for at most `bytes_max` bytes of files, and makes it if it is not there.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it; else what the system says.
    pub fn open(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        let directory = files::Directory::open(directory)?;
        let (journal, end) = journal::read(&directory.read_journal()?);
        let start = journaling::Start::of(&journal, end);
        Ok(Self { directory, bytes_max, start, journal })
    }

    /// The purges of an earlier life, and the rest.
    pub(crate) fn take_journal(&mut self) -> Vec<journal::Entry> {
        std::mem::take(&mut self.journal)
    }

    /// The most that its files may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// What the tier tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that files take.
    pub bytes: u64,
    /// The most that they may take.
    pub bytes_max: u64,
    /// Stored responses that lie on disk, also those that memory has too.
    pub responses: usize,
    /// Files that could not be written, read or removed, or were not as they were written.
    pub errors: u64,
    /// Responses that were not written: the queue was full, or writing paused after errors.
    pub skipped: u64,
    /// Whether everything that lay on disk at the start is known.
    pub is_scanned: bool,
}
