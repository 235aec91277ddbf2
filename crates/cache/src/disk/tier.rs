//! The disk tier: threads, work queues, budget and statistics.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use thalweg_http::validators::has_validator;

use super::cleanup::Cleanup;
use super::content::{CopyHost, DiskCopy, Open, PROMOTED_BYTES_MAX};
use super::files::{Directory, Name, Unreadable};
use super::index::Index;
use super::jobs::Jobs;
use super::journaling::Journal;
use super::opened::{Disk, Start};
use super::queue::{Queue, STEPS_MAX};
use super::record::{BLOCK_BYTES, CONTENT_BYTES_MAX, Record};
use crate::entry::Head;
use crate::fill::Backing;
use crate::stored::Stored;
use crate::sync::lock;

/// Number of threads that read content about to be sent.
const READ_THREADS: usize = 4;
/// Number of threads that write fetched responses and remove files.
const WRITE_THREADS: usize = 2;
/// Maximum fraction (1/n) of memory held by responses queued for writing.
const QUEUE_SHARE_MAX: u64 = 4;
/// Maximum fraction (1/n) of the disk budget for one response's content.
const CONTENT_SHARE_MAX: u64 = 4;
/// Maximum number of files kept open in addition to those being read.
pub(crate) const OPEN_FILES_MAX: usize = 1024;
/// Minimum lifetime at which a response without a validator is worth writing.
const LIFETIME_MIN_MS: u64 = 10_000;
/// Number of consecutive failed writes after which writing pauses.
const FAILURES_MAX: u32 = 3;
/// Duration of the pause after failed writes.
const FAILURES_PAUSE: Duration = Duration::from_secs(10);
/// How long the budget stays reduced to the bytes that were in use when the disk was full.
const FULL_TIME: Duration = Duration::from_secs(60);
/// Minimum time between two warnings.
const WARN_PAUSE: Duration = Duration::from_secs(10);
/// Maximum time to finish queued writes once the tier is stopping.
const STOP_TIME_MAX: Duration = Duration::from_millis(500);

/// Disk tier statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Maximum total size of the files, in bytes.
    pub bytes_max: u64,
    /// Stored responses on disk, including those also in memory.
    pub responses: usize,
    /// Files that could not be written, read or removed, or whose contents did not match.
    pub errors: u64,
    /// Responses not written because they were too large, the queue was full, no room could be made
    /// on disk, or writing was paused after errors.
    pub skipped: u64,
    /// Whether the startup scan is complete.
    pub is_scanned: bool,
}

/// The disk tier of one cache.
#[derive(Debug)]
pub(crate) struct Tier {
    directory: Directory,
    bytes_max: u64,
    queue_bytes_max: u64,
    pub(super) index: Weak<dyn Index>,
    reads: Jobs<(Arc<DiskCopy>, u64)>,
    pub(super) writes: Jobs<Write>,
    pub(super) journal: Journal,
    pub(super) start: Start,
    pub(super) cleanup: Mutex<Cleanup>,
    /// Number and total size of the responses queued for writing.
    waiting: Mutex<Waiting>,
    /// Whether the queue has emptied since it last refused a response.
    catches_up: AtomicBool,
    pub(super) queue: Mutex<Queue>,
    /// Held while making room on disk, from the check to the eviction. Otherwise, two threads that
    /// see the same shortage would both evict. Not needed to make room in the index, which takes
    /// one step at a time.
    evicting: Mutex<()>,
    open: Mutex<VecDeque<Arc<Open>>>,
    pub(super) number: AtomicU64,
    bytes: AtomicU64,
    responses: AtomicUsize,
    errors: AtomicU64,
    skipped: AtomicU64,
    recent_errors: Mutex<RecentErrors>,
    threads: Mutex<Threads>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// A job for a write thread.
#[derive(Debug)]
pub(super) enum Write {
    /// Write a response from memory.
    Response(Arc<Stored>),
    /// Write a newer head of a response on disk.
    Head(Arc<DiskCopy>),
    /// Remove a file.
    Remove(Name),
    /// Shorten the journal. Once all earlier jobs are done, no response purged up to `number` is
    /// left on disk. Skipped if more than `heads_left` heads have been left to sweeps.
    ShortenJournal { number: u64, heads_left: u64 },
}

/// Responses queued for writing.
#[derive(Debug, Default)]
struct Waiting {
    responses: usize,
    /// Memory held by the responses, in bytes.
    bytes: u64,
    /// Whether a response was refused because the queue was full.
    refused: bool,
}

/// Recent errors.
#[derive(Debug, Default)]
struct RecentErrors {
    consecutive: u32,
    paused_until: Option<Instant>,
    /// When the reduced budget expires, and its size in bytes.
    full: Option<(Instant, u64)>,
    warned: Option<Instant>,
}

#[derive(Debug, Default)]
struct Threads {
    running: usize,
    is_scanned: bool,
    stop_at: Option<Instant>,
}

impl Tier {
    pub(crate) fn new(disk: Disk, memory_bytes: u64, index: Weak<dyn Index>) -> Arc<Self> {
        Arc::new(Self {
            directory: disk.directory,
            bytes_max: disk.bytes_max,
            queue_bytes_max: memory_bytes / QUEUE_SHARE_MAX,
            index,
            reads: Jobs::paused(),
            writes: Jobs::paused(),
            journal: Journal::default(),
            start: disk.start,
            cleanup: Mutex::default(),
            waiting: Mutex::default(),
            catches_up: AtomicBool::new(false),
            queue: Mutex::default(),
            evicting: Mutex::default(),
            open: Mutex::default(),
            number: AtomicU64::new(1),
            bytes: AtomicU64::new(0),
            responses: AtomicUsize::new(0),
            errors: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            recent_errors: Mutex::default(),
            threads: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Starts the threads and the startup scan.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.reads.release();
        self.journal.open();
        self.spawn("disk-journal".into(), Self::run_journal)?;
        self.spawn("disk-sync".into(), Self::run_syncs)?;
        self.spawn("disk-scan".into(), Self::scan)?;
        for number in 0..READ_THREADS {
            self.spawn(format!("disk-read-{number}"), Self::run_reads)?;
        }
        for number in 0..WRITE_THREADS {
            self.spawn(format!("disk-write-{number}"), Self::run_writes)?;
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, name: String, run: fn(&Arc<Self>)) -> io::Result<()> {
        let ending = Ending(self.clone());
        lock(&self.threads).running += 1;
        thread::Builder::new().name(name).spawn(move || run(&ending.0))?;
        Ok(())
    }

    /// Waits at most `longest` for the startup scan; returns whether it is complete.
    pub(crate) fn wait_scanned(&self, longest: Duration) -> bool {
        let threads = lock(&self.threads);
        let waited = self.changed.wait_timeout_while(threads, longest, |threads| !threads.is_scanned);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_scanned
    }

    pub(super) fn set_scanned(&self) {
        lock(&self.threads).is_scanned = true;
        self.changed.notify_all();
    }

    /// Queues the shortening of the journal. A sweep must have tested every response against the
    /// purges up to `number` and queued the removal of purged files. `heads_left` is the value of
    /// [`heads_left`](Self::heads_left) at the start of that sweep.
    pub(crate) fn shorten_journal(&self, number: u64, heads_left: u64) {
        self.writes.push(Write::ShortenJournal { number, heads_left });
    }

    /// Refuses new work, and stops once queued writes are done or the time limit is reached.
    pub(crate) fn stop(&self) {
        self.close();
        let threads = lock(&self.threads);
        let waited =
            self.changed.wait_timeout_while(threads, STOP_TIME_MAX * 2, |threads| threads.running > 0);
        drop(waited);
        self.forget_writes();
        // A thread still waiting for the disk writes only to a temporary file, which is never read.
        self.directory.unlock();
    }

    /// Signals the threads to exit.
    pub(crate) fn close(&self) {
        lock(&self.threads).stop_at.get_or_insert_with(|| Instant::now() + STOP_TIME_MAX);
        self.stopping.store(true, Relaxed);
        self.reads.close();
        drop(self.reads.forget());
        self.writes.release();
        self.writes.close();
        self.journal.close();
    }

    /// Returns whether work in progress must be abandoned.
    pub(super) fn is_past_deadline(&self) -> bool {
        self.stopping.load(Relaxed) && lock(&self.threads).stop_at.is_some_and(|at| Instant::now() > at)
    }

    /// Returns whether the tier is stopping, so that no new work may start.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            bytes: self.bytes.load(Relaxed),
            bytes_max: self.bytes_max,
            responses: self.responses.load(Relaxed),
            errors: self.errors.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            is_scanned: lock(&self.threads).is_scanned,
        }
    }

    /// Queues a complete response of `length` bytes for writing, if it is worth writing and the
    /// queue has room.
    pub(crate) fn offer(&self, stored: &Arc<Stored>, length: u64) {
        if !is_worth_writing(&stored.head) {
            return;
        }
        if self.is_too_large(length) || self.is_paused() || !self.enqueue(stored, length) {
            self.skip();
        }
    }

    /// Offers a response found in memory again, once the queue has caught up. The queue may have
    /// been full at the first offer, and the new request shows that the response is worth writing.
    pub(crate) fn offer_again(&self, stored: &Arc<Stored>, length: u64) {
        if is_worth_writing(&stored.head) && !self.is_too_large(length) && !self.is_paused() {
            self.enqueue(stored, length);
        }
    }

    /// Returns whether the queue may now have room for a response that it refused.
    pub(crate) fn catches_up(&self) -> bool {
        self.catches_up.load(Relaxed)
    }

    fn is_too_large(&self, length: u64) -> bool {
        length > CONTENT_BYTES_MAX.min(self.bytes_max / CONTENT_SHARE_MAX)
    }

    /// Queues a response. Returns false if the queue has no room. A response larger than the whole
    /// queue is accepted only by an empty queue.
    fn enqueue(&self, stored: &Arc<Stored>, length: u64) -> bool {
        let bytes = waiting_bytes(stored, length);
        let mut waiting = lock(&self.waiting);
        if waiting.responses > 0 && waiting.bytes + bytes > self.queue_bytes_max {
            waiting.refused = true;
            self.catches_up.store(false, Relaxed);
            drop(waiting);
            stored.content.set_backing(Backing::Refused);
            return false;
        }
        if stored.content.await_copy() {
            waiting.responses += 1;
            waiting.bytes += bytes;
            drop(waiting);
            if !self.writes.push(Write::Response(stored.clone())) {
                stored.content.set_backing(Backing::None);
                self.left_queue(stored, length);
            }
        }
        true
    }

    /// Drops all queued writes; their responses stay in memory only.
    pub(super) fn forget_writes(&self) {
        for job in self.writes.forget() {
            if let Write::Response(stored) = job
                && let Some(length) = stored.own_bytes()
            {
                stored.content.set_backing(Backing::None);
                self.left_queue(&stored, length);
            }
        }
    }

    /// Records that a response of `length` bytes has left the write queue.
    pub(super) fn left_queue(&self, stored: &Stored, length: u64) {
        let mut waiting = lock(&self.waiting);
        waiting.responses -= 1;
        waiting.bytes -= waiting_bytes(stored, length);
        if waiting.responses == 0 && waiting.refused {
            self.catches_up.store(true, Relaxed);
        }
    }

    pub(super) fn count(&self, copy: &DiskCopy) {
        self.bytes.fetch_add(copy.bytes(), Relaxed);
        self.responses.fetch_add(1, Relaxed);
    }

    pub(super) fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.responses.fetch_sub(1, Relaxed);
    }

    /// Adjusts the byte count by the growth of a counted copy's head file, negative if it shrank.
    pub(super) fn count_more(&self, bytes: i64) {
        self.bytes.fetch_add(bytes.cast_unsigned(), Relaxed); // wraps around, and so subtracts
    }

    /// Returns whether `more` bytes fit the budget.
    pub(super) fn has_room(&self, more: u64) -> bool {
        let full = lock(&self.recent_errors).full.filter(|(until, _)| Instant::now() < *until);
        let bytes_max = full.map_or(self.bytes_max, |(_, bytes)| bytes.min(self.bytes_max));
        self.bytes.load(Relaxed).saturating_add(more) <= bytes_max
    }

    /// If `is_wanted` returns true, evicts the queue's next victim, and removes its response from
    /// the index unless its content is also in memory. Evicts a recently used copy if no other is
    /// found. The caller must then remove the file.
    pub(super) fn evict_if(&self, is_wanted: impl FnOnce() -> bool) -> Option<Arc<DiskCopy>> {
        let _evicting = lock(&self.evicting);
        is_wanted().then(|| self.evict_one(true, &mut { STEPS_MAX })).flatten()
    }

    /// Makes room in the index by dropping a response that is only on disk and was not used
    /// recently. Returns false if none is found within `steps`.
    pub(crate) fn evict_for_index(&self, steps: &mut usize) -> bool {
        let victim = self.evict_one(false, steps);
        victim.is_some_and(|victim| self.writes.push(Write::Remove(victim.name())))
    }

    fn evict_one(&self, any: bool, steps: &mut usize) -> Option<Arc<DiskCopy>> {
        let victim = lock(&self.queue).victim(any, steps)?;
        if let Some(index) = self.index.upgrade() {
            index.left_disk(&victim);
        }
        if let Some(bytes) = victim.leave() {
            self.uncount(bytes);
        }
        Some(victim)
    }

    fn run_reads(self: &Arc<Self>) {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Some((copy, block)) = self.reads.next() {
            self.read(&copy, block, &mut buffer);
        }
    }

    fn read(&self, copy: &Arc<DiskCopy>, block: u64, buffer: &mut [u8]) {
        let (Some(index), Some(content)) = (self.index.upgrade(), copy.content()) else { return };
        match copy.verify(block, buffer) {
            Ok(bytes) => {
                if bytes.len() as u64 == copy.length() && copy.length() < PROMOTED_BYTES_MAX {
                    index.promote(copy, &content, bytes);
                }
                copy.answered(block);
                content.wake();
            }
            Err(error) => {
                // Failing to read a file that was just removed is not a disk error.
                if !copy.is_gone() {
                    self.failed("cannot read a stored response from disk", &error);
                }
                copy.lose();
                index.lost(copy, &content);
                self.discard(copy);
            }
        }
    }

    /// Counts a response that was not written.
    pub(super) fn skip(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    /// Returns whether writing is paused.
    pub(super) fn is_paused(&self) -> bool {
        lock(&self.recent_errors).paused_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn write_succeeded(&self) {
        lock(&self.recent_errors).consecutive = 0;
    }

    pub(super) fn write_failed(&self, error: &io::Error) {
        let mut recent_errors = lock(&self.recent_errors);
        recent_errors.consecutive += 1;
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            recent_errors.full = Some((Instant::now() + FULL_TIME, self.bytes.load(Relaxed)));
        }
        if recent_errors.consecutive >= FAILURES_MAX {
            recent_errors.consecutive = 0;
            recent_errors.paused_until = Some(Instant::now() + FAILURES_PAUSE);
        }
        drop(recent_errors);
        self.failed("cannot write a response to disk", error);
    }

    /// Counts an error, and logs a warning unless one was logged recently.
    pub(super) fn failed(&self, what: &'static str, error: &dyn std::fmt::Display) {
        let errors = self.errors.fetch_add(1, Relaxed) + 1;
        let mut recent_errors = lock(&self.recent_errors);
        if recent_errors.warned.is_none_or(|at| at.elapsed() >= WARN_PAUSE) {
            recent_errors.warned = Some(Instant::now());
            drop(recent_errors);
            tracing::warn!(%error, errors, "{what}");
        }
    }
}

impl CopyHost for Tier {
    fn open_file(&self, name: Name) -> Result<(OwnedFd, Record, usize), Unreadable> {
        self.directory.read(name)
    }

    fn keep_open(&self, open: &Arc<Open>) {
        let mut files = lock(&self.open);
        files.push_back(open.clone());
        let closed = if files.len() > OPEN_FILES_MAX { files.pop_front() } else { None };
        drop(files);
        drop(closed);
    }

    fn queue_read(&self, copy: &Arc<DiskCopy>, block: u64) {
        self.reads.push((copy.clone(), block));
    }

    fn queue_head(&self, copy: &Arc<DiskCopy>) {
        self.writes.push(Write::Head(copy.clone()));
    }

    fn discard(&self, copy: &DiskCopy) {
        if let Some(bytes) = copy.leave() {
            self.uncount(bytes);
            self.writes.push(Write::Remove(copy.name()));
        }
    }
}

/// Returns the amount of memory that a queued response holds, in bytes.
fn waiting_bytes(stored: &Stored, length: u64) -> u64 {
    length + stored.index_bytes() as u64
}

/// Returns whether a response will be useful after its eviction from memory, or after a restart.
fn is_worth_writing(head: &Head) -> bool {
    head.freshness.lifetime_ms >= LIFETIME_MIN_MS || has_validator(&head.fields)
}

/// Signals a thread's exit, even after a panic.
struct Ending(Arc<Tier>);

impl Drop for Ending {
    fn drop(&mut self) {
        lock(&self.0.threads).running -= 1;
        self.0.changed.notify_all();
    }
}
