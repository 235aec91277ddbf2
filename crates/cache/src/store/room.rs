//! Room in the memory: what is stored stands in the policy's queues, what has to go is taken from them, and what is
//! left in slabs that are dead for the most part is moved together.
//!
//! No lock of the queues is held while an item is looked at, removed or moved: that takes other locks, and the last hold
//! on a slab is let go with a system call.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cache, Stored};
use crate::arena::{Compaction, SLAB_BYTES};
use crate::disk;
use crate::fill::{Progress, Settled};
use crate::sync::lock;

/// Slabs that are kept free for fills to grow into.
const FREE_SLABS_MIN: usize = 2;
/// Stored responses that one call looks at to make room: a bound on what a single request pays.
const EVICTION_STEPS_MAX: usize = 256;
/// Times that one call has content moved out of a slab at most: a copy of less than a slab each time, which need not empty
/// it.
const COMPACTIONS_MAX: usize = 1;

impl Cache {
    /// Puts `stored` among what may be evicted. It takes over from those whose place it took.
    pub(super) fn enqueue(&self, stored: &Arc<Stored>, replaced: &[Arc<Stored>]) {
        for old in replaced {
            stored.frequency.succeed(&old.frequency);
        }
        let bytes = match (stored.head.length, stored.content.progress()) {
            // It cannot go before it is complete; what it weighs is known then.
            (None, Progress::AwaitingHead | Progress::Filling(_)) => return,
            (None, _) => stored.content.kept_bytes(),
            (Some(_), _) if stored.head.sliced => 0,
            (Some(length), _) => length,
        };
        let bytes = bytes + stored.index_bytes() as u64;
        let mut queue = lock(&self.queue);
        queue.insert(Arc::downgrade(stored), stored.key.digest, bytes, &stored.frequency);
        // Replaced and failed responses leave their place behind; clear them before they outnumber the living.
        if queue.len() > 2 * self.stored.load(Relaxed) + 1024 {
            queue.retain(|stored| stored.strong_count() > 0);
        }
    }

    /// Evicts until `want_bytes` of content have room beside the slabs that are kept free, or enough was evicted
    /// and only readers still hold it, or it has taken long enough. While a slab is being emptied call by call, those that
    /// are kept free count too.
    pub fn make_room(&self, want_bytes: u64) {
        let want_slabs = usize::try_from(want_bytes).unwrap_or(usize::MAX).div_ceil(SLAB_BYTES);
        let slabs = FREE_SLABS_MIN + want_slabs;
        let (mut evicted_bytes, mut compactions, mut disk_steps) = (0, 0, disk::STEPS_MAX);
        for _ in 0..EVICTION_STEPS_MAX {
            let is_index_full = self.is_index_full();
            let is_short = is_index_full
                || self.arena.free_slabs() < slabs && evicted_bytes < (slabs * SLAB_BYTES) as u64;
            if !is_short {
                return;
            }
            if is_index_full && self.disk.as_ref().is_some_and(|tier| tier.evict_for_index(&mut disk_steps)) {
                continue;
            }
            if compactions < COMPACTIONS_MAX {
                match self.arena.compact() {
                    Compaction::Nothing => {}
                    // The calls to come have the slab emptied: until then those that are kept free will do.
                    Compaction::Begun if !is_index_full && self.arena.free_slabs() >= want_slabs.max(1) => {
                        return;
                    }
                    Compaction::Begun | Compaction::Emptied => {
                        compactions += 1;
                        continue;
                    }
                }
            }
            let Some(mut candidate) = lock(&self.queue).take() else { return };
            let Some(stored) = candidate.item.upgrade() else { continue };
            match stored.content.progress() {
                Progress::Complete(_) => {
                    let bytes = stored.content.kept_bytes();
                    candidate.bytes = bytes + stored.index_bytes() as u64;
                    if candidate.stays(&stored.frequency) {
                        lock(&self.queue).keep(candidate);
                        continue;
                    }
                    match if is_index_full { Settled::No } else { stored.content.settle() } {
                        Settled::Already => continue,
                        Settled::Awaited => {
                            lock(&self.queue).defer(candidate);
                            continue;
                        }
                        Settled::OnDisk => {}
                        Settled::No => self.remove_stored(&stored),
                    }
                    evicted_bytes += bytes;
                    lock(&self.queue).evicted(candidate);
                }
                Progress::Failed(_) => self.remove_stored(&stored),
                Progress::Filling(_) | Progress::AwaitingHead => lock(&self.queue).defer(candidate),
            }
        }
    }
}
