//! Bounded ring of finished responses, one per worker, with one producer (the worker) and one
//! consumer (the log writer).
//!
//! Each ring is a pair of queues: fixed-size entries, and the bytes of their strings (`texts`) in
//! the same order. The worker's thread owns the producer ([`Ring::enter`]), so appending an entry
//! takes no lock and never allocates. A worker wakes the writer only if the writer is asleep after
//! a period without entries, or if the ring is half full.
//!
//! **Invariant:** an entry is appended after its strings, so the strings are complete when the
//! writer sees the entry.
//! **Invariant:** the writer exits only after all producers are dropped, so it drains every entry.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_http::head::HEAD_BYTES_MAX;
use thalweg_record::{CacheResult, Delivery};

use super::compact::{CompactEntry, Entry};
use crate::sent::Sent;
use crate::steering::Tcp;

/// Maximum number of entries in a ring: 160 ms at 50,000 responses per second.
pub(super) const ENTRIES_MAX: usize = 8 * 1024;
/// Maximum total length of the strings in a ring, in bytes. The kernel allocates each page on first
/// write.
const TEXTS_BYTES_MAX: usize = 4 << 20;
/// Number of status classes counted: 1xx to 5xx.
pub(super) const STATUS_CLASSES: usize = 5;

// The strings of any request fit into an empty ring.
const _: () = assert!(TEXTS_BYTES_MAX >= 2 * HEAD_BYTES_MAX);

thread_local! {
    /// The ring of this worker thread.
    static OWN: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Response counts of one worker, written by that worker only. Aligned to avoid false sharing
/// between workers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    /// Entries appended to the ring.
    pub(super) appended: Count,
    /// Entries dropped because the ring was full.
    pub(super) lost: Count,
    /// Responses without an entry, because no records were being created.
    pub(super) unrecorded: Count,
    /// Started responses that get no entry and no number, because their client is not sampled.
    pub(super) sampled_out: Count,
    /// All ended responses, by cache result and status class.
    pub(super) responses: [[Count; STATUS_CLASSES]; CacheResult::ALL.len()],
    /// Content bytes that all finished responses have written to the kernel.
    pub(super) bytes: Count,
}

impl Counts {
    /// Counts a finished response.
    fn ended(&self, sent: &Sent) {
        let class = usize::from(sent.status / 100).clamp(1, STATUS_CLASSES) - 1;
        self.responses[sent.cache as usize][class].add_one();
        self.bytes.add(sent.bytes);
    }
}

/// A counter incremented by one thread and readable by any.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add_one(&self) {
        self.add(1);
    }

    fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A worker's end of its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: Producer<CompactEntry>,
    texts: Producer<u8>,
    /// Strings of one entry; kept to reuse the allocation.
    gathered: Vec<u8>,
    counts: Arc<Counts>,
    // Must be the last field: fields are dropped in order, and the writer must be woken after the
    // producers are gone.
    bell: WakeOnDrop,
}

/// The writer's end of a ring.
#[derive(Debug)]
pub(super) struct Outlet {
    entries: Consumer<CompactEntry>,
    texts: Consumer<u8>,
}

/// Creates a ring whose worker wakes the writer through `bell`.
pub(super) fn ring(bell: &Arc<Bell>) -> (Ring, Outlet, Arc<Counts>) {
    let (entries, outlet) = RingBuffer::new(ENTRIES_MAX);
    let (texts, text_outlet) = RingBuffer::new(TEXTS_BYTES_MAX);
    let counts = Arc::<Counts>::default();
    let bell = WakeOnDrop(bell.clone());
    let ring = Ring { entries, texts, gathered: Vec::new(), counts: counts.clone(), bell };
    (ring, Outlet { entries: outlet, texts: text_outlet }, counts)
}

impl Ring {
    /// Installs this ring for the current thread until the guard is dropped.
    pub(crate) fn enter(self) -> RingGuard {
        OWN.set(Some(self));
        RingGuard(PhantomData)
    }

    /// Runs `act` with this thread's ring.
    ///
    /// # Panics
    ///
    /// Panics if this thread is not a worker.
    fn with(act: impl FnOnce(&mut Self)) {
        OWN.with_borrow_mut(|ring| act(ring.as_mut().expect("responses end on a worker thread")));
    }

    /// Appends an entry to this thread's ring, or counts it as lost.
    pub(super) fn append(began: Instant, entry: Entry<'_>) {
        Self::with(|ring| {
            ring.counts.ended(entry.sent);
            let mut texts = std::mem::take(&mut ring.gathered);
            texts.clear();
            let compact = entry.compact(began, &mut texts);
            ring.push(compact, &texts);
            ring.gathered = texts;
        });
    }

    /// Counts an ended response whose entry is appended later, by [`Deferred::write`], if its
    /// client is sampled.
    pub(super) fn defer(began: Instant, entry: Entry<'_>, is_sampled: bool) -> Deferred {
        Self::with(|ring| ring.counts.ended(entry.sent));
        let content_bytes = entry.sent.bytes;
        let recorded = is_sampled.then(|| {
            let mut texts = Vec::new();
            let compact = entry.compact(began, &mut texts);
            Box::new((compact, texts))
        });
        Deferred { content_bytes, recorded }
    }

    /// Counts an ended response of this worker whose client is not sampled.
    pub(super) fn count_sampled_out(sent: &Sent) {
        Self::with(|ring| ring.counts.ended(sent));
    }

    /// Counts a response of this worker without creating a record.
    pub(super) fn count_without_record(sent: &Sent) {
        Self::with(|ring| {
            ring.counts.ended(sent);
            ring.counts.unrecorded.add_one();
        });
    }

    fn push(&mut self, entry: CompactEntry, texts: &[u8]) {
        if self.entries.is_full() || self.texts.push_entire_slice(texts).is_err() {
            self.counts.lost.add_one();
        } else {
            self.entries.push(entry).expect("the ring has room and no other producer");
            self.counts.appended.add_one();
        }
        let is_urgent = self.entries.slots() < ENTRIES_MAX / 2 || self.texts.slots() < TEXTS_BYTES_MAX / 2;
        self.bell.0.ring(is_urgent);
    }
}

/// An ended response that waits for its delivery.
#[derive(Debug)]
pub(crate) struct Deferred {
    content_bytes: u64,
    /// The entry and its strings; `None` if the client is not sampled.
    recorded: Option<Box<(CompactEntry, Vec<u8>)>>,
}

impl Deferred {
    /// Returns the number of content bytes written to the kernel.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Appends the entry, if any, to this thread's ring, or counts it as lost. `acked` is when the
    /// last byte was acknowledged.
    pub(crate) fn write(self, tcp: Option<Tcp>, acked: Option<Instant>, delivery: Option<Delivery>) {
        let Some(recorded) = self.recorded else { return };
        let (mut entry, texts) = *recorded;
        entry.delivered(tcp, acked, delivery);
        Ring::with(|ring| ring.push(entry, &texts));
    }
}

/// Guard that removes this thread's ring when dropped.
#[must_use]
pub(crate) struct RingGuard(PhantomData<*const ()>);

impl Drop for RingGuard {
    fn drop(&mut self) {
        OWN.take();
    }
}

impl Outlet {
    /// Returns when the response of the oldest entry ended; `None` if the ring is empty.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.peek().ok().map(|entry| entry.ended)
    }

    /// Removes and returns the oldest entry. Its strings overwrite the contents of `texts`.
    pub(super) fn pop(&mut self, texts: &mut Vec<u8>) -> Option<CompactEntry> {
        let entry = self.entries.pop().ok()?;
        texts.resize(entry.texts_bytes(), 0);
        self.texts.pop_entire_slice(texts).expect("an entry's strings precede it");
        Some(entry)
    }

    /// Returns whether the producer is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.entries.is_abandoned()
    }
}

/// The writer is running and needs no wake-up.
const RUNS: u8 = 0;
/// The writer waits for its next round; only a half-full ring wakes it.
const DOZES: u8 = 1;
/// The writer waits without a time limit; any entry wakes it.
const SLEEPS: u8 = 2;

/// Lets workers wake the writer.
#[derive(Debug, Default)]
pub(super) struct Bell {
    writer: OnceLock<Thread>,
    state: AtomicU8,
}

impl Bell {
    /// Registers the current thread as the writer.
    pub(super) fn listen(&self) {
        self.writer.get_or_init(thread::current);
    }

    /// Wakes the writer if it sleeps; if `is_urgent`, also if it dozes.
    fn ring(&self, is_urgent: bool) {
        // Pairs with the fence in `wait`: either the writer sees the new entry before it sleeps, or
        // this thread sees `SLEEPS`.
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Relaxed);
        if (state == SLEEPS || state == DOZES && is_urgent)
            && self.state.swap(RUNS, Ordering::Relaxed) != RUNS
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    /// Waits until a worker rings or `time_max`, if given, has elapsed. Once the new state is
    /// visible to workers, calls `is_due` and returns immediately if it is true: a worker does not
    /// ring for an entry appended while the writer was running.
    pub(super) fn wait(&self, time_max: Option<Duration>, is_due: impl FnOnce() -> bool) {
        self.state.store(if time_max.is_some() { DOZES } else { SLEEPS }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_due() {
            match time_max {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
            }
        }
        self.state.store(RUNS, Ordering::Relaxed);
    }
}

/// Guard that wakes the writer when dropped.
#[derive(Debug)]
struct WakeOnDrop(Arc<Bell>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.ring(true);
    }
}
