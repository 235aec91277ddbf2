//! Spool: a directory to which every record is written first, and from which each sink reads at its
//! own pace.
//!
//! ```text
//! DIR/spool                          the marker: epoch, boot, next free number, unassigned numbers
//! DIR/lock                           locked by the process that uses the directory
//! DIR/00000000000000000000.segment   a spool segment: frames of one batch each
//! DIR/sockets                        socket totals, as of a record number
//! DIR/sqlite.position                position and losses of the sink `sqlite`
//! ```
//!
//! **Invariant:** when `append` returns, each record has a number and is in a file, so a crash of
//! the process loses no records. A power loss loses at most the records appended since the last
//! sync; their numbers are not assigned again.
//! **Invariant:** an edge's position is in the same frame as the last record it covers, so after a
//! crash the spool shows exactly which responses it contains.
//! **Invariant:** for each sink, appended = stored + counted as lost + still to read. A sink's
//! losses appear only in its position file and its metrics, because a loss record would take up
//! space in a spool that is already full.
//! **Invariant:** after a restart, a sink receives unfinished batches again unchanged, with the
//! same numbers. The spool segment that contains a sink's last batch is therefore kept even if the
//! space is needed.
//! **Invariant:** the total size of spool segments never exceeds the limit. A segment is deleted
//! once all sinks have reported positions past it, or earlier if space is needed.
//!
//! Lock order: the writer's lock before the state's lock.

mod frame;
mod mark;
mod note;
mod reader;
mod segment;
mod sockets;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_record::{EdgePosition, Network, Record, Source};

pub use reader::Reader;

use crate::clock::unix_us;
use crate::collect::saved::Saved;
use crate::disk;
use crate::error::Error;
use mark::{Mark, boot};
use segment::Found;
use state::State;
use writer::Writer;

/// Length in bytes at which a spool segment is full. Its last frame may exceed this length.
pub const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// Minimum for [`Limits::total_bytes`].
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// Minimum number of spool segments that fit within the size limit. Each sink may pin one segment.
const SEGMENTS_MIN: u64 = 16;
/// Maximum number of sinks per spool.
pub const READERS_MAX: usize = 8;
/// Maximum number of records written without a sync. After a reboot, record numbers skip ahead by
/// this many, because a sink may have read records that a power loss destroyed.
const UNSYNCED_RECORDS_MAX: u64 = 1_000_000;
/// Assumed lower bound on the mean interval between records since a spool's creation.
const US_PER_RECORD_MIN: u64 = 10;

/// Limits of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum total size of all spool segments in bytes; at least [`LIMIT_BYTES_MIN`].
    pub total_bytes: u64,
}

impl Limits {
    fn segment_bytes(self) -> u64 {
        (self.total_bytes / SEGMENTS_MIN).min(SEGMENT_BYTES_MAX)
    }
}

/// A record to append.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The client's network.
    pub network: Network,
    /// The record.
    pub record: Record,
    /// The edge's position after this record, if the record is a response or a loss of an edge.
    pub heard: Option<EdgePosition>,
}

impl From<(Network, Record)> for Arrival {
    fn from((network, record): (Network, Record)) -> Self {
        Self { network, record, heard: None }
    }
}

/// Result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Assigned record numbers, including the number of a loss record for an earlier failure.
    pub numbers: Range<u64>,
    /// Number of records that could not be written. A loss record for them is added by the next
    /// successful append.
    pub lost: u64,
}

/// Amount of data that a sink has yet to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Number of records.
    pub records: u64,
    /// Approximate size of the records in the spool, in bytes.
    pub bytes: u64,
}

/// A spool in a directory.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    limits: Limits,
    source: Source,
    /// Ranges of record numbers that were never assigned, in order.
    unused: Vec<Range<u64>>,
    writer: Mutex<Writer>,
    state: Mutex<State>,
    boot: Option<String>,
    sockets: Mutex<Option<Saved>>,
    appended: AtomicU64,
    changed: Condvar,
    /// Lock file, locked for the lifetime of the spool.
    _lock: File,
}

impl Spool {
    /// Opens the spool in `dir`, creating it if missing. Its records are attributed to the host
    /// `host` at the site `pop`.
    ///
    /// # Errors
    ///
    /// Returns an error if another process uses the directory, if a newer release has written to
    /// it, or if it cannot be read or written.
    pub fn open(dir: &Path, limits: Limits, host: &str, pop: &str) -> Result<Arc<Self>, Error> {
        if limits.total_bytes < LIMIT_BYTES_MIN {
            return Err(Error::refused(format!("spool size limit must be at least {LIMIT_BYTES_MIN} bytes")));
        }
        disk::create_dir_all(dir).map_err(Error::file("create directory", dir))?;
        let lock = lock_dir(dir)?;
        let mut mark = Mark::read_or_make(dir)?;
        let found = segment::find(dir).map_err(Error::file("read spool in", dir))?;
        for path in &found.unreadable {
            tracing::warn!(path = %path.display(), "unreadable spool segment removed");
        }
        if found.is_tail_damaged {
            tracing::error!(dir = %dir.display(), "last spool records are damaged and lost");
        }
        let is_certain = mark.boot == boot() && !found.is_tail_damaged;
        if !is_certain {
            tracing::info!("record numbers skip ahead: last synced record unknown");
        }
        mark.next = mark.next.max(found.end);
        if !is_certain {
            // If the directory was restored from a backup, numbers may have been assigned after the
            // backup was taken.
            let given_max = unix_us().saturating_sub(mark.epoch) / US_PER_RECORD_MIN;
            mark.skip(given_max.saturating_sub(mark.next).max(UNSYNCED_RECORDS_MAX));
        }
        let boot = boot();
        let sockets = boot.as_deref().filter(|_| is_certain).and_then(|boot| sockets::read(dir, boot));
        let saved = sockets.as_ref().map(|(next, _)| *next);
        let sockets = sockets
            .and_then(|(next, saved)| sockets::catch_up(dir, &found.segments, (next, found.end), saved));
        let saved = saved.filter(|_| sockets.is_some()).unwrap_or(u64::MAX);
        let edges =
            segment::edge_positions(dir, &found.segments).map_err(Error::file("read spool in", dir))?;
        let writer = Writer::new(mark.next, edges).map_err(Error::file("start writing spool in", dir))?;
        // Write the marker before deleting the files from which it was derived.
        mark.write(dir)?;
        found.tidy(dir).map_err(Error::file("clean up spool in", dir))?;
        let source = Source { host: host.to_owned(), pop: pop.to_owned(), epoch: mark.epoch };
        let Found { segments, .. } = found;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            limits,
            source,
            unused: mark.unused,
            writer: Mutex::new(writer),
            state: Mutex::new(State::new(segments, saved)),
            boot,
            sockets: Mutex::new(sockets),
            appended: AtomicU64::new(0),
            changed: Condvar::new(),
            _lock: lock,
        }))
    }

    /// Returns the host, site and epoch of the spool's records.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Appends records in frames of a few thousand records. Appending many records at once is
    /// cheaper. Never fails: records that cannot be written are logged and counted as lost.
    pub fn append(&self, records: Vec<impl Into<Arrival>>, now_unix_us: u64) -> Appended {
        self.writer().append(self, records.into_iter().map(Into::into), now_unix_us)
    }

    /// Returns the stored position of each of `edges`. Deletes the positions of all other edges.
    pub fn edge_positions(&self, edges: &[Arc<str>]) -> Vec<Option<EdgePosition>> {
        self.writer().edge_positions(edges)
    }

    /// Creates the reader for the sink `name`. All readers must be created before the first append,
    /// because records that no reader needs are deleted.
    ///
    /// # Errors
    ///
    /// Returns an error if the sink's position file cannot be read, if there are already
    /// [`READERS_MAX`] readers, or if a reader with this name exists.
    pub fn reader(self: &Arc<Self>, name: &'static str) -> Result<Reader, Error> {
        Reader::new(Arc::clone(self), name)
    }

    /// Closes the spool: writes a pending loss record, syncs, and gives the readers up to `drain`
    /// to read the remaining records. Records not read by then are read after the spool is
    /// reopened.
    pub fn close(&self, drain: Duration) {
        let mut writer = self.writer();
        writer.append_loss(self, unix_us());
        writer.sync();
        drop(writer);
        self.state().closed = Some(Instant::now() + drain);
        self.changed.notify_all();
    }

    /// Waits for `span`, or until the spool is closed. If it is already closed, waits at most until
    /// the drain deadline.
    pub(crate) fn wait(&self, span: Duration) {
        let end = Instant::now() + span;
        let mut state = self.state();
        let was_open = state.closed.is_none();
        loop {
            let end = state.closed.map_or(end, |closed| closed.min(end));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || was_open && state.closed.is_some() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether the spool is closed and its drain deadline has passed. Readers then return
    /// no more batches.
    pub fn is_over(&self) -> bool {
        self.state().closed.is_some_and(|end| end <= Instant::now())
    }

    /// Returns the amount of data left to read for a sink at `position`.
    pub fn lag(&self, position: u64) -> Lag {
        let (records, bytes) = self.state().from(position);
        Lag { records, bytes }
    }

    /// Returns the socket totals as of the newest record in the spool, if they could be restored.
    /// They are returned only once, because new records make them outdated.
    pub(crate) fn saved_sockets(&self) -> Option<Saved> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Saves socket totals. Everything they count must be in records that have already been
    /// appended.
    pub(crate) fn save_sockets(&self, sockets: &[u8]) {
        let Some(boot) = &self.boot else { return };
        let next = self.writer().next();
        match sockets::write(&self.dir, next, boot, sockets) {
            Ok(()) => self.state().saved = next,
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "socket totals not saved");
            }
        }
    }

    /// Returns the number of deleted records not yet read by a sink whose next record number is
    /// `next`.
    pub fn gone(&self, next: u64) -> u64 {
        let spans = self.state().gone(next);
        spans
            .iter()
            .map(|span| (span.end - span.start).saturating_sub(self.unused(span.start, span.end)))
            .sum()
    }

    /// Returns the number of records appended since the process started.
    pub fn appended(&self) -> u64 {
        self.appended.load(Relaxed)
    }

    /// Returns the total size of all spool segments in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.state().total_bytes()
    }

    /// Returns the limit on the total size of all spool segments in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limits.total_bytes
    }

    /// Returns the number of record numbers in `first..end` known never to have been assigned.
    fn unused(&self, first: u64, end: u64) -> u64 {
        let within = |span: &Range<u64>| span.end.min(end).saturating_sub(span.start.max(first));
        self.unused.iter().map(within).sum()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks the directory for this process.
fn lock_dir(dir: &Path) -> Result<File, Error> {
    let path = dir.join("lock");
    let lock = disk::create(&path).map_err(Error::file("make", &path))?;
    lock.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => Error::refused(format!(
            "the spool in {} is used by another process: stop it, or choose another directory",
            dir.display()
        )),
        fs::TryLockError::Error(cause) => Error::file("lock", &path)(cause),
    })?;
    Ok(lock)
}
