//! Content on disk as a reader gets it.
//!
//! A block is verified against its checksum before its first use since the start, by a thread, which also brings it
//! into the page cache. At every later use, and again after each wait for a client that takes its time, the kernel is
//! asked whether all of it is still there; if not it is read, and verified, again. Pages that leave the page cache
//! between that and the end of one `sendfile` are all that is left to chance: a worker would wait for them, and they would
//! be sent as the disk gives them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::Tier;
use super::files::{Name, Unreadable, read_ahead, read_at};
use super::record::{BLOCK_BYTES, HEADER_ALIGN, blocks, sum};
use super::residency::Residency;
use crate::fill::Failure;
use crate::purge::Position;
use crate::store::{Content, Head, Key};
use crate::sync::lock;

/// Content below this size comes back to memory with its next use: it goes out with its head in one `writev`.
pub(crate) const RAISED_BYTES_MAX: u64 = 32 * 1024;
/// The most that a reader gets at once: so many blocks are looked for in the page cache before the first byte is sent.
const PIECE_BYTES_MAX: u64 = 4 * BLOCK_BYTES as u64;

/// A response's copy on disk.
pub(crate) struct Copy {
    tier: Arc<Tier>,
    key: Key,
    name: Name,
    length: u64,
    size_bytes: u64,
    content: OnceLock<Weak<Content>>,
    hit: AtomicBool,
    gone: AtomicBool,
    /// The newest head and its position, while it waits to be written.
    head: Mutex<Option<(Arc<Head>, Position)>>,
    /// Held while a head is being written, so that the newest stays.
    writing_head: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Weak<Open>,
    /// A bit for each block that was verified.
    verified: Vec<u64>,
    /// Blocks that a thread has been asked to read.
    asked: Vec<u64>,
    /// A block of it could not be read, or was not as it was written.
    is_lost: bool,
    /// Bytes of the head beside it.
    head_bytes: u64,
    /// Where it stands in the sequence of purges, as its files say or are about to.
    position: Position,
}

/// A copy's file while it is open.
#[derive(Debug)]
pub(crate) struct Open {
    file: OwnedFd,
    residency: Residency,
    /// Where the content begins.
    header_bytes: u64,
    sums: Vec<u64>,
}

/// What one reader of content on disk keeps from piece to piece.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Held, so that a copy that is evicted can be read to its end.
    _open: Option<Arc<Open>>,
    /// The block that it waited for or has begun to read.
    block: Option<u64>,
    /// It waited for that block and has not used it since: it was there just now, and is not asked about again. Else one
    /// that leaves the page cache as soon as it is there would be waited for without end.
    is_fresh: bool,
}

impl Reading {
    /// What was there just now was used: from here on it may have left.
    pub(crate) fn used(&mut self) {
        self.is_fresh = false;
    }
}

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copy({:?}, {} bytes)", self.name, self.length)
    }
}

impl Open {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where byte `offset` of the content lies in the file.
    pub(crate) fn file_offset(&self, offset: u64) -> u64 {
        self.header_bytes + offset
    }

    /// Which byte of the content lies at `file_offset`.
    pub(crate) fn offset(&self, file_offset: u64) -> u64 {
        file_offset - self.header_bytes
    }

    /// Whether a block is in the page cache.
    fn is_resident(&self, block: u64, length: u64) -> bool {
        let (start, end) = ends(block, length);
        self.residency.has(self.file_offset(start)..self.file_offset(end))
    }
}

/// Bytes from `offset` to the end of its block.
pub(crate) fn left_in_block(offset: u64) -> usize {
    BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize
}

/// Where a block of content of `length` bytes starts and ends.
fn ends(block: u64, length: u64) -> (u64, u64) {
    let start = block * BLOCK_BYTES as u64;
    (start, length.min(start + BLOCK_BYTES as u64))
}

impl State {
    fn is_verified(&self, block: u64) -> bool {
        self.verified.get((block / 64) as usize).is_some_and(|bits| bits & 1 << (block % 64) != 0)
    }

    /// Whether it was verified, and no thread is about it.
    fn is_usable(&self, block: u64) -> bool {
        self.is_verified(block) && !self.asked.contains(&block)
    }

    fn set_verified(&mut self, block: u64, verified: bool) {
        let at = (block / 64) as usize;
        if self.verified.len() <= at {
            self.verified.resize(at + 1, 0);
        }
        self.verified[at] = self.verified[at] & !(1 << (block % 64)) | u64::from(verified) << (block % 64);
    }
}

impl Copy {
    /// The copy of a file that takes `header_bytes` beside its content.
    pub(super) fn new(tier: &Arc<Tier>, key: Key, name: Name, length: u64, header_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            tier: tier.clone(),
            key,
            name,
            length,
            size_bytes: size_bytes(length, header_bytes),
            content: OnceLock::new(),
            hit: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            head: Mutex::default(),
            writing_head: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// Says whose copy it is, once.
    pub(crate) fn bind(&self, content: &Arc<Content>) {
        let _ = self.content.set(Arc::downgrade(content));
    }

    /// Whose copy it is, if anybody still has that.
    pub(crate) fn content(&self) -> Option<Arc<Content>> {
        self.content.get()?.upgrade()
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    /// Which of all files ever written here it is.
    pub(crate) fn number(&self) -> u64 {
        self.name.number
    }

    /// Bytes of content.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that its files take.
    pub(super) fn bytes(&self) -> u64 {
        self.size_bytes + lock(&self.state).head_bytes
    }

    /// There is a head beside it, of so many bytes. `count` is told how many that is more than before, unless it has
    /// left.
    pub(super) fn set_head_bytes(&self, bytes: usize, count: impl FnOnce(i64)) {
        let mut state = lock(&self.state);
        if !self.is_gone() {
            let before = std::mem::replace(&mut state.head_bytes, bytes as u64);
            count(state.head_bytes.cast_signed() - before.cast_signed());
        }
    }

    /// Whether it has left the disk, or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Marks it as gone. The first who does has to uncount so many bytes.
    pub(super) fn leave(&self) -> Option<u64> {
        let state = lock(&self.state);
        (!self.gone.swap(true, Relaxed)).then_some(self.size_bytes + state.head_bytes)
    }

    /// It is not needed any more: its file is removed.
    pub(crate) fn discard(&self) {
        self.tier.discard(self);
    }

    /// The response was validated: `head` is written beside it.
    pub(crate) fn update_head(self: &Arc<Self>, head: &Arc<Head>, position: Position) {
        if self.note_head(head, position) {
            self.tier.put_head(self);
        }
    }

    /// `head` is the one to be written. False if one waits for that already.
    pub(super) fn note_head(&self, head: &Arc<Head>, position: Position) -> bool {
        self.set_position(position);
        lock(&self.head).replace((head.clone(), position)).is_none()
    }

    /// The response was purged softly: that is written beside it, if it is not there yet.
    pub(crate) fn update_position(self: &Arc<Self>, head: &Arc<Head>, position: Position) {
        if lock(&self.state).position != position {
            self.update_head(head, position);
        }
    }

    pub(super) fn set_position(&self, position: Position) {
        lock(&self.state).position = position;
    }

    /// Hands the newest head that waits to be written to `write`, one at a time.
    pub(super) fn write_head(&self, write: impl FnOnce(Arc<Head>, Position)) {
        let _writing = lock(&self.writing_head);
        let head = lock(&self.head).take();
        if let Some((head, position)) = head {
            write(head, position);
        }
    }

    /// Whether memory has none of its content.
    pub(super) fn is_settled(&self) -> bool {
        self.content().is_none_or(|content| content.is_on_disk())
    }

    /// It is of use: read, or found where its content is elsewhere.
    pub(crate) fn used(&self) {
        if !self.hit.load(Relaxed) {
            self.hit.store(true, Relaxed);
        }
    }

    /// Whether it was of use since the last call.
    pub(super) fn take_hit(&self) -> bool {
        self.hit.swap(false, Relaxed)
    }

    /// Up to `max` bytes at `offset`, which lies in the content, if they can be sent at once. Else they have to be
    /// [asked for](Self::ask).
    pub(crate) fn piece(&self, offset: u64, max: usize, reading: &mut Reading) -> Option<(Arc<Open>, usize)> {
        let first = offset / BLOCK_BYTES as u64;
        let end = self.length.min(offset.saturating_add(PIECE_BYTES_MAX.min(max as u64)));
        let waited = reading.block == Some(first);
        let is_fresh = waited && reading.is_fresh;
        let state = lock(&self.state);
        // Small content is not to be sent from here, if it can be in memory.
        let may = self.length >= RAISED_BYTES_MAX || waited;
        let verified = (first..blocks(end)).take_while(|block| may && state.is_usable(*block)).count() as u64;
        let open = state.open.upgrade().filter(|_| verified > 0)?;
        drop(state);
        let is_sendable = |block: &u64| is_fresh && *block == first || open.is_resident(*block, self.length);
        let sendable = (first..first + verified).take_while(is_sendable).count() as u64;
        if sendable == 0 {
            return None;
        }
        self.used();
        *reading = Reading { _open: Some(open.clone()), block: Some(first), is_fresh };
        let end = end.min((first + sendable) * BLOCK_BYTES as u64);
        Some((open, usize::try_from(end - offset).expect("a piece is at most PIECE_BYTES_MAX long")))
    }

    /// Has a thread read and verify the block of byte `offset`. The readers of the content are woken when that is done, so
    /// the caller is to be among those who wait.
    pub(crate) fn ask(self: &Arc<Self>, offset: u64, reading: &mut Reading) {
        let block = offset / BLOCK_BYTES as u64;
        (reading.block, reading.is_fresh) = (Some(block), true);
        self.ask_for(&mut lock(&self.state), block);
    }

    fn ask_for(self: &Arc<Self>, state: &mut State, block: u64) {
        if !state.asked.contains(&block) {
            state.asked.push(block);
            self.tier.put_read(self, block);
        }
    }

    /// Whether byte `offset`, given out before, and what follows in its block can still be sent at once.
    pub(crate) fn is_ready(&self, open: &Open, offset: u64) -> bool {
        let block = offset / BLOCK_BYTES as u64;
        let is_usable = lock(&self.state).is_usable(block);
        is_usable && open.is_resident(block, self.length)
    }

    /// What became of byte `offset` since it was asked for. Its block may have come into doubt again after it was read, by
    /// what became of another: it is asked for once more then, so that `Pending` always has an answer to come.
    pub(crate) fn answer(self: &Arc<Self>, offset: u64) -> Poll<Result<(), Failure>> {
        let block = offset / BLOCK_BYTES as u64;
        let mut state = lock(&self.state);
        if state.is_lost {
            return Poll::Ready(Err(Failure::Unreadable));
        }
        if state.is_usable(block) {
            return Poll::Ready(Ok(()));
        }
        self.ask_for(&mut state, block);
        Poll::Pending
    }

    /// Bytes that were given out could not be sent: they are read and verified again before they are used again.
    pub(crate) fn doubt(self: &Arc<Self>, open: &Open, file_offset: u64, len: usize) {
        let offset = open.offset(file_offset);
        let (first, end) = (offset / BLOCK_BYTES as u64, blocks(offset + len as u64));
        let mut state = lock(&self.state);
        for block in first..end {
            state.set_verified(block, false);
        }
        self.ask_for(&mut state, first);
    }

    /// Reads a block and verifies it; with the bytes if they are all of a small response. For a thread that may wait.
    pub(super) fn verify<'a>(&self, block: u64, buffer: &'a mut [u8]) -> Result<&'a [u8], Unreadable> {
        let open = self.open()?;
        let (start, end) = ends(block, self.length);
        let bytes = &mut buffer[..usize::try_from(end - start).expect("a block is BLOCK_BYTES long at most")];
        read_at(&open.file, open.file_offset(start), bytes)?;
        if end < self.length {
            self.read_ahead(&open, block + 1);
        }
        if open.sums[usize::try_from(block).expect("a sum for each block")] != sum(bytes) {
            return Err(Unreadable::Sum);
        }
        Ok(bytes)
    }

    /// Has the kernel read a block that is likely to be wanted next. Where it is not there, it is to be verified like one
    /// that was never read.
    fn read_ahead(&self, open: &Open, block: u64) {
        if !open.is_resident(block, self.length) {
            lock(&self.state).set_verified(block, false);
        }
        read_ahead(&open.file, open.file_offset(ends(block, self.length).0), BLOCK_BYTES);
    }

    /// The file, opened if it is not.
    fn open(&self) -> Result<Arc<Open>, Unreadable> {
        if let Some(open) = lock(&self.state).open.upgrade() {
            return Ok(open);
        }
        let (file, record, header_bytes) = self.tier.directory().read(self.name)?;
        if record.content_bytes != self.length {
            return Err(Unreadable::Length);
        }
        let header_bytes = header_bytes as u64;
        let residency = Residency::of(&file, header_bytes + self.length)?;
        let open = Arc::new(Open { file, residency, header_bytes, sums: record.sums });
        lock(&self.state).open = Arc::downgrade(&open);
        self.tier.keep_open(&open);
        Ok(open)
    }

    /// The block that was asked for is there.
    pub(super) fn answered(&self, block: u64) {
        let mut state = lock(&self.state);
        state.set_verified(block, true);
        state.asked.retain(|asked| *asked != block);
    }

    /// A block of it could not be read: who asked for it gets no more.
    pub(super) fn lose(&self) {
        lock(&self.state).is_lost = true;
    }
}

/// What a file of so much content and header takes on disk.
pub(super) fn size_bytes(length: u64, header_bytes: usize) -> u64 {
    header_bytes as u64 + length.next_multiple_of(HEADER_ALIGN as u64)
}
