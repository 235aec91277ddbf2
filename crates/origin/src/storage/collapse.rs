//! Reads in progress, shared by all who read the same range of the same version of an object.
//!
//! Whoever needs the next bytes first drives the read, so no more than a window of it is in memory.
//! A reader joins while the first bytes are still in the window. A reader that falls behind by more
//! than the window continues on its own with a read of the rest, so a slow client neither slows
//! down the others nor holds memory.
//!
//! **Invariant:** all readers waiting for bytes are woken when bytes arrive, and any of them can
//! drive the read. A client that stops reading does not stop the others.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::object::StorageError;

/// Bytes kept for readers that join, even if all current readers have them.
const KEPT_BYTES: u64 = 256 << 10;
/// Maximum bytes kept for readers that are behind.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
const _: () = assert!(KEPT_BYTES <= WINDOW_BYTES_MAX);

/// The bytes of a range, in order.
pub(super) type Source = BoxStream<'static, Result<Bytes, StorageError>>;
/// Opens a source for a range, and another one for the rest of the range if a reader lags.
pub(super) type Open = Arc<dyn Fn(Range<u64>) -> Source + Send + Sync>;

/// Identity of a read: key and version of the object, and the range.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    pub(super) key: String,
    pub(super) validator: String,
    pub(super) range: Range<u64>,
}

/// Reads in progress.
#[derive(Debug, Clone, Default)]
pub(super) struct Reads(Arc<Mutex<HashMap<ReadKey, Weak<SharedRead>>>>);

impl Reads {
    /// Joins the read of `key` in progress, or begins one. Also returns whether it joined.
    pub(super) fn join(&self, key: ReadKey, open: Open) -> (SharedReader, bool) {
        // A read that is dropped locks the map, so this one is dropped after the map's guard.
        let known;
        let mut reads = lock(&self.0);
        let range = key.range.clone();
        known = reads.get(&key).and_then(Weak::upgrade);
        if let Some(reader) = known.clone().and_then(|read| read.join(&range, &open)) {
            return (reader, true);
        }
        let read = SharedRead::new(open(range.clone()), range.start, Some((key.clone(), self.clone())));
        reads.insert(key, Arc::downgrade(&read));
        // Nobody else can join and advance the read before the map is unlocked.
        let reader = read.join(&range, &open).expect("a new read has its first bytes");
        drop(reads);
        (reader, false)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// A read in progress.
struct SharedRead {
    state: Mutex<State>,
    waiters: Arc<Waiters>,
    /// Entry among the reads that can be joined.
    entry: Option<(ReadKey, Reads)>,
}

struct State {
    source: Source,
    /// Consecutive pieces; the first one begins at `start` and the last one ends at `end`.
    pieces: VecDeque<Bytes>,
    start: u64,
    end: u64,
    /// The outcome, once the source has ended.
    ended: Option<Result<(), StorageError>>,
    /// Identity and position of each reader.
    readers: Vec<(u64, u64)>,
    next_id: u64,
}

/// What a reader gets.
enum Next {
    Piece(Bytes),
    End,
    Failed(StorageError),
    /// The reader's next bytes are no longer in the window.
    Lagging,
}

impl SharedRead {
    fn new(source: Source, start: u64, entry: Option<(ReadKey, Reads)>) -> Arc<SharedRead> {
        let (pieces, readers) = (VecDeque::new(), Vec::new());
        let state = State { source, pieces, start, end: start, ended: None, readers, next_id: 0 };
        Arc::new(SharedRead { state: Mutex::new(state), waiters: Arc::default(), entry })
    }

    /// Adds a reader if the first bytes are still in the window.
    fn join(self: Arc<Self>, range: &Range<u64>, open: &Open) -> Option<SharedReader> {
        let mut state = lock(&self.state);
        if state.start != range.start || matches!(state.ended, Some(Err(_))) {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.readers.push((id, range.start));
        drop(state);
        Some(SharedReader { read: self, id, pos: range.start, end: range.end, open: open.clone() })
    }

    fn poll(&self, id: u64, pos: u64, cx: &Context<'_>) -> Poll<Next> {
        let mut state = lock(&self.state);
        loop {
            if pos < state.start {
                return Poll::Ready(Next::Lagging);
            }
            if let Some(bytes) = state.piece_at(pos) {
                state.advance(id, pos + bytes.len() as u64);
                return Poll::Ready(Next::Piece(bytes));
            }
            match &state.ended {
                Some(Ok(())) => return Poll::Ready(Next::End),
                Some(Err(error)) => return Poll::Ready(Next::Failed(error.clone())),
                None => {}
            }
            self.waiters.register(cx.waker());
            let waker = Waker::from(self.waiters.clone());
            match state.source.poll_next_unpin(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => {
                    state.end += bytes.len() as u64;
                    state.pieces.push_back(bytes);
                }
                Poll::Ready(Some(Err(error))) => state.ended = Some(Err(error)),
                Poll::Ready(None) => state.ended = Some(Ok(())),
            }
            self.waiters.wake_all();
        }
    }
}

impl State {
    /// Returns the bytes from `pos` to the end of their piece.
    fn piece_at(&self, pos: u64) -> Option<Bytes> {
        let mut start = self.start;
        for piece in &self.pieces {
            let end = start + piece.len() as u64;
            if pos < end {
                let within = usize::try_from(pos - start).expect("positions in a piece fit in usize");
                return Some(piece.slice(within..));
            }
            start = end;
        }
        None
    }

    /// Moves a reader to `pos`, and drops the pieces that are no longer kept.
    fn advance(&mut self, id: u64, pos: u64) {
        if let Some(reader) = self.readers.iter_mut().find(|(reader, _)| *reader == id) {
            reader.1 = pos;
        }
        let least = self.readers.iter().map(|(_, pos)| *pos).min().unwrap_or(pos);
        while let Some(piece) = self.pieces.front() {
            let (len, kept) = (piece.len() as u64, self.end - self.start);
            let is_read = self.start + len <= least;
            if !(kept > WINDOW_BYTES_MAX || is_read && kept > KEPT_BYTES) {
                return;
            }
            self.start += len;
            self.pieces.pop_front();
        }
    }
}

impl fmt::Debug for SharedRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRead").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Drop for SharedRead {
    fn drop(&mut self) {
        let Some((key, reads)) = &self.entry else { return };
        let mut reads = lock(&reads.0);
        // Another read of the same range may have begun in the meantime.
        if reads.get(key).is_some_and(|read| read.strong_count() == 0) {
            reads.remove(key);
        }
    }
}

/// A reader of a shared read.
pub(crate) struct SharedReader {
    read: Arc<SharedRead>,
    id: u64,
    pos: u64,
    end: u64,
    open: Open,
}

impl SharedReader {
    /// Returns the next piece, or `None` at the end of the range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        loop {
            match poll_fn(|cx| self.read.poll(self.id, self.pos, cx)).await {
                Next::Piece(bytes) => {
                    self.pos += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                Next::End => return Ok(None),
                Next::Failed(error) => return Err(error),
                Next::Lagging => {
                    let rest = self.pos..self.end;
                    let read = SharedRead::new((self.open)(rest.clone()), rest.start, None);
                    *self = read.join(&rest, &self.open).expect("a new read has its first bytes");
                }
            }
        }
    }

    /// Waits until the first bytes have arrived, without consuming them.
    pub(super) async fn begin(&mut self) -> Result<(), StorageError> {
        let start = self.pos;
        if let Some(bytes) = self.next().await? {
            // The bytes are still in the window: no reader has gone beyond them.
            self.pos = start;
            drop(bytes);
        }
        Ok(())
    }
}

impl fmt::Debug for SharedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReader").field("pos", &self.pos).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        lock(&self.read.state).readers.retain(|(id, _)| *id != self.id);
    }
}

/// Tasks to wake when the source has more bytes.
#[derive(Default)]
struct Waiters(Mutex<Vec<Waker>>);

impl Waiters {
    fn register(&self, waker: &Waker) {
        let mut waiters = lock(&self.0);
        if !waiters.iter().any(|waiter| waiter.will_wake(waker)) {
            waiters.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        let waiters = std::mem::take(&mut *lock(&self.0));
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests;
