//! The journal while it is written: one thread owns its file, so that nobody who purges holds a lock over I/O.
//!
//! What is told together is written together and synced once. That thread syncs this file alone: all else that the file
//! system has to write, before the journal gets shorter, is waited for by another. An entry that cannot be written leaves the purge in force
//! in this process; the next that can is preceded by one that says so ([`Entry::Unlisted`]), which costs what lies on
//! disk then if the process ends before a walk has come round.
//!
//! **Invariant:** an entry leaves the journal once the files that it is about are removed, or tell of it themselves, and
//! the file system has written that.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};

use super::files::{Directory, write_at};
use super::journal::{Entry, JOURNAL_BYTES_MAX, Ticket, read};
use super::tier::Tier;
use crate::purge::Purge;
use crate::sync::lock;

/// A journal below this is not worth the sync that shortening it takes.
pub(super) const SHORTEN_BYTES_MIN: u64 = 64 * 1024;
/// Purges that may wait to be written; with more, what they took away is not listed.
const WAITING_MAX: usize = 65_536;
/// How long a purge waits for the disk.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What is to be written to the journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    state: Mutex<State>,
    changed: Condvar,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// Up to this number it may be shortened, once what was done until then is synced, if it is worth that.
    shorten: Option<u64>,
    to_sync: Option<u64>,
    synced: Option<u64>,
    /// Purges that were put in, and those that were dealt with.
    put: u64,
    done: u64,
    running: bool,
    closed: bool,
}

/// What the thread does next.
struct Work {
    entries: VecDeque<Entry>,
    shorten: Option<u64>,
    synced: Option<u64>,
    done: u64,
}

impl Journal {
    fn put(&self, purge: Purge) -> Ticket {
        let mut state = lock(&self.state);
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.clear();
            state.waiting.push_back(Entry::Unlisted(purge.number));
        } else {
            state.waiting.push_back(Entry::Purge(purge));
        }
        state.put += 1;
        let ticket = Ticket(state.put);
        drop(state);
        self.changed.notify_all();
        ticket
    }

    /// False if it was not written in time, or there is nobody to write it.
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

    /// What is to be done, once there is something. Once it is closed that is only what waits to be written: another
    /// process may have the directory soon.
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
        let (entries, done) = (std::mem::take(&mut state.waiting), state.put);
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
    /// Has a purge written to the journal.
    pub(crate) fn journal(&self, purge: Purge) -> Ticket {
        self.journal.put(purge)
    }

    /// Waits until a purge is in the journal, and synced, no longer than [`WAIT_MAX`].
    pub(crate) fn await_journal(&self, ticket: Ticket) {
        if !self.journal.wait(ticket) {
            self.failed("a purge may be undone by a restart", &"the journal was not written in time");
        }
    }

    /// Whether a walk should come round so that it can be shortened.
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
                self.failed("a purge may be undone by a restart", &error);
            }
            if let Some(number) = work.shorten
                && file.is_to_be_shortened()
            {
                self.journal.sync(number);
            }
            if let Some(number) = work.synced
                && let Err(error) = file.shorten(self.directory(), number)
            {
                self.failed("the journal of purges cannot be shortened", &error);
            }
            self.journal.bytes.store(file.end, Relaxed);
            self.journal.done(work.done);
        }
    }

    /// Waits for the file system to have written everything, whenever the journal is to be shortened after that.
    pub(super) fn run_syncs(self: &Arc<Self>) {
        while let Some(number) = self.journal.next_to_sync() {
            match self.directory().sync_all() {
                Ok(()) => self.journal.synced(number),
                Err(error) => self.failed("the journal of purges cannot be shortened", &error),
            }
        }
    }
}

/// What the journal came to at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    end: u64,
    /// The highest number in it. What says that it is newer was written after a purge of which nothing is known.
    pub(super) highest: u64,
    is_unlisted: bool,
}

impl Start {
    pub(super) fn of(entries: &[Entry], end: usize) -> Self {
        let highest = entries.iter().map(Entry::number).max().unwrap_or(0);
        Self { end: end as u64, highest, is_unlisted: entries.iter().any(Entry::takes_anything) }
    }
}

/// The file, as far as it is known to be good.
#[derive(Debug, Default)]
struct File {
    /// Opened with the first entry.
    file: Option<OwnedFd>,
    end: u64,
    /// The highest number in it.
    highest: u64,
    /// The highest number that could not be written.
    failed: u64,
    /// Whether there is an entry in it that costs what is on disk.
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

    /// Whether it is worth the sync.
    fn is_to_be_shortened(&self) -> bool {
        self.end >= SHORTEN_BYTES_MIN || self.is_unlisted || self.failed > 0
    }

    /// Takes out what is about purges up to `number`: their files are removed, and that is synced.
    fn shorten(&mut self, directory: &Directory, number: u64) -> io::Result<()> {
        let (mut entries, _) = read(&directory.read_journal()?);
        entries.retain(|entry| entry.number() > number);
        entries.insert(0, Entry::Sequence(self.highest));
        self.rewrite(directory, &entries)?;
        // Not before: what it took away lay there until the sync.
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
    use crate::purge::What;

    #[test]
    fn what_could_not_be_written_is_told_until_its_removal_is_synced() {
        let place = Place::new();
        let directory = Directory::open(place.path()).unwrap();
        let in_the_way = place.path().join("v1/journal");
        std::fs::create_dir(&in_the_way).unwrap();
        let mut file = File::default();
        let purge = |number| {
            let what = What::Url("h/a".into());
            VecDeque::from([Entry::Purge(Purge { number, what, soft_ms: None })])
        };
        file.append(&directory, &purge(1)).unwrap_err();
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(file.is_to_be_shortened());
        // Before anything is synced.
        file.append(&directory, &purge(2)).unwrap();
        let told = |directory: &Directory| {
            let (entries, _) = read(&directory.read_journal().unwrap());
            entries.iter().filter(|entry| entry.takes_anything()).map(Entry::number).collect::<Vec<_>>()
        };
        assert_eq!(told(&directory), [1]);
        file.shorten(&directory, 1).unwrap();
        assert_eq!(told(&directory), []);
        file.append(&directory, &purge(3)).unwrap();
        assert_eq!(told(&directory), []);
    }
}
