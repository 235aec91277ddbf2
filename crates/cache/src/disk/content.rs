//! Content on disk, as served to readers.
//!
//! Before a block's first use since startup, a thread verifies it against its checksum, which also
//! loads it into the page cache. Before every later use, and after each wait for a slow client, the
//! tier checks whether the whole block is still cached; if not, the block is read and verified
//! again. One gap remains: the kernel may drop pages between that check and the end of one
//! `sendfile`. A worker then waits for the disk, and the pages are sent unverified.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::files::{Name, Unreadable, read_ahead, read_at};
use super::record::{BLOCK_BYTES, HEADER_ALIGN, Record, blocks, sum};
use super::residency::Residency;
use crate::entry::{Head, Key};
use crate::fill::buffer::FillBuffer;
use crate::fill::failure::Failure;
use crate::purge::Position;
use crate::sync::lock;

/// Content smaller than this is promoted to memory on its next use, and then sent with its head in
/// one `writev`.
pub(crate) const PROMOTED_BYTES_MAX: u64 = 32 * 1024;
/// Maximum number of bytes returned to a reader at once. All blocks that contain them are in the
/// page cache when the first byte is sent.
const PIECE_BYTES_MAX: u64 = 4 * BLOCK_BYTES as u64;

/// The disk tier, as seen by a copy.
pub(super) trait CopyHost: Send + Sync {
    /// Opens a file; also returns its decoded header and the header's length.
    fn open_file(&self, name: Name) -> Result<(OwnedFd, Record, usize), Unreadable>;
    /// Keeps a file open until enough other files have been opened.
    fn keep_open(&self, open: &Arc<Open>);
    /// Queues a block for a thread to read and verify.
    fn queue_read(&self, copy: &Arc<DiskCopy>, block: u64);
    /// Queues a write of the newest head.
    fn queue_head(&self, copy: &Arc<DiskCopy>);
    /// Queues the file's removal.
    fn discard(&self, copy: &DiskCopy);
}

/// A response's copy on disk.
pub(crate) struct DiskCopy {
    host: Arc<dyn CopyHost>,
    key: Key,
    name: Name,
    length: u64,
    size_bytes: u64,
    content: OnceLock<Weak<FillBuffer<Arc<Head>>>>,
    hit: AtomicBool,
    gone: AtomicBool,
    /// The newest head and its purge position, while a write of the head is queued.
    head: Mutex<Option<(Arc<Head>, Position)>>,
    /// Locked while a head is being written, so that the newest head wins.
    writing_head: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Weak<Open>,
    /// One bit for each verified block.
    verified: Vec<u64>,
    /// Blocks queued for reading.
    queued: Vec<u64>,
    /// Whether a block could not be read, or failed its checksum.
    is_lost: bool,
    /// Size of the separate head file, in bytes.
    head_bytes: u64,
    /// Purge position that the files record or are about to record.
    position: Position,
}

/// The open file of a copy.
#[derive(Debug)]
pub(crate) struct Open {
    file: OwnedFd,
    residency: Residency,
    /// Offset of the content in the file.
    header_bytes: u64,
    sums: Vec<u64>,
}

/// State that a reader of content on disk keeps between pieces.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Keeps the file open, so that the reader can finish a copy that is evicted.
    _open: Option<Arc<Open>>,
    /// The block for which the reader waited, or which it has started to read.
    block: Option<u64>,
    /// Whether the reader waited for that block and has not used it since. If so, the page cache is
    /// not checked: a kernel that dropped every block as soon as it was read would make the reader
    /// wait forever.
    is_fresh: bool,
}

impl Reading {
    /// Records that the block was used. Its next use requires a check of the page cache.
    pub(crate) fn used(&mut self) {
        self.is_fresh = false;
    }
}

impl fmt::Debug for DiskCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCopy({:?}, {} bytes)", self.name, self.length)
    }
}

impl Open {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the file offset of content byte `offset`.
    pub(crate) fn file_offset(&self, offset: u64) -> u64 {
        self.header_bytes + offset
    }

    /// Returns the content offset of the byte at `file_offset`.
    pub(crate) fn offset(&self, file_offset: u64) -> u64 {
        file_offset - self.header_bytes
    }

    /// Returns whether a block is in the page cache.
    fn is_resident(&self, block: u64, length: u64) -> bool {
        let (start, end) = ends(block, length);
        self.residency.has(self.file_offset(start)..self.file_offset(end))
    }
}

/// Returns the number of bytes from `offset` to the end of its block.
pub(crate) fn left_in_block(offset: u64) -> usize {
    BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize
}

/// Returns the start and end of a block in content of `length` bytes.
fn ends(block: u64, length: u64) -> (u64, u64) {
    let start = block * BLOCK_BYTES as u64;
    (start, length.min(start + BLOCK_BYTES as u64))
}

impl State {
    fn is_verified(&self, block: u64) -> bool {
        self.verified.get((block / 64) as usize).is_some_and(|bits| bits & 1 << (block % 64) != 0)
    }

    /// Returns whether a block was verified and is not queued for reading.
    fn is_usable(&self, block: u64) -> bool {
        self.is_verified(block) && !self.queued.contains(&block)
    }

    fn set_verified(&mut self, block: u64, verified: bool) {
        let at = (block / 64) as usize;
        if self.verified.len() <= at {
            self.verified.resize(at + 1, 0);
        }
        self.verified[at] = self.verified[at] & !(1 << (block % 64)) | u64::from(verified) << (block % 64);
    }
}

impl DiskCopy {
    /// Creates the copy for a file with `header_bytes` of header and `length` bytes of content.
    pub(super) fn new(
        host: Arc<dyn CopyHost>,
        key: Key,
        name: Name,
        length: u64,
        header_bytes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
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

    /// Sets the content that this copy backs. Only the first call has an effect.
    pub(crate) fn bind(&self, content: &Arc<FillBuffer<Arc<Head>>>) {
        let _ = self.content.set(Arc::downgrade(content));
    }

    /// Returns the content that this copy backs, if it still exists.
    pub(crate) fn content(&self) -> Option<Arc<FillBuffer<Arc<Head>>>> {
        self.content.get()?.upgrade()
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    /// Returns the file's number, unique among all files ever written to this directory.
    pub(crate) fn number(&self) -> u64 {
        self.name.number
    }

    /// Returns the number of content bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of bytes occupied by the copy's files.
    pub(super) fn bytes(&self) -> u64 {
        self.size_bytes + lock(&self.state).head_bytes
    }

    /// Sets the size of the separate head file. Calls `count` with the change in size, unless the
    /// copy has left the disk.
    pub(super) fn set_head_bytes(&self, bytes: usize, count: impl FnOnce(i64)) {
        let mut state = lock(&self.state);
        if !self.is_gone() {
            let before = std::mem::replace(&mut state.head_bytes, bytes as u64);
            count(state.head_bytes.cast_signed() - before.cast_signed());
        }
    }

    /// Returns whether the copy has left the disk, or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Marks the copy as gone. Returns the number of bytes to subtract from the tier's total, but
    /// only to the first caller.
    pub(super) fn leave(&self) -> Option<u64> {
        let state = lock(&self.state);
        (!self.gone.swap(true, Relaxed)).then_some(self.size_bytes + state.head_bytes)
    }

    /// Queues the removal of the file, which is no longer needed.
    pub(crate) fn discard(&self) {
        self.host.discard(self);
    }

    /// Queues a write of `head`, updated by a validation, to the separate head file.
    pub(crate) fn update_head(self: &Arc<Self>, head: &Arc<Head>, position: Position) {
        if self.note_head(head, position) {
            self.host.queue_head(self);
        }
    }

    /// Makes `head` the next head to write. Returns false if a write is already queued.
    pub(super) fn note_head(&self, head: &Arc<Head>, position: Position) -> bool {
        self.set_position(position);
        lock(&self.head).replace((head.clone(), position)).is_none()
    }

    /// Queues a write that records a soft purge in the head file, unless the purge is already
    /// recorded.
    pub(crate) fn update_position(self: &Arc<Self>, head: &Arc<Head>, position: Position) {
        if lock(&self.state).position != position {
            self.update_head(head, position);
        }
    }

    pub(super) fn set_position(&self, position: Position) {
        lock(&self.state).position = position;
    }

    /// Passes the newest queued head to `write`; calls are serialised.
    pub(super) fn write_head(&self, write: impl FnOnce(Arc<Head>, Position)) {
        let _writing = lock(&self.writing_head);
        let head = lock(&self.head).take();
        if let Some((head, position)) = head {
            write(head, position);
        }
    }

    /// Returns whether none of the content is in memory.
    pub(super) fn is_only_on_disk(&self) -> bool {
        self.content().is_none_or(|content| content.is_on_disk())
    }

    /// Records a use: the copy was read, or a look-up found its response while the content was in
    /// memory or in slices.
    pub(crate) fn used(&self) {
        if !self.hit.load(Relaxed) {
            self.hit.store(true, Relaxed);
        }
    }

    /// Returns whether the copy was used since the last call.
    pub(super) fn take_hit(&self) -> bool {
        self.hit.swap(false, Relaxed)
    }

    /// Returns the open file, and the number of bytes (at most `max`) that can be sent from
    /// `offset` without waiting for the disk. `offset` must be within the content. If the result is
    /// `None`, call [`ask`](Self::ask).
    pub(crate) fn piece(&self, offset: u64, max: usize, reading: &mut Reading) -> Option<(Arc<Open>, usize)> {
        let first = offset / BLOCK_BYTES as u64;
        let end = self.length.min(offset.saturating_add(PIECE_BYTES_MAX.min(max as u64)));
        let waited = reading.block == Some(first);
        let is_fresh = waited && reading.is_fresh;
        let state = lock(&self.state);
        // Small content is sent from memory, unless memory had no room when it was read.
        let may = self.length >= PROMOTED_BYTES_MAX || waited;
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

    /// Queues a read and verification of the block at byte `offset`. Completion of the read wakes
    /// all waiting readers, so the caller must already be registered as one.
    pub(crate) fn ask(self: &Arc<Self>, offset: u64, reading: &mut Reading) {
        let block = offset / BLOCK_BYTES as u64;
        (reading.block, reading.is_fresh) = (Some(block), true);
        self.ask_for(&mut lock(&self.state), block);
    }

    fn ask_for(self: &Arc<Self>, state: &mut State, block: u64) {
        if !state.queued.contains(&block) {
            state.queued.push(block);
            self.host.queue_read(self, block);
        }
    }

    /// Returns whether byte `offset`, part of an earlier piece, and the rest of its block can still
    /// be sent without waiting for the disk.
    pub(crate) fn is_ready(&self, open: &Open, offset: u64) -> bool {
        let block = offset / BLOCK_BYTES as u64;
        let is_usable = lock(&self.state).is_usable(block);
        is_usable && open.is_resident(block, self.length)
    }

    /// Returns the result of the read requested for byte `offset`. If another reader has since
    /// marked the block as unverified, queues the block again, so that a wake-up always follows
    /// `Pending`.
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

    /// Marks bytes of an earlier piece as unverified because they could not be sent. They are read
    /// and verified again before their next use.
    pub(crate) fn doubt(self: &Arc<Self>, open: &Open, file_offset: u64, len: usize) {
        let offset = open.offset(file_offset);
        let (first, end) = (offset / BLOCK_BYTES as u64, blocks(offset + len as u64));
        let mut state = lock(&self.state);
        for block in first..end {
            state.set_verified(block, false);
        }
        self.ask_for(&mut state, first);
    }

    /// Reads and verifies a block and returns its bytes. Call this only on a thread that may block.
    pub(super) fn verify<'a>(&self, block: u64, buffer: &'a mut [u8]) -> Result<&'a [u8], Unreadable> {
        let open = self.open()?;
        let (start, end) = ends(block, self.length);
        let bytes = &mut buffer[..usize::try_from(end - start).expect("a block is at most BLOCK_BYTES long")];
        read_at(&open.file, open.file_offset(start), bytes)?;
        if end < self.length {
            self.read_ahead(&open, block + 1);
        }
        if open.sums[usize::try_from(block).expect("block numbers fit in usize")] != sum(bytes) {
            return Err(Unreadable::Sum);
        }
        Ok(bytes)
    }

    /// Asks the kernel to read the block likely to be needed next. A block that is not cached
    /// becomes unverified, as if it had never been read.
    fn read_ahead(&self, open: &Open, block: u64) {
        if !open.is_resident(block, self.length) {
            lock(&self.state).set_verified(block, false);
        }
        read_ahead(&open.file, open.file_offset(ends(block, self.length).0), BLOCK_BYTES);
    }

    /// Returns the file, opening it if necessary.
    fn open(&self) -> Result<Arc<Open>, Unreadable> {
        if let Some(open) = lock(&self.state).open.upgrade() {
            return Ok(open);
        }
        let (file, record, header_bytes) = self.host.open_file(self.name)?;
        if record.content_bytes != self.length {
            return Err(Unreadable::Length);
        }
        let header_bytes = header_bytes as u64;
        let residency = Residency::of(&file, header_bytes + self.length)?;
        let open = Arc::new(Open { file, residency, header_bytes, sums: record.sums });
        lock(&self.state).open = Arc::downgrade(&open);
        self.host.keep_open(&open);
        Ok(open)
    }

    /// Records that a queued block was read and verified.
    pub(super) fn answered(&self, block: u64) {
        let mut state = lock(&self.state);
        state.set_verified(block, true);
        state.queued.retain(|queued| *queued != block);
    }

    /// Records that a block could not be read, so that readers receive no more content.
    pub(super) fn lose(&self) {
        lock(&self.state).is_lost = true;
    }
}

/// Returns the size on disk of a file with `length` bytes of content and `header_bytes` of header.
pub(super) fn size_bytes(length: u64, header_bytes: usize) -> u64 {
    header_bytes as u64 + length.next_multiple_of(HEADER_ALIGN as u64)
}
