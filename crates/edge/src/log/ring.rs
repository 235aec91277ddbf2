//! Ring of ended responses, one per worker: bounded, with one producer (the worker) and one
//! consumer (the log writer).
//!
//! There are two parallel rings: fixed-size entries, and the bytes of their texts in the same
//! order. The producer belongs to the worker's thread ([`Ring::enter`]), so appending an entry
//! takes no lock, and it never allocates. It wakes the writer in two cases only: the writer is
//! asleep after a period without entries, or the ring is half full.
//!
//! **Invariant:** an entry is appended after its texts, so the texts are complete when the writer
//! sees the entry.
//! **Invariant:** the writer ends after all producers are dropped, so it drains every entry.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};
use thalweg_http::head::HEAD_BYTES_MAX;
use thalweg_record::CacheResult;

use super::compact::{CompactEntry, Entry};
use crate::sent::Sent;

/// Maximum entries in a ring: 160 ms at 50,000 responses per second.
pub(super) const ENTRIES_MAX: usize = 8 * 1024;
/// Maximum bytes of texts in a ring. The system allocates each page on its first write.
const TEXTS_BYTES_MAX: usize = 4 << 20;
/// Number of status classes that are counted: 1xx to 5xx.
pub(super) const STATUS_CLASSES: usize = 5;

// The texts of any request fit.
const _: () = assert!(TEXTS_BYTES_MAX >= 2 * HEAD_BYTES_MAX);

thread_local! {
    /// The ring of this worker thread.
    static OWN: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Outcome counts of one worker's responses. Only that worker writes them, so they have their own
/// cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    /// Entries appended to the ring.
    pub(super) appended: Count,
    /// Entries dropped because the ring was full.
    pub(super) lost: Count,
    /// Responses without an entry, because no records were being made.
    pub(super) unrecorded: Count,
    /// All ended responses, by cache result and status class.
    pub(super) responses: [[Count; STATUS_CLASSES]; CacheResult::ALL.len()],
    /// Content bytes of all ended responses, written to the kernel.
    pub(super) bytes: Count,
}

impl Counts {
    /// Counts an ended response.
    fn ended(&self, sent: &Sent) {
        let class = usize::from(sent.status / 100).clamp(1, STATUS_CLASSES) - 1;
        self.responses[sent.cache as usize][class].add_one();
        self.bytes.add(sent.bytes);
    }
}

/// A counter that one thread increments and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    fn add_one(&self) {
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
    /// Texts of one entry; kept to reuse the allocation.
    gathered: Vec<u8>,
    counts: Arc<Counts>,
    // Last, because fields are dropped in order: the writer is woken once the producers are gone.
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
    /// Makes this the current thread's ring until the guard is dropped.
    pub(crate) fn enter(self) -> RingGuard {
        OWN.set(Some(self));
        RingGuard(PhantomData)
    }

    /// Runs `act` with this thread's ring.
    ///
    /// # Panics
    /// If this thread is not a worker.
    fn with(act: impl FnOnce(&mut Self)) {
        OWN.with_borrow_mut(|ring| act(ring.as_mut().expect("responses end on a worker thread")));
    }

    /// Appends an entry to this thread's ring, or counts it as lost.
    pub(super) fn append(began: Instant, entry: Entry<'_>) {
        Self::with(|ring| ring.push(began, entry));
    }

    /// Counts a response of this worker that has no record.
    pub(super) fn count_without_record(sent: &Sent) {
        Self::with(|ring| {
            ring.counts.ended(sent);
            ring.counts.unrecorded.add_one();
        });
    }

    fn push(&mut self, began: Instant, entry: Entry<'_>) {
        self.counts.ended(entry.sent);
        self.gathered.clear();
        let compact = entry.compact(began, &mut self.gathered);
        if self.entries.is_full() || self.texts.push_entire_slice(&self.gathered).is_err() {
            self.counts.lost.add_one();
        } else {
            self.entries.push(compact).expect("the ring has room and no other producer");
            self.counts.appended.add_one();
        }
        let is_urgent = self.entries.slots() < ENTRIES_MAX / 2 || self.texts.slots() < TEXTS_BYTES_MAX / 2;
        self.bell.0.ring(is_urgent);
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

    /// Removes the oldest entry, and replaces the content of `texts` with its texts.
    pub(super) fn pop(&mut self, texts: &mut Vec<u8>) -> Option<CompactEntry> {
        let entry = self.entries.pop().ok()?;
        texts.resize(entry.texts_bytes(), 0);
        self.texts.pop_entire_slice(texts).expect("an entry's texts are appended first");
        Some(entry)
    }

    /// Whether the producer is gone.
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

/// Wakes the writer from the workers.
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

    /// Waits until a worker rings, for `time_max` or without a limit. Calls `is_due` once the new
    /// state is visible, and returns immediately if it is true, because the worker may not have
    /// rung for an entry that it appended earlier.
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

/// Wakes the writer when it is dropped.
#[derive(Debug)]
struct WakeOnDrop(Arc<Bell>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.ring(true);
    }
}
