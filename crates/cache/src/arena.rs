//! The memory that content lies in: slabs of a memfd, runs of bytes cut from them.
//!
//! A slab is the unit of recycling. Content takes *runs*: whole slabs while it is large, then a piece of a slab
//! that it shares with others. A slab whose last run is dropped has its pages punched out and is free again, so
//! **bytes are never overwritten while a socket may still send them** (`sendfile` does not copy, and a
//! retransmission reads the page once more).
//!
//! Small and large content share no slab: a hot playlist must not pin two megabytes of dead segments. What is still alive
//! in a slab that is dead for the most part is copied to the one being filled, so that the slab can be recycled
//! ([`Arena::compact`]): else a few hot survivors come to hold nearly all of them.

use std::fmt;
use std::io;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::memory::Memory;
use crate::sync::{Arc, Mutex, lock};

/// Bytes of a slab: one huge page.
#[cfg(not(loom))]
pub const SLAB_BYTES: usize = 2 << 20;
/// Bytes of a slab, small enough for a model checker.
#[cfg(loom)]
pub const SLAB_BYTES: usize = 4;

/// Content up to this size is kept in one run, in slabs for small content.
pub const SMALL_BYTES_MAX: usize = SLAB_BYTES / 32;

/// Small runs begin on a cache line, large ones on a page: one that is sent in two parts costs two fragments of a
/// packet, and those are what limits a packet.
const ALIGN_SMALL: usize = if SLAB_BYTES >= 4096 { 64 } else { 1 };
const ALIGN_LARGE: usize = if SLAB_BYTES >= 4096 { 4096 } else { 1 };

/// The part of the memory in use that may be dead, shut in by what is alive in the same slabs. In a long churn of small
/// content each byte that came in moved 0.3 bytes in an arena of 128 slabs, and 3 in one of 16.
const DEAD_SHARE_MAX: usize = 5;
/// Residents that one call has leave at most: each of a slab of small ones takes about a microsecond.
const RESIDENTS_MOVED_MAX: usize = 512;
/// Residents of a slab that may be gone before they are cleared out.
const RESIDENTS_GONE_MIN: usize = 64;

/// What one call of [`Arena::compact`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// Nothing: it was not worth it, or there was no room for what would move.
    Nothing,
    /// Some of what is alive in a slab has left it: the calls to come empty it.
    Begun,
    /// All that is alive in a slab has left it. It is free once nobody reads from it any more.
    Emptied,
}

/// Content that can move.
pub(crate) trait Resident: fmt::Debug + Send + Sync {
    /// Leaves `slab` for another.
    fn leave(self: std::sync::Arc<Self>, slab: usize) -> Result<(), NoRoom>;
}

/// A memfd of a fixed number of slabs.
pub struct Arena {
    memory: Memory,
    slabs: Mutex<Slabs>,
    slabs_max: usize,
}

#[derive(Debug)]
struct Slabs {
    free: Vec<usize>,
    /// Runs alive in each slab, and one more while it is open.
    holders: Vec<u32>,
    /// Bytes of the runs alive in each slab, and in all of them.
    live_bytes: Vec<usize>,
    live_bytes_total: usize,
    /// Who can be asked to leave each slab; some are gone already.
    residents: Vec<Vec<Weak<dyn Resident>>>,
    small: Option<Open>,
    large: Option<Open>,
}

/// A slab that runs are being cut from.
#[derive(Debug, Clone, Copy)]
struct Open {
    slab: usize,
    used: usize,
    align: usize,
}

/// No slab is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room left in the memory for content")
    }
}

impl std::error::Error for NoRoom {}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("slabs_max", &self.slabs_max).field("free", &self.free_slabs()).finish()
    }
}

impl Arena {
    /// An arena of at most `bytes_max` bytes, rounded up to whole slabs (at least two, one for each size class).
    ///
    /// # Errors
    /// When the system refuses the memfd or its mapping.
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

    /// Slabs that nothing lies in.
    pub fn free_slabs(&self) -> usize {
        lock(&self.slabs).free.len()
    }

    /// All slabs.
    pub fn slabs_max(&self) -> usize {
        self.slabs_max
    }

    /// The memfd, for `sendfile`.
    #[cfg(not(loom))]
    pub fn file(&self) -> rustix::fd::BorrowedFd<'_> {
        self.memory.file()
    }

    /// Takes a run of at most `want` bytes: all of them where one slab can hold them, else what is left in it.
    pub(crate) fn take(arena: &Arc<Self>, want: usize) -> Result<Run, NoRoom> {
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

    /// Bytes of content, and of what is reserved for it.
    pub fn live_bytes(&self) -> usize {
        lock(&self.slabs).live_bytes_total
    }

    /// Tells of content that has a run in `slab` and can leave it.
    pub(crate) fn settle(&self, slab: usize, resident: Weak<dyn Resident>) {
        lock(&self.slabs).residents[slab].push(resident);
    }

    /// Empties the slab with the least alive in it, if much of the memory in use is dead. One with very many in it takes
    /// several calls.
    pub fn compact(&self) -> Compaction {
        let mut slabs = lock(&self.slabs);
        let Some((slab, residents)) = slabs.sparsest() else { return Compaction::Nothing };
        let is_all = slabs.residents[slab].is_empty();
        drop(slabs);
        let moved = residents.iter().filter_map(Weak::upgrade).try_for_each(|resident| resident.leave(slab));
        if moved.is_err() {
            lock(&self.slabs).residents[slab].extend(residents);
            return Compaction::Nothing;
        }
        if is_all { Compaction::Emptied } else { Compaction::Begun }
    }

    /// Drops the hold of a run of `used` bytes on `slab`; with the last one its pages go back.
    fn release(&self, slab: usize, used: usize) {
        let mut slabs = lock(&self.slabs);
        slabs.died(slab, used);
        slabs.holders[slab] -= 1;
        if slabs.holders[slab] > 0 {
            return;
        }
        drop(slabs);
        self.recycle(slab);
    }

    /// Punches out the pages of a slab that nobody holds. Nobody can take it before it is in the free list. One that
    /// cannot be punched is never used again: its old pages may be in flight.
    fn recycle(&self, slab: usize) {
        if self.memory.punch(slab).is_ok() {
            lock(&self.slabs).free.push(slab);
        }
    }
}

impl Slabs {
    fn died(&mut self, slab: usize, bytes: usize) {
        self.live_bytes[slab] -= bytes;
        self.live_bytes_total -= bytes;
        let residents = &mut self.residents[slab];
        if residents.len() > 2 * self.holders[slab] as usize + RESIDENTS_GONE_MIN {
            residents.retain(|resident| resident.strong_count() > 0);
        }
    }

    /// The slab with the least alive in it of those that can be emptied, and who is to leave it now, if it is worth it.
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

    /// Small content lies in one run: what does not fit opens the next slab.
    fn cut_small(&mut self, want: usize, arena: &Arena) -> Result<(usize, usize, usize), NoRoom> {
        if let Some(cut) = self.small.as_mut().and_then(|open| open.cut(want)) {
            return Ok(cut);
        }
        let mut open = self.open_next(ALIGN_SMALL)?;
        let cut = open.cut(want).expect("an empty slab holds small content");
        self.close(self.small, arena);
        self.small = Some(open);
        Ok(cut)
    }

    /// Large content takes what is left in the slab, if that is worth a `sendfile` of its own, and the rest from
    /// the next one.
    fn cut_large(&mut self, want: usize, arena: &Arena) -> Result<(usize, usize, usize), NoRoom> {
        if let Some(open) = &mut self.large {
            let piece = if open.left() >= SMALL_BYTES_MAX { want.min(open.left()) } else { want };
            if let Some(cut) = open.cut(piece) {
                return Ok(cut);
            }
        }
        let mut open = self.open_next(ALIGN_LARGE)?;
        let cut = open.cut(want).expect("an empty slab holds less than a slab");
        self.close(self.large, arena);
        self.large = Some(open);
        Ok(cut)
    }

    fn open_next(&mut self, align: usize) -> Result<Open, NoRoom> {
        let slab = self.take_free()?;
        self.holders[slab] = 1;
        Ok(Open { slab, used: 0, align })
    }

    /// Lets go of a full slab; if its content is already gone it is free at once.
    fn close(&mut self, open: Option<Open>, arena: &Arena) {
        let Some(Open { slab, .. }) = open else { return };
        self.holders[slab] -= 1;
        if self.holders[slab] == 0 && arena.memory.punch(slab).is_ok() {
            self.free.push(slab);
        }
    }
}

impl Open {
    /// Where the next run begins.
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

/// A run of bytes in one slab, given back when dropped.
pub(crate) struct Run {
    arena: Arc<Arena>,
    at: u64,
    len: usize,
    /// What of `len` the writer has not given back.
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

    /// Where byte `at` of the run lies in the memfd.
    pub(crate) fn file_offset(&self, at: usize) -> u64 {
        self.at + at as u64
    }

    /// Writes bytes that are not published yet.
    #[allow(unsafe_code)]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "a write past its run");
        // SAFETY: in the run by the assertion; `fill` lets only the one writer write, and only past what it has
        // published.
        unsafe { self.arena.memory.write(self.file_offset(at), bytes) };
    }

    /// Copies bytes of another run that were published to the start of this one.
    pub(crate) fn copy_from(&self, other: &Run, at: usize) {
        #[cfg(not(loom))]
        self.write(0, other.read(at, self.len));
        #[cfg(loom)]
        self.write(0, &other.copy(at, self.len));
    }

    /// Bytes that were published.
    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    pub(crate) fn read(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len, "a read past its run");
        // SAFETY: in the run by the assertion, which `self` holds; `fill` hands out published bytes only.
        unsafe { self.arena.memory.read(self.file_offset(at), len) }
    }

    /// Bytes that were published.
    #[cfg(loom)]
    pub(crate) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        self.arena.memory.copy(self.file_offset(at), len)
    }

    /// Gives back what the writer did not use. It is cut again if nothing was cut after it.
    pub(crate) fn give_back(&self, used: usize) {
        let slab = self.slab();
        let end = usize::try_from(self.at).expect("offsets lie in the mapping") % SLAB_BYTES + self.len;
        let mut slabs = lock(&self.arena.slabs);
        let slabs = &mut *slabs;
        slabs.died(slab, self.used.swap(used, Relaxed) - used);
        for open in [&mut slabs.small, &mut slabs.large].into_iter().flatten() {
            if open.slab == slab && open.used == end {
                open.used = end - self.len + used;
            }
        }
    }

    /// Where it lies.
    pub(crate) fn slab(&self) -> usize {
        usize::try_from(self.at).expect("offsets lie in the mapping") / SLAB_BYTES
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
    fn small_content_shares_a_slab_and_frees_it_with_the_last() {
        let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
        let runs: Vec<Run> = (0..100).map(|_| Arena::take(&arena, 1000).unwrap()).collect();
        assert_eq!(arena.free_slabs(), 3);
        // Enough more to close the first slab.
        let more: Vec<Run> = (0..2100).map(|_| Arena::take(&arena, 1000).unwrap()).collect();
        assert_eq!(arena.free_slabs(), 2);
        drop(runs);
        assert_eq!(arena.free_slabs(), 2, "the slab holds later runs too");
        drop(more);
        assert_eq!(arena.free_slabs(), 3, "only the open slab is held");
    }

    #[test]
    fn large_content_takes_whole_slabs_and_a_tail() {
        let arena = Arena::new(4 * SLAB_BYTES as u64).unwrap();
        let whole = Arena::take(&arena, 5_000_000).unwrap();
        assert_eq!(whole.len(), SLAB_BYTES);
        let tail = Arena::take(&arena, SLAB_BYTES - 100_000).unwrap();
        let next = Arena::take(&arena, 500_000).unwrap();
        let left = 100_000 - 100_000 % ALIGN_LARGE;
        assert_eq!((tail.len(), next.len()), (SLAB_BYTES - 100_000, left));
        assert_eq!(arena.free_slabs(), 2);
    }

    #[test]
    fn a_full_arena_says_so_and_recovers() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let held = [Arena::take(&arena, SLAB_BYTES).unwrap(), Arena::take(&arena, SLAB_BYTES).unwrap()];
        assert_eq!(Arena::take(&arena, 1).unwrap_err(), NoRoom);
        drop(held);
        assert_eq!(arena.free_slabs(), 2);
        Arena::take(&arena, 1).unwrap();
    }

    #[test]
    fn what_was_not_used_is_cut_again() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let run = Arena::take(&arena, 60_000).unwrap();
        run.give_back(100);
        let next = Arena::take(&arena, 100).unwrap();
        assert_eq!(next.file_offset(0), 128);
    }

    #[test]
    fn a_recycled_slab_has_new_pages() {
        let arena = Arena::new(2 * SLAB_BYTES as u64).unwrap();
        let run = Arena::take(&arena, SLAB_BYTES).unwrap();
        run.write(0, b"old");
        drop(run);
        let run = Arena::take(&arena, SLAB_BYTES).unwrap();
        assert_eq!(run.read(0, 3), [0, 0, 0]);
    }
}
