//! Memory for content: queues stored responses for eviction, evicts them, and compacts sparse
//! slabs.
//!
//! The queue lock is not held while a response is examined, removed or moved: doing so takes other
//! locks, and releasing a slab's last run costs a system call.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Cache;
use crate::arena::{Compaction, SLAB_BYTES};
use crate::disk;
use crate::fill::{Demotion, Progress};
use crate::stored::Stored;
use crate::sync::lock;

/// Number of slabs kept free for fills to grow into.
const FREE_SLABS_MIN: usize = 2;
/// Maximum number of stored responses examined per call of [`Cache::make_room`], to bound the cost
/// to a single request.
const EVICTION_STEPS_MAX: usize = 256;
/// Maximum number of slabs compacted per call. Compacting a slab copies less than a slab of
/// content, and may empty the slab only partly.
const COMPACTIONS_MAX: usize = 1;

impl Cache {
    /// Queues `stored` for eviction. It inherits the use counts of the responses it replaced.
    pub(super) fn enqueue(&self, stored: &Arc<Stored>, replaced: &[Arc<Stored>]) {
        for old in replaced {
            stored.frequency.succeed(&old.frequency);
        }
        let bytes = match (stored.head.length, stored.content.progress()) {
            // A response can be evicted only once it is complete, and its size is unknown until
            // then.
            (None, Progress::AwaitingHead | Progress::Filling(_)) => return,
            (None, _) => stored.content.kept_bytes(),
            (Some(_), _) if stored.head.sliced => 0,
            (Some(length), _) => length,
        };
        let bytes = bytes + stored.index_bytes() as u64;
        let mut queue = lock(&self.queue);
        queue.insert(Arc::downgrade(stored), stored.key().digest, bytes, &stored.frequency);
        // Replaced and failed responses leave dead references in the queue. Clear them before they
        // outnumber the live ones.
        if queue.len() > 2 * self.stored.load(Relaxed) + 1024 {
            queue.retain(|stored| stored.strong_count() > 0);
        }
    }

    /// Evicts stored responses until there is room for `want_bytes` of content in addition to the
    /// slabs kept free. Stops early if enough has been evicted but is still held by readers, or
    /// after a bounded number of steps. While a slab is being emptied over several calls, the slabs
    /// kept free may be used.
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
                    // Later calls will finish emptying the slab; until then the slabs kept free
                    // suffice.
                    Compaction::Begun if !is_index_full && self.arena.free_slabs() >= want_slabs.max(1) => {
                        return;
                    }
                    Compaction::Begun | Compaction::Emptied => {
                        compactions += 1;
                        continue;
                    }
                }
            }
            let Some(mut candidate) = lock(&self.queue).pop_candidate() else { return };
            let Some(stored) = candidate.item.upgrade() else { continue };
            match stored.content.progress() {
                Progress::Complete(_) => {
                    let bytes = stored.content.kept_bytes();
                    candidate.bytes = bytes + stored.index_bytes() as u64;
                    if candidate.stays(&stored.frequency) {
                        lock(&self.queue).readmit(candidate);
                        continue;
                    }
                    match if is_index_full { Demotion::No } else { stored.content.demote() } {
                        Demotion::Already => continue,
                        Demotion::Awaited => {
                            lock(&self.queue).defer(candidate);
                            continue;
                        }
                        Demotion::OnDisk => {}
                        Demotion::No => self.remove_stored(&stored),
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
