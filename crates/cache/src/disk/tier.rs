//! The tier as a whole: its threads, what they are asked for, the budget, and what is told of it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_http::validators::has_validator;

use super::files::Directory;
use super::jobs::Jobs;
use super::journaling::{Journal, Start};
use super::owed::Owed;
use super::queue::{Queue, STEPS_MAX};
use super::record::{BLOCK_BYTES, CONTENT_BYTES_MAX};
use super::{Copy, Disk, Open, Stats};
use crate::fill::Backing;
use crate::store::{Cache, Head, Stored};
use crate::sync::lock;

/// Threads that read what is about to be sent.
const READ_THREADS: usize = 4;
/// Threads that write what was fetched, and remove what is not needed any more.
const WRITE_THREADS: usize = 2;
/// Responses that wait to be written hold their memory: at most this part of all of it.
const QUEUE_SHARE_MAX: u64 = 4;
/// Content of one response may take this part of the disk's budget at most.
const CONTENT_SHARE_MAX: u64 = 4;
/// Files that are kept open beside those that are being read.
pub(crate) const OPEN_FILES_MAX: usize = 1024;
/// A response that is fresh for less, and has no validator, is not worth writing.
const LIFETIME_MIN_MS: u64 = 10_000;
/// Failed writes in a row after which writing pauses.
const FAILURES_MAX: u32 = 3;
/// For so long.
const FAILURES_PAUSE: Duration = Duration::from_secs(10);
/// After the disk was full, what lay on it then is the budget for so long.
const FULL_TIME: Duration = Duration::from_secs(60);
/// Between two warnings.
const WARN_PAUSE: Duration = Duration::from_secs(10);
/// How long what waits to be written may take once the tier is to stop.
const STOP_TIME_MAX: Duration = Duration::from_millis(500);

/// The disk tier of one cache.
#[derive(Debug)]
pub(crate) struct Tier {
    directory: Directory,
    bytes_max: u64,
    queue_bytes_max: u64,
    pub(super) cache: Weak<Cache>,
    reads: Jobs<(Arc<Copy>, u64)>,
    pub(super) writes: Jobs<Write>,
    pub(super) journal: Journal,
    pub(super) start: Start,
    pub(super) owed: Mutex<Owed>,
    /// Of responses that wait to be written: how many, and their content.
    waiting: Mutex<Waiting>,
    /// The queue was empty since it last had no room.
    catches_up: AtomicBool,
    pub(super) queue: Mutex<Queue>,
    /// Held by who makes room on the disk, from the look at what there is to the eviction: two threads that see the same want
    /// would evict twice. Who makes room in the index, one step at a time, goes without.
    evicting: Mutex<()>,
    open: Mutex<VecDeque<Arc<Open>>>,
    pub(super) number: AtomicU64,
    bytes: AtomicU64,
    responses: AtomicUsize,
    errors: AtomicU64,
    skipped: AtomicU64,
    troubles: Mutex<Troubles>,
    threads: Mutex<Threads>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// What a write thread is asked for.
#[derive(Debug)]
pub(super) enum Write {
    /// A response, in memory.
    Response(Arc<Stored>),
    /// A newer head of what is on disk.
    Head(Arc<Copy>),
    /// A file that is to go.
    Remove(super::files::Name),
    /// What was purged up to this number is gone once all before this is done: the journal need not tell it any more. Unless
    /// more heads than these were left to walks.
    ShortenJournal { number: u64, heads_left: u64 },
}

/// Responses that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    responses: usize,
    /// Memory that they hold.
    bytes: u64,
    /// There was no room for one.
    refused: bool,
}

/// What went wrong lately.
#[derive(Debug, Default)]
struct Troubles {
    in_a_row: u32,
    paused_until: Option<Instant>,
    /// Until when this is the budget.
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
    pub(crate) fn new(disk: Disk, memory_bytes: u64, cache: Weak<Cache>) -> Arc<Self> {
        Arc::new(Self {
            directory: disk.directory,
            bytes_max: disk.bytes_max,
            queue_bytes_max: memory_bytes / QUEUE_SHARE_MAX,
            cache,
            reads: Jobs::held(),
            writes: Jobs::held(),
            journal: Journal::default(),
            start: disk.start,
            owed: Mutex::default(),
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
            troubles: Mutex::default(),
            threads: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Starts its threads. What lies on disk is found from now on, bit by bit.
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.reads.let_go();
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

    /// Waits until all that lies on disk is known, no longer than `longest`.
    pub(crate) fn wait_scanned(&self, longest: Duration) -> bool {
        let threads = lock(&self.threads);
        let waited = self.changed.wait_timeout_while(threads, longest, |threads| !threads.is_scanned);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_scanned
    }

    pub(super) fn set_scanned(&self) {
        lock(&self.threads).is_scanned = true;
        self.changed.notify_all();
    }

    /// Everything was tested against the purges up to `number`, and the removal of what they took away was asked for, by a
    /// walk that began when there were so many [`heads_left`](Self::heads_left).
    pub(crate) fn shorten_journal(&self, number: u64, heads_left: u64) {
        self.writes.put(Write::ShortenJournal { number, heads_left });
    }

    /// Takes nothing more on, and ends once what waits is written, or it has taken long enough.
    pub(crate) fn stop(&self) {
        self.close();
        let threads = lock(&self.threads);
        let waited =
            self.changed.wait_timeout_while(threads, STOP_TIME_MAX * 2, |threads| threads.running > 0);
        drop(waited);
        self.forget_writes();
        // A thread that still waits for the disk writes under a name that nobody reads.
        self.directory.unlock();
    }

    /// Lets the threads end.
    pub(crate) fn close(&self) {
        lock(&self.threads).stop_at.get_or_insert_with(|| Instant::now() + STOP_TIME_MAX);
        self.stopping.store(true, Relaxed);
        self.reads.close();
        drop(self.reads.forget());
        self.writes.let_go();
        self.writes.close();
        self.journal.close();
    }

    /// Whether work is to be dropped where it stands.
    pub(super) fn is_over(&self) -> bool {
        self.stopping.load(Relaxed) && lock(&self.threads).stop_at.is_some_and(|at| Instant::now() > at)
    }

    /// Whether nothing new is to be begun.
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

    /// Keeps a file open until others have been opened after it.
    pub(super) fn keep_open(&self, open: &Arc<Open>) {
        let mut files = lock(&self.open);
        files.push_back(open.clone());
        let closed = if files.len() > OPEN_FILES_MAX { files.pop_front() } else { None };
        drop(files);
        drop(closed);
    }

    /// Takes a complete response of `length` bytes to be written, if it is worth that and the queue has room.
    pub(crate) fn offer(&self, stored: &Arc<Stored>, length: u64) {
        if !is_worth_writing(&stored.head) {
            return;
        }
        if self.is_too_large(length) || self.is_paused() || !self.enqueue(stored, length) {
            self.skip();
        }
    }

    /// The same for a response that is found in memory, once the queue has caught up: it may have come when there was no
    /// room, and whoever asks for it says that it is worth its place.
    pub(crate) fn offer_again(&self, stored: &Arc<Stored>, length: u64) {
        if is_worth_writing(&stored.head) && !self.is_too_large(length) && !self.is_paused() {
            self.enqueue(stored, length);
        }
    }

    /// Whether what had no room may have some now.
    pub(crate) fn catches_up(&self) -> bool {
        self.catches_up.load(Relaxed)
    }

    fn is_too_large(&self, length: u64) -> bool {
        length > CONTENT_BYTES_MAX.min(self.bytes_max / CONTENT_SHARE_MAX)
    }

    /// False if the queue has no room. One that is larger than all that may wait goes alone.
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
            if !self.writes.put(Write::Response(stored.clone())) {
                stored.content.set_backing(Backing::None);
                self.waited(stored, length);
            }
        }
        true
    }

    /// Gives up what waits to be written: memory alone has it.
    pub(super) fn forget_writes(&self) {
        for job in self.writes.forget() {
            if let Write::Response(stored) = job
                && let Some(length) = stored.own_bytes()
            {
                stored.content.set_backing(Backing::None);
                self.waited(&stored, length);
            }
        }
    }

    /// A response of `length` bytes waits no more.
    pub(super) fn waited(&self, stored: &Stored, length: u64) {
        let mut waiting = lock(&self.waiting);
        waiting.responses -= 1;
        waiting.bytes -= waiting_bytes(stored, length);
        if waiting.responses == 0 && waiting.refused {
            self.catches_up.store(true, Relaxed);
        }
    }

    pub(super) fn put_head(&self, copy: &Arc<Copy>) {
        self.writes.put(Write::Head(copy.clone()));
    }

    pub(super) fn put_read(&self, copy: &Arc<Copy>, block: u64) {
        self.reads.put((copy.clone(), block));
    }

    /// Has a file removed by a thread.
    pub(super) fn discard(&self, copy: &Copy) {
        if let Some(bytes) = copy.leave() {
            self.uncount(bytes);
            self.writes.put(Write::Remove(copy.name()));
        }
    }

    pub(super) fn count(&self, copy: &Copy) {
        self.bytes.fetch_add(copy.bytes(), Relaxed);
        self.responses.fetch_add(1, Relaxed);
    }

    pub(super) fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.responses.fetch_sub(1, Relaxed);
    }

    /// The head beside a copy that is counted takes so many bytes more, or less.
    pub(super) fn count_more(&self, bytes: i64) {
        self.bytes.fetch_add(bytes.cast_unsigned(), Relaxed); // wraps, and so subtracts
    }

    /// Whether `more` bytes are within the budget.
    pub(super) fn has_room(&self, more: u64) -> bool {
        let full = lock(&self.troubles).full.filter(|(until, _)| Instant::now() < *until);
        let bytes_max = full.map_or(self.bytes_max, |(_, bytes)| bytes.min(self.bytes_max));
        self.bytes.load(Relaxed).saturating_add(more) <= bytes_max
    }

    /// Takes what the queue gives out of the disk if that `is_wanted`, rather what is in use than nothing, and out of the
    /// index unless memory has it too. The file is still there; it is the caller's to remove.
    pub(super) fn evict_if(&self, is_wanted: impl FnOnce() -> bool) -> Option<Arc<Copy>> {
        let _evicting = lock(&self.evicting);
        is_wanted().then(|| self.take_out(true, &mut { STEPS_MAX })).flatten()
    }

    /// Makes room in the index: something that only the disk has, and nobody used of late, is forgotten, if `steps` are
    /// enough to find it.
    pub(crate) fn evict_for_index(&self, steps: &mut usize) -> bool {
        let victim = self.take_out(false, steps);
        victim.is_some_and(|victim| self.writes.put(Write::Remove(victim.name())))
    }

    fn take_out(&self, any: bool, steps: &mut usize) -> Option<Arc<Copy>> {
        let victim = lock(&self.queue).victim(any, steps)?;
        if let Some(cache) = self.cache.upgrade() {
            cache.left_disk(&victim);
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

    fn read(&self, copy: &Arc<Copy>, block: u64, buffer: &mut [u8]) {
        let (Some(cache), Some(content)) = (self.cache.upgrade(), copy.content()) else { return };
        match copy.verify(block, buffer) {
            Ok(bytes) => {
                if bytes.len() as u64 == copy.length() && cache.raises(copy.length()) {
                    cache.raise(copy, &content, bytes);
                }
                copy.answered(block);
                content.wake();
            }
            Err(error) => {
                // What was removed meanwhile cannot be read, and that is no error of the disk's.
                if !copy.is_gone() {
                    self.failed("a stored response cannot be read from the disk", &error);
                }
                copy.lose();
                cache.lost(copy, &content);
                self.discard(copy);
            }
        }
    }

    /// A response is not written.
    pub(super) fn skip(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    /// Whether nothing is to be written for a while.
    pub(super) fn is_paused(&self) -> bool {
        lock(&self.troubles).paused_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn wrote(&self) {
        lock(&self.troubles).in_a_row = 0;
    }

    pub(super) fn write_failed(&self, error: &io::Error) {
        let mut troubles = lock(&self.troubles);
        troubles.in_a_row += 1;
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            troubles.full = Some((Instant::now() + FULL_TIME, self.bytes.load(Relaxed)));
        }
        if troubles.in_a_row >= FAILURES_MAX {
            troubles.in_a_row = 0;
            troubles.paused_until = Some(Instant::now() + FAILURES_PAUSE);
        }
        drop(troubles);
        self.failed("a response cannot be written to the disk", error);
    }

    /// Counts an error, and warns if it has not just done so.
    pub(super) fn failed(&self, what: &'static str, error: &dyn std::fmt::Display) {
        let errors = self.errors.fetch_add(1, Relaxed) + 1;
        let mut troubles = lock(&self.troubles);
        if troubles.warned.is_none_or(|at| at.elapsed() >= WARN_PAUSE) {
            troubles.warned = Some(Instant::now());
            drop(troubles);
            tracing::warn!(%error, errors, "{what}");
        }
    }
}

/// Memory that a response holds while it waits.
fn waiting_bytes(stored: &Stored, length: u64) -> u64 {
    length + stored.index_bytes() as u64
}

/// Whether a response will be of use once memory has evicted it, or after a start.
fn is_worth_writing(head: &Head) -> bool {
    head.freshness.lifetime_ms >= LIFETIME_MIN_MS || has_validator(&head.fields)
}

/// Tells that a thread has ended, however it did.
struct Ending(Arc<Tier>);

impl Drop for Ending {
    fn drop(&mut self) {
        lock(&self.0.threads).running -= 1;
        self.0.changed.notify_all();
    }
}
