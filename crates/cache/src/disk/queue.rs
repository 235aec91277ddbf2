//! Eviction order on disk: first in, first out, with a second chance for used copies.
//!
//! S3-FIFO, which is used for memory, does not fit here. A new response is also in memory, where
//! its uses are not visible to the disk tier, and memory may be larger than the small queue. The
//! small queue, which decides which copies stay, would thus contain responses that cannot be
//! evicted yet, and would not see their uses.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::content::DiskCopy;

/// Maximum number of copies examined per search for a victim, to bound the cost to a single
/// request.
pub(crate) const STEPS_MAX: usize = 256;

/// The copies on disk, next victim first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    copies: VecDeque<Weak<DiskCopy>>,
}

impl Queue {
    /// Adds a copy that was just written.
    pub(super) fn push_new(&mut self, copy: &Arc<DiskCopy>) {
        self.copies.push_back(Arc::downgrade(copy));
        self.tidy();
    }

    /// Adds a copy found at startup. Call this for the newest copy first.
    pub(super) fn push_old(&mut self, copy: &Arc<DiskCopy>) {
        self.copies.push_front(Arc::downgrade(copy));
    }

    /// Returns the next victim: a copy whose content is only on disk and was not used since it was
    /// last examined. If no such copy is found and `any` is set, returns a copy whose content is
    /// also in memory, or else a used copy. Examines each copy at most once, and at most `steps`
    /// copies in all; subtracts the number examined from `steps`.
    pub(super) fn victim(&mut self, any: bool, steps: &mut usize) -> Option<Arc<DiskCopy>> {
        let (mut in_memory, mut used) = (None, None);
        for _ in 0..(*steps).min(self.copies.len()) {
            *steps -= 1;
            let Some(copy) = self.copies.pop_front()?.upgrade().filter(|copy| !copy.is_gone()) else {
                continue;
            };
            let is_only_on_disk = copy.is_only_on_disk();
            if is_only_on_disk && !copy.take_hit() {
                return Some(copy);
            }
            self.copies.push_back(Arc::downgrade(&copy));
            (if is_only_on_disk { &mut used } else { &mut in_memory }).get_or_insert(copy);
        }
        in_memory.or(used).filter(|_| any)
    }

    /// Drops dead references before they outnumber the live ones.
    fn tidy(&mut self) {
        if self.copies.len() == self.copies.capacity() {
            self.copies.retain(|copy| copy.strong_count() > 0);
        }
    }
}
