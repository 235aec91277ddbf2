//! An open, locked disk directory and the contents of its journal.

use std::io;
use std::path::Path;

use super::files::Directory;
use super::journal::{Entry, read};
use crate::ban::Compile;

/// A locked directory for stored responses, not yet scanned.
#[derive(Debug)]
pub struct Disk {
    pub(super) directory: Directory,
    pub(super) bytes_max: u64,
    pub(super) start: Start,
    journal: Vec<Entry>,
    pub(crate) compile: Compile,
}

impl Disk {
    /// Opens `directory`, creating it if needed, for files of at most `bytes_max` bytes in total.
    /// `compile` compiles the bans from an earlier process.
    ///
    /// # Errors
    ///
    /// Returns an error of kind `WouldBlock` if another process uses the directory, otherwise the
    /// system's error.
    pub fn open(directory: &Path, bytes_max: u64, compile: Compile) -> io::Result<Self> {
        let directory = Directory::open(directory)?;
        let (journal, end) = read(&directory.read_journal()?);
        let start = Start::of(&journal, end);
        Ok(Self { directory, bytes_max, start, journal, compile })
    }

    /// Takes the journal entries from an earlier process.
    pub(crate) fn take_journal(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.journal)
    }

    /// Returns the maximum total size of the files, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// Summary of the journal at startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) end: u64,
    /// Highest purge number in the journal. A file with a higher purge number was fetched after a
    /// purge that the journal lacks.
    pub(super) highest: u64,
    pub(super) is_unlisted: bool,
}

impl Start {
    pub(super) fn of(entries: &[Entry], end: usize) -> Self {
        let highest = entries.iter().map(Entry::number).max().unwrap_or(0);
        Self { end: end as u64, highest, is_unlisted: entries.iter().any(Entry::takes_anything) }
    }
}
