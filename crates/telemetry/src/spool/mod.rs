//! The spool: a directory in which every record is put before anybody else has it, and read from by each sink at its pace.
//!
//! ```text
//! DIR/spool                          the epoch of the numbers, the boot in which they were given, the least free one, and
//!                                    which were never given
//! DIR/lock                           held by the one process that uses the directory
//! DIR/00000000000000000000.segment   frames: one batch each
//! DIR/sockets                        what sockets had counted, as of a record's number
//! DIR/sqlite.position                how far the sink of that name is, and what it has lost
//! ```
//!
//! **Invariant:** a record has its number, and is in the file, before `append` returns: a killed process loses none. A machine
//! that loses power loses at most what was appended since the last sync, and gives no number twice for it.
//! **Invariant:** how far the responses of edges have been heard is in the frame of the last one of them: a killed process knows
//! exactly what it has of them when it begins again.
//! **Invariant:** for each sink, what was appended is what it has kept, what is counted as lost to it, and what it has before it.
//! What is lost to one sink is in its note and its metrics; a record of it would be one more in a spool that is full.
//! **Invariant:** a batch that a sink is not done with is given again after a restart as it was, with the same numbers: the
//! segment that the last one given lies in stays, whatever room is needed.
//! **Invariant:** the segments take no more than the limit. One goes when all sinks have said where they are and are done with it,
//! else when room is needed.
//!
//! Lock order: the writer's, then the state's.

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

use thalweg_record::{Heard, Network, Record, Source};

pub use reader::Reader;

use crate::Error;
use crate::clock::unix_us;
use crate::collect::Saved;
use crate::disk;
use mark::{Mark, boot};
use segment::Found;
use state::State;
use writer::Writer;

/// A segment is not made longer than this, but for its last frame.
pub const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// A spool cannot be bounded to less than this.
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// Segments that the limit has room for, at least: each sink holds one of them.
const SEGMENTS_MIN: u64 = 16;
/// Sinks of a spool.
pub const READERS_MAX: usize = 8;
/// A frame is synced before as many records were given numbers after it. What a loss of power took may have been read by a
/// sink, so numbers go on this much higher after a boot.
const UNSYNCED_RECORDS_MAX: u64 = 1_000_000;
/// No spool is given more records since it was made than one in so many microseconds.
const US_PER_RECORD_MIN: u64 = 10;

/// What a spool may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all segments together; [`LIMIT_BYTES_MIN`] is the least.
    pub total_bytes: u64,
}

impl Limits {
    fn segment_bytes(self) -> u64 {
        (self.total_bytes / SEGMENTS_MIN).min(SEGMENT_BYTES_MAX)
    }
}

/// What is put into the spool.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Where the client is.
    pub network: Network,
    /// The record.
    pub record: Record,
    /// How far an edge has been heard with this record, if it tells of responses of one.
    pub heard: Option<Heard>,
}

impl From<(Network, Record)> for Arrival {
    fn from((network, record): (Network, Record)) -> Self {
        Self { network, record, heard: None }
    }
}

/// What became of records that were appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The numbers given, those of records of a loss before included.
    pub numbers: Range<u64>,
    /// Records that could not be written. A loss record of them comes with the next append that succeeds.
    pub lost: u64,
}

/// What a sink has before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Records.
    pub records: u64,
    /// Their bytes in the spool, about.
    pub bytes: u64,
}

/// A spool in a directory.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    limits: Limits,
    source: Source,
    /// Numbers that were never given, in order.
    unused: Vec<Range<u64>>,
    writer: Mutex<Writer>,
    state: Mutex<State>,
    boot: Option<String>,
    sockets: Mutex<Option<Saved>>,
    appended: AtomicU64,
    changed: Condvar,
    /// Held as long as the spool is.
    _lock: File,
}

impl Spool {
    /// Opens the spool in `dir`, which is made if it is not there, for records of a machine and its site.
    ///
    /// # Errors
    /// When another process uses the directory, it was written by a newer release, or cannot be read or written.
    pub fn open(dir: &Path, limits: Limits, host: &str, pop: &str) -> Result<Arc<Self>, Error> {
        if limits.total_bytes < LIMIT_BYTES_MIN {
            return Err(Error::refused(format!("a spool takes at least {LIMIT_BYTES_MIN} bytes")));
        }
        disk::create_dir_all(dir).map_err(Error::file("make the directory", dir))?;
        let lock = lock_dir(dir)?;
        let mut mark = Mark::read_or_make(dir)?;
        let found = segment::find(dir).map_err(Error::file("read the spool in", dir))?;
        for path in &found.unreadable {
            tracing::warn!(path = %path.display(), "spool segment cannot be read, removed");
        }
        if found.is_tail_damaged {
            tracing::error!(dir = %dir.display(), "the spool's last records are damaged and lost");
        }
        let is_certain = mark.boot == boot() && !found.is_tail_damaged;
        if !is_certain {
            tracing::info!("record numbers go on higher: what was synced last is not known");
        }
        mark.next = mark.next.max(found.end);
        if !is_certain {
            // Of a backup, numbers may have been given since that nobody here knows of.
            let given_max = unix_us().saturating_sub(mark.epoch) / US_PER_RECORD_MIN;
            mark.leave_out(given_max.saturating_sub(mark.next).max(UNSYNCED_RECORDS_MAX));
        }
        let boot = boot();
        let sockets = boot.as_deref().filter(|_| is_certain).and_then(|boot| sockets::read(dir, boot));
        let saved = sockets.as_ref().map(|(next, _)| *next);
        let sockets =
            sockets.and_then(|(next, saved)| sockets::go_on(dir, &found.segments, (next, found.end), saved));
        let saved = saved.filter(|_| sockets.is_some()).unwrap_or(u64::MAX);
        let edges = segment::heard(dir, &found.segments).map_err(Error::file("read the spool in", dir))?;
        let writer = Writer::new(mark.next, edges).map_err(Error::file("begin to write", dir))?;
        // Before anything is removed by which the next start would know the same.
        mark.write(dir)?;
        found.tidy(dir).map_err(Error::file("tidy the spool in", dir))?;
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

    /// Who the records are of.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Puts records into the spool, in batches of some thousand. Many at once are cheaper than one after the other. Never fails:
    /// what cannot be written is lost, told and counted.
    pub fn append(&self, records: Vec<impl Into<Arrival>>, now_unix_us: u64) -> Appended {
        self.writer().append(self, records.into_iter().map(Into::into), now_unix_us)
    }

    /// How far each of these edges was heard, where it was. What the spool knows of others is forgotten.
    pub fn heard(&self, edges: &[Arc<str>]) -> Vec<Option<Heard>> {
        self.writer().heard(edges)
    }

    /// The next batches for a sink of this name. All sinks take their reader before the first record is appended: what none of
    /// those has before it is removed.
    ///
    /// # Errors
    /// When its note cannot be read, there are [`READERS_MAX`] others, or one of this name.
    pub fn reader(self: &Arc<Self>, name: &'static str) -> Result<Reader, Error> {
        Reader::new(Arc::clone(self), name)
    }

    /// Lets the readers have what is there for as long as `drain`, then ends them. What they have not read then is there when
    /// the spool is opened again. Also syncs, and writes the loss record that is due.
    pub fn close(&self, drain: Duration) {
        let mut writer = self.writer();
        writer.append_loss(self, unix_us());
        writer.sync();
        drop(writer);
        self.state().closed = Some(Instant::now() + drain);
        self.changed.notify_all();
    }

    /// Waits as long as `span`, until the spool is closed, or until the time to drain it is over.
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

    /// Whether readers get nothing any more: the spool was closed, and the time to drain it is over.
    pub fn is_over(&self) -> bool {
        self.state().closed.is_some_and(|end| end <= Instant::now())
    }

    /// What a sink has before it that has kept all before `position`.
    pub fn lag(&self, position: u64) -> Lag {
        let (records, bytes) = self.state().from(position);
        Lag { records, bytes }
    }

    /// What sockets had counted by the records that there are, as it was saved last; once, since records come now.
    pub(crate) fn saved_sockets(&self) -> Option<Saved> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Saves what sockets have counted, all of which is in records that were appended.
    pub(crate) fn save_sockets(&self, sockets: &[u8]) {
        let Some(boot) = &self.boot else { return };
        let next = self.writer().next();
        match sockets::write(&self.dir, next, boot, sockets) {
            Ok(()) => self.state().saved = next,
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "what sockets counted is not saved");
            }
        }
    }

    /// Records that are gone before a sink has read them that reads on with number `next`.
    pub fn gone(&self, next: u64) -> u64 {
        let spans = self.state().gone(next);
        spans
            .iter()
            .map(|span| (span.end - span.start).saturating_sub(self.unused(span.start, span.end)))
            .sum()
    }

    /// Records that were put into it since the process began.
    pub fn appended(&self) -> u64 {
        self.appended.load(Relaxed)
    }

    /// Bytes that the segments take.
    pub fn total_bytes(&self) -> u64 {
        self.state().total_bytes()
    }

    /// How many numbers between two were never given, as far as that is known.
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

/// Takes the directory for this process.
fn lock_dir(dir: &Path) -> Result<File, Error> {
    let path = dir.join("lock");
    let lock = disk::create(&path).map_err(Error::file("make", &path))?;
    lock.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => Error::refused(format!(
            "the spool in {} is used by another process: end it, or give this one another directory",
            dir.display()
        )),
        fs::TryLockError::Error(cause) => Error::file("lock", &path)(cause),
    })?;
    Ok(lock)
}
