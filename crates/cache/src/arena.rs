//! Content memory: slabs of a memfd, divided into runs of bytes.
//!
//! A slab is the unit of recycling. Content is stored in *runs*: large content first fills whole
//! slabs, and the rest takes part of a slab shared with other content. When a slab's last run is
//! dropped, its pages are punched out and the slab is free again. **Bytes are thus never
//! overwritten while a socket may still send them**: `sendfile` does not copy, and a retransmission
//! reads the page again.
//!
//! Small and large content never share a slab, so that a hot playlist does not pin two megabytes of
//! dead segments. Live content in a mostly dead slab is copied to the slab being filled, so that
//! the sparse slab can be recycled ([`Arena::compact`]). Otherwise a few hot responses would
//! eventually pin nearly all slabs.

use std::fmt;
use std::io;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::memory::Memory;
pub use crate::memory::SLAB_BYTES;
use crate::sync::{Arc, Mutex, lock};

/// Maximum size of small content, in bytes. Small content occupies a single run in a slab shared
/// with other small content.
pub const SMALL_BYTES_MAX: usize = SLAB_BYTES / 32;

/// Small runs start on a cache line, large runs on a page. Unaligned content would span an extra
/// page, which costs an extra packet fragment, and the number of fragments limits a packet's size.
const ALIGN_SMALL: usize = if SLAB_BYTES >= 4096 { 64 } else { 1 };
const ALIGN_LARGE: usize = if SLAB_BYTES >= 4096 { 4096 } else { 1 };

/// Compaction starts once this fraction (1/n) of the memory in use is dead but pinned by live
/// content in the same slabs. In a long churn of small content, compaction moved 0.3 bytes per
/// incoming byte in an arena of 128 slabs, and 3 bytes in an arena of 16 slabs.
const DEAD_SHARE_MAX: usize = 5;
/// Maximum number of residents moved per call. Moving a small resident takes about a microsecond.
const RESIDENTS_MOVED_MAX: usize = 512;
/// Minimum number of stale resident references in a slab before they are cleared.
const RESIDENTS_GONE_MIN: usize = 64;

/// Result of a call to [`Arena::compact`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// Nothing was moved, because moving is not worthwhile or the arena has no room for the copies.
    Nothing,
    /// Part of a slab's live content was moved. Later calls move the rest.
    Begun,
    /// All of a slab's live content was moved. The slab is free once no reader holds a run in it.
    Emptied,
}

/// Content that can be moved to another slab.
pub(crate) trait Resident: fmt::Debug + Send + Sync {
    /// Moves this content's runs out of `slab`.
    fn move_out_of(self: std::sync::Arc<Self>, slab: usize) -> Result<(), NoRoom>;
}

/// A memfd with a fixed number of slabs.
pub struct Arena {
    memory: Memory,
    slabs: Mutex<Slabs>,
    slabs_max: usize,
}

#[derive(Debug)]
struct Slabs {
    free: Vec<usize>,
    /// Number of live runs in each slab, plus one while the slab is open.
    holders: Vec<u32>,
    /// Total size of the live runs in each slab, in bytes; `live_bytes_total` is the sum over all
    /// slabs.
    live_bytes: Vec<usize>,
    live_bytes_total: usize,
    /// Movable content in each slab, some of which may have been dropped.
    residents: Vec<Vec<Weak<dyn Resident>>>,
    small: Option<Open>,
    large: Option<Open>,
}

/// A slab from which runs are being cut.
#[derive(Debug, Clone, Copy)]
struct Open {
    slab: usize,
    used: usize,
    align: usize,
}

/// Error: no slab is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room left in the content memory")
    }
}

impl std::error::Error for NoRoom {}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("slabs_max", &self.slabs_max).field("free", &self.free_slabs()).finish()
    }
}

impl Arena {
    /// Creates an arena of `bytes_max` bytes, rounded up to whole slabs (at least two, one for each
    /// size class).
    ///
    /// # Errors
    ///
    /// Returns an error if the memfd cannot be created or mapped.
    pub fn new(bytes_max: u64) -> io::Result<Arc<Self>> {
        let slabs_max = usize::try_from(bytes_max.div_ceil(SLAB_BYTES as u64))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?
            .max(2);
        let slabs = Slabs {
            free: (0..slabs_max).rev().collect(),
            holders: vec![0; slabs_max],
            live_bytes: vec![0; slabs_max],
            live_bytes_total: 0,
            residents: vec![Vec::new(); slabs_max],
            small: None,
            large: None,
        };
        Ok(Arc::new(Self { memory: Memory::new(slabs_max)?, slabs: Mutex::new(slabs), slabs_max }))
    }

    /// Returns the number of free slabs.
    pub fn free_slabs(&self) -> usize {
        lock(&self.slabs).free.len()
    }

    /// Returns the total number of slabs.
    pub fn slabs_max(&self) -> usize {
        self.slabs_max
    }

    /// Returns the memfd, for `sendfile`.
    #[cfg(not(loom))]
    pub fn file(&self) -> rustix::fd::BorrowedFd<'_> {
        self.memory.file()
    }

    /// Allocates a run of at most `want` bytes. The run is shorter if `want` exceeds a slab, or if
    /// the run takes the rest of an open slab.
    pub(crate) fn allocate(arena: &Arc<Self>, want: usize) -> Result<Run, NoRoom> {
        let want = want.max(1);
        let mut slabs = lock(&arena.slabs);
        let (slab, at, len) = if want >= SLAB_BYTES {
            (slabs.take_free()?, 0, SLAB_BYTES)
        } else if want <= SMALL_BYTES_MAX {
            slabs.cut_small(want, arena)?
        } else {
            slabs.cut_large(want, arena)?
        };
        slabs.holders[slab] += 1;
        slabs.live_bytes[slab] += len;
        slabs.live_bytes_total += len;
        Ok(Run { arena: arena.clone(), at: (slab * SLAB_BYTES + at) as u64, len, used: len.into() })
    }

    /// Returns the number of live content bytes, including space reserved for content still
    /// arriving.
    pub fn live_bytes(&self) -> usize {
        lock(&self.slabs).live_bytes_total
    }

    /// Registers content that has a run in `slab` and can be moved out of it.
    pub(crate) fn register_resident(&self, slab: usize, resident: Weak<dyn Resident>) {
        lock(&self.slabs).residents[slab].push(resident);
    }

    /// Moves live content out of the slab with the least live content, if much of the memory in use
    /// is dead. Emptying a slab with very many residents takes several calls.
    pub fn compact(&self) -> Compaction {
        let mut slabs = lock(&self.slabs);
        let Some((slab, residents)) = slabs.sparsest() else { return Compaction::Nothing };
        let is_all = slabs.residents[slab].is_empty();
        drop(slabs);
        let moved =
            residents.iter().filter_map(Weak::upgrade).try_for_each(|resident| resident.move_out_of(slab));
        if moved.is_err() {
            lock(&self.slabs).residents[slab].extend(residents);
            return Compaction::Nothing;
        }
        if is_all { Compaction::Emptied } else { Compaction::Begun }
    }

    /// Releases a run of `used` bytes in `slab`; releasing the last run frees the slab's pages.
    fn release(&self, slab: usize, used: usize) {
        let mut slabs = lock(&self.slabs);
        slabs.subtract_live(slab, used);
        slabs.holders[slab] -= 1;
        if slabs.holders[slab] > 0 {
            return;
        }
        drop(slabs);
        self.recycle(slab);
    }

    /// Punches out the pages of a slab without holders, then adds it to the free list. A slab whose
    /// pages cannot be punched out is never reused, because a socket may still be sending them.
    fn recycle(&self, slab: usize) {
        if self.memory.punch(slab).is_ok() {
            lock(&self.slabs).free.push(slab);
        }
    }
}

impl Slabs {
    fn subtract_live(&mut self, slab: usize, bytes: usize) {
        self.live_bytes[slab] -= bytes;
        self.live_bytes_total -= bytes;
        let residents = &mut self.residents[slab];
        if residents.len() > 2 * self.holders[slab] as usize + RESIDENTS_GONE_MIN {
            residents.retain(|resident| resident.strong_count() > 0);
        }
    }

    /// Returns the slab with the least live content among those that can be emptied, and the
    /// residents to move in this call. Returns `None` if moving is not worthwhile.
    fn sparsest(&mut self) -> Option<(usize, Vec<Weak<dyn Resident>>)> {
        let used_bytes = (self.holders.len() - self.free.len()) * SLAB_BYTES;
        if used_bytes - self.live_bytes_total < used_bytes / DEAD_SHARE_MAX {
            return None;
        }
        let is_open = |slab: usize| [self.small, self.large].iter().flatten().any(|open| open.slab == slab);
        let can_be_emptied =
            |slab: &usize| self.holders[*slab] > 0 && !self.residents[*slab].is_empty() && !is_open(*slab);
        let slab =
            (0..self.holders.len()).filter(can_be_emptied).min_by_key(|slab| self.live_bytes[*slab])?;
        let dead_bytes = SLAB_BYTES - self.live_bytes[slab];
        let residents = &mut self.residents[slab];
        let left = residents.len().saturating_sub(RESIDENTS_MOVED_MAX);
        (dead_bytes >= SLAB_BYTES / DEAD_SHARE_MAX).then(|| (slab, residents.split_off(left)))
    }

    fn take_free(&mut self) -> Result<usize, NoRoom> {
        let slab = self.free.pop().ok_or(NoRoom)?;
        self.residents[slab].clear();
        Ok(slab)
    }

    /// Cuts a single run for small content. Opens the next slab if the open one has no room.
    fn cut_small(&mut self, want: usize, arena: &Arena) -> Result<(usize, usize, usize), NoRoom> {
        if let Some(cut) = self.small.as_mut().and_then(|open| open.cut(want)) {
            return Ok(cut);
        }
        let mut open = self.open_next(ALIGN_SMALL)?;
        let cut = open.cut(want).expect("small content fits in an empty slab");
        self.close(self.small, arena);
        self.small = Some(open);
        Ok(cut)
    }

    /// Cuts a run for large content. Uses the rest of the open slab if it is large enough to be
    /// worth a separate `sendfile`; otherwise opens the next slab.
    fn cut_large(&mut self, want: usize, arena: &Arena) -> Result<(usize, usize, usize), NoRoom> {
        if let Some(open) = &mut self.large {
            let piece = if open.left() >= SMALL_BYTES_MAX { want.min(open.left()) } else { want };
            if let Some(cut) = open.cut(piece) {
                return Ok(cut);
            }
        }
        let mut open = self.open_next(ALIGN_LARGE)?;
        let cut = open.cut(want).expect("a run shorter than a slab fits in an empty slab");
        self.close(self.large, arena);
        self.large = Some(open);
        Ok(cut)
    }

    fn open_next(&mut self, align: usize) -> Result<Open, NoRoom> {
        let slab = self.take_free()?;
        self.holders[slab] = 1;
        Ok(Open { slab, used: 0, align })
    }

    /// Closes a full slab. If all its content has already been dropped, frees the slab at once.
    fn close(&mut self, open: Option<Open>, arena: &Arena) {
        let Some(Open { slab, .. }) = open else { return };
        self.holders[slab] -= 1;
        if self.holders[slab] == 0 && arena.memory.punch(slab).is_ok() {
            self.free.push(slab);
        }
    }
}

impl Open {
    /// Returns the offset of the next run within the slab.
    fn at(&self) -> usize {
        self.used.next_multiple_of(self.align)
    }

    fn left(&self) -> usize {
        SLAB_BYTES.saturating_sub(self.at())
    }

    fn cut(&mut self, want: usize) -> Option<(usize, usize, usize)> {
        if want == 0 || want > self.left() {
            return None;
        }
        let at = self.at();
        self.used = at + want;
        Some((self.slab, at, want))
    }
}

/// A run of bytes in one slab, released on drop.
pub(crate) struct Run {
    arena: Arc<Arena>,
    at: u64,
    len: usize,
    /// How many of the `len` bytes are in use. Once the content is complete, the writer returns the
    /// others to the arena.
    used: AtomicUsize,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({}+{})", self.at, self.len)
    }
}

impl Run {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the memfd offset of byte `at` of the run.
    pub(crate) fn file_offset(&self, at: usize) -> u64 {
        self.at + at as u64
    }

    /// Writes bytes at offset `at`, where nothing has been published yet.
    #[allow(unsafe_code)]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "write past the end of the run");
        // SAFETY: the assertion keeps the write within the run; in `fill`, only one writer writes,
        // and only past the published bytes.
        unsafe { self.arena.memory.write(self.file_offset(at), bytes) };
    }

    /// Fills this run with published bytes of `other`, starting at byte `at` of `other`.
    pub(crate) fn copy_from(&self, other: &Run, at: usize) {
        #[cfg(not(loom))]
        self.write(0, other.read(at, self.len));
        #[cfg(loom)]
        self.write(0, &other.copy(at, self.len));
    }

    /// Returns published bytes.
    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    pub(crate) fn read(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len, "read past the end of the run");
        // SAFETY: the assertion keeps the read within the run, which `self` keeps alive; `fill`
        // hands out only published bytes.
        unsafe { self.arena.memory.read(self.file_offset(at), len) }
    }

    /// Copies published bytes.
    #[cfg(loom)]
    pub(crate) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        self.arena.memory.copy(self.file_offset(at), len)
    }

    /// Gives the bytes beyond `used` back to the arena, which can reuse them only if no run was
    /// allocated after this one.
    pub(crate) fn shrink_to(&self, used: usize) {
        let slab = self.slab();
        let end = usize::try_from(self.at).expect("mapping offsets fit in usize") % SLAB_BYTES + self.len;
        let mut slabs = lock(&self.arena.slabs);
        let slabs = &mut *slabs;
        slabs.subtract_live(slab, self.used.swap(used, Relaxed) - used);
        for open in [&mut slabs.small, &mut slabs.large].into_iter().flatten() {
            if open.slab == slab && open.used == end {
                open.used = end - self.len + used;
            }
        }
    }

    /// Returns the slab that contains this run.
    pub(crate) fn slab(&self) -> usize {
        usize::try_from(self.at).expect("mapping offsets fit in usize") / SLAB_BYTES
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.arena.release(self.slab(), *self.used.get_mut());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_content_shares_a_slab_that_is_freed_with_its_last_run() {
        let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
        let runs: Vec<Run> = (0..100).map(|_| Arena::allocate(&arena, 1000).unwrap()).collect();
        assert_eq!(arena.free_slabs(), 3);
        // Allocate enough to close the first slab.
        let more: Vec<Run> = (0..2100).map(|_| Arena::allocate(&arena, 1000).unwrap()).collect();
        assert_eq!(arena.free_slabs(), 2);
        drop(runs);
        assert_eq!(arena.free_slabs(), 2, "the slab still holds later runs");
        drop(more);
        assert_eq!(arena.free_slabs(), 3, "only the open slab is held");
    }

    #[test]
    fn large_content_takes_whole_slabs_and_a_tail() {
        let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
        let whole = Arena::allocate(&arena, 5_000_000).unwrap();
        assert_eq!(whole.len(), SLAB_BYTES);
        let tail = Arena::allocate(&arena, SLAB_BYTES - 100_000).unwrap();
        let next = Arena::allocate(&arena, 500_000).unwrap();
        let left = 100_000 - 100_000 % ALIGN_LARGE;
        assert_eq!((tail.len(), next.len()), (SLAB_BYTES - 100_000, left));
        assert_eq!(arena.free_slabs(), 2);
    }

    #[test]
    fn full_arena_refuses_and_recovers() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let held =
            [Arena::allocate(&arena, SLAB_BYTES).unwrap(), Arena::allocate(&arena, SLAB_BYTES).unwrap()];
        assert_eq!(Arena::allocate(&arena, 1).unwrap_err(), NoRoom);
        drop(held);
        assert_eq!(arena.free_slabs(), 2);
        Arena::allocate(&arena, 1).unwrap();
    }

    #[test]
    fn unused_tail_of_a_run_is_reused() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let run = Arena::allocate(&arena, 60_000).unwrap();
        run.shrink_to(100);
        let next = Arena::allocate(&arena, 100).unwrap();
        assert_eq!(next.file_offset(0), 128);
    }

    #[test]
    fn recycled_slab_has_new_pages() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let run = Arena::allocate(&arena, SLAB_BYTES).unwrap();
        run.write(0, b"old");
        drop(run);
        let run = Arena::allocate(&arena, SLAB_BYTES).unwrap();
        assert_eq!(run.read(0, 3), [0, 0, 0]);
    }
}
