//! Writer of the purge journal. One thread owns the journal file, so that no purge holds a lock
//! during I/O.
//!
//! Entries queued together are written together and synced once. The journal thread syncs only the
//! journal file; another thread syncs the whole file system before the journal is shortened.
//!
//! If an entry cannot be written, its purge stays in force in this process. The next entry that can
//! be written is preceded by an [`Entry::Unlisted`] that records the gap. If the process then exits
//! before a sweep has finished, all responses on disk are lost.
//!
//! **Invariant:** an entry is removed from the journal only after every file to which it applies
//! was removed or itself records the purge, and that change was synced.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};

use super::files::{Directory, write_at};
use super::journal::{Entry, JOURNAL_BYTES_MAX, Ticket, read};
use super::opened::Start;
use super::tier::Tier;
use crate::purge::Purge;
use crate::sync::lock;

/// Minimum size, in bytes, of a journal that is worth shortening, because each shortening costs a
/// sync.
pub(super) const SHORTEN_BYTES_MIN: u64 = 64 * 1024;
/// Maximum number of purges waiting to be written. If there would be more, one [`Entry::Unlisted`]
/// replaces them.
const WAITING_MAX: usize = 65_536;
/// Maximum time for which a purge waits until the journal is written.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Work queued for the journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    state: Mutex<State>,
    changed: Condvar,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// Purge number up to which to shorten the journal, if worthwhile, once all file changes so far
    /// have been synced.
    shorten: Option<u64>,
    to_sync: Option<u64>,
    synced: Option<u64>,
    /// Number of purges queued; `done` counts those processed.
    queued: u64,
    done: u64,
    running: bool,
    closed: bool,
}

/// Work for the journal thread.
struct Work {
    entries: VecDeque<Entry>,
    shorten: Option<u64>,
    synced: Option<u64>,
    done: u64,
}

impl Journal {
    fn queue(&self, purge: Purge) -> Ticket {
        let mut state = lock(&self.state);
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.clear();
            state.waiting.push_back(Entry::Unlisted(purge.number));
        } else {
            state.waiting.push_back(Entry::Purge(purge));
        }
        state.queued += 1;
        let ticket = Ticket(state.queued);
        drop(state);
        self.changed.notify_all();
        ticket
    }

    /// Waits for a purge to be written. Returns false if that takes too long, or the journal thread
    /// has stopped.
    fn wait(&self, ticket: Ticket) -> bool {
        let is_open = |state: &mut State| state.done < ticket.0 && state.running;
        let waited = self.changed.wait_timeout_while(lock(&self.state), WAIT_MAX, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.done >= ticket.0
    }

    pub(super) fn shorten(&self, number: u64) {
        lock(&self.state).shorten = Some(number);
        self.changed.notify_all();
    }

    fn sync(&self, number: u64) {
        lock(&self.state).to_sync = Some(number);
        self.changed.notify_all();
    }

    fn synced(&self, number: u64) {
        lock(&self.state).synced = Some(number);
        self.changed.notify_all();
    }

    fn next_to_sync(&self) -> Option<u64> {
        let idle = |state: &mut State| !state.closed && state.to_sync.is_none();
        let waited = self.changed.wait_while(lock(&self.state), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed { None } else { state.to_sync.take() }
    }

    /// Waits for work. Once the journal is closed, returns only entries still to be written,
    /// because another process may soon take over the directory.
    fn next(&self) -> Option<Work> {
        let idle = |state: &mut State| {
            let nothing = state.waiting.is_empty() && state.shorten.is_none() && state.synced.is_none();
            nothing && !state.closed
        };
        let waited = self.changed.wait_while(lock(&self.state), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.running = !state.closed || !state.waiting.is_empty();
        if !state.running {
            return None;
        }
        if state.closed {
            (state.shorten, state.synced) = (None, None);
        }
        let (entries, done) = (std::mem::take(&mut state.waiting), state.queued);
        Some(Work { entries, shorten: state.shorten.take(), synced: state.synced.take(), done })
    }

    fn done(&self, done: u64) {
        lock(&self.state).done = done;
        self.changed.notify_all();
    }

    pub(super) fn open(&self) {
        lock(&self.state).running = true;
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

impl Tier {
    /// Queues a purge for the journal.
    pub(crate) fn journal(&self, purge: Purge) -> Ticket {
        self.journal.queue(purge)
    }

    /// Waits at most [`WAIT_MAX`] until a purge is in the journal and synced.
    pub(crate) fn await_journal(&self, ticket: Ticket) {
        if !self.journal.wait(ticket) {
            self.failed("a restart may undo a purge", &"journal was not written in time");
        }
    }

    /// Returns whether the journal exceeds the length at which a sweep must shorten it.
    pub(crate) fn is_journal_long(&self) -> bool {
        self.journal.bytes.load(Relaxed) >= SHORTEN_BYTES_MIN
    }

    pub(super) fn run_journal(self: &Arc<Self>) {
        let Start { end, highest, is_unlisted } = self.start;
        let mut file = File { end, highest, is_unlisted, ..File::default() };
        while let Some(work) = self.journal.next() {
            if !work.entries.is_empty()
                && let Err(error) = file.append(self.directory(), &work.entries)
            {
                self.failed("a restart may undo a purge", &error);
            }
            if let Some(number) = work.shorten
                && file.is_to_be_shortened()
            {
                self.journal.sync(number);
            }
            if let Some(number) = work.synced {
                // Keep bans that still wait for look-ups, because they are in force.
                let kept = self.index.upgrade().map(|index| index.numbers_of_bans()).unwrap_or_default();
                if let Err(error) = file.shorten(self.directory(), number, &kept) {
                    self.failed("cannot shorten the purge journal", &error);
                }
            }
            self.journal.bytes.store(file.end, Relaxed);
            self.journal.done(work.done);
        }
    }

    /// Syncs the file system before each shortening of the journal.
    pub(super) fn run_syncs(self: &Arc<Self>) {
        while let Some(number) = self.journal.next_to_sync() {
            match self.directory().sync_all() {
                Ok(()) => self.journal.synced(number),
                Err(error) => self.failed("cannot shorten the purge journal", &error),
            }
        }
    }
}

/// The journal file, up to the end of its valid entries.
#[derive(Debug, Default)]
struct File {
    /// The journal, opened when the first entry is written.
    file: Option<OwnedFd>,
    end: u64,
    /// Highest purge number in the file.
    highest: u64,
    /// Highest purge number that could not be written; 0 if all were written.
    failed: u64,
    /// Whether the file has an entry that may apply to anything on disk.
    is_unlisted: bool,
}

impl File {
    fn append(&mut self, directory: &Directory, entries: &VecDeque<Entry>) -> io::Result<()> {
        let numbers = entries.iter().map(Entry::number);
        self.highest = numbers.fold(self.highest, u64::max);
        let written = self.try_append(directory, entries);
        self.failed = if written.is_ok() { 0 } else { self.highest };
        written
    }

    fn try_append(&mut self, directory: &Directory, entries: &VecDeque<Entry>) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.failed > 0 {
            Entry::Unlisted(self.failed).encode(&mut bytes);
        }
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        if self.end + bytes.len() as u64 > JOURNAL_BYTES_MAX as u64 {
            return self.rewrite(directory, &[Entry::Unlisted(self.highest)]);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(directory.open_journal()?),
        };
        write_at(file.as_fd(), self.end, &bytes)?;
        rustix::fs::fdatasync(&*file)?;
        self.end += bytes.len() as u64;
        self.is_unlisted |= self.failed > 0 || entries.iter().any(Entry::takes_anything);
        Ok(())
    }

    /// Returns whether shortening is worth the cost of a sync.
    fn is_to_be_shortened(&self) -> bool {
        self.end >= SHORTEN_BYTES_MIN || self.is_unlisted || self.failed > 0
    }

    /// Removes the entries of purges up to `number`, except those in `kept`. The files to which
    /// they apply must have been removed, and the removal synced.
    fn shorten(&mut self, directory: &Directory, number: u64, kept: &[u64]) -> io::Result<()> {
        let (mut entries, _) = read(&directory.read_journal()?);
        entries.retain(|entry| entry.number() > number || kept.contains(&entry.number()));
        entries.insert(0, Entry::Sequence(self.highest));
        self.rewrite(directory, &entries)?;
        // Reset `failed` only after the sync: before it, a power loss could bring removed files
        // back.
        if self.failed <= number {
            self.failed = 0;
        }
        Ok(())
    }

    fn rewrite(&mut self, directory: &Directory, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        self.file = Some(directory.replace_journal(&bytes)?);
        self.end = bytes.len() as u64;
        self.is_unlisted = entries.iter().any(Entry::takes_anything);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::Place;
    use crate::purge::PurgeScope;

    #[test]
    fn unwritten_purge_stays_recorded_until_its_removal_is_synced() {
        let place = Place::new();
        let directory = Directory::open(place.path()).unwrap();
        let in_the_way = place.path().join("v1/journal");
        std::fs::create_dir(&in_the_way).unwrap();
        let mut file = File::default();
        let purge = |number| {
            let what = PurgeScope::Url("h/a".into());
            VecDeque::from([Entry::Purge(Purge { number, what, soft_ms: None })])
        };
        file.append(&directory, &purge(1)).unwrap_err();
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(file.is_to_be_shortened());
        // The failed purge is recorded before the file system is synced.
        file.append(&directory, &purge(2)).unwrap();
        let unlisted = |directory: &Directory| {
            let (entries, _) = read(&directory.read_journal().unwrap());
            entries.iter().filter(|entry| entry.takes_anything()).map(Entry::number).collect::<Vec<_>>()
        };
        assert_eq!(unlisted(&directory), [1]);
        file.shorten(&directory, 1, &[]).unwrap();
        assert_eq!(unlisted(&directory), []);
        file.append(&directory, &purge(3)).unwrap();
        assert_eq!(unlisted(&directory), []);
        // A ban that is still in force stays.
        file.append(&directory, &purge(4)).unwrap();
        file.shorten(&directory, 4, &[3]).unwrap();
        let (entries, _) = read(&directory.read_journal().unwrap());
        assert_eq!(entries.iter().map(Entry::number).collect::<Vec<_>>(), [4, 3]);
    }
}
