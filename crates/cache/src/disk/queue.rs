//! Which response leaves the disk next: second chance over those on it, in the order they came.
//!
//! Not S3-FIFO, as in memory: what comes is in memory as well, which may be larger than the small queue, and there its uses
//! are not seen from here. So the queue that decides what stays would hold what may not go yet, and know nothing of it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Copy;

/// Copies that are looked at for one that may go: a bound on what a single request pays.
pub(crate) const STEPS_MAX: usize = 256;

/// What lies on disk, the next to go first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    copies: VecDeque<Weak<Copy>>,
}

impl Queue {
    /// What was written just now.
    pub(super) fn push_new(&mut self, copy: &Arc<Copy>) {
        self.copies.push_back(Arc::downgrade(copy));
        self.tidy();
    }

    /// What was found at the start, the newest first.
    pub(super) fn push_old(&mut self, copy: &Arc<Copy>) {
        self.copies.push_front(Arc::downgrade(copy));
    }

    /// The next to go: what only the disk has, and nobody used since it was last looked at. If there is no such thing
    /// and `any` is given, something that memory has too, else what was used longest ago. Looks at each copy once at most,
    /// and at no more than `steps` of them, from which it takes as many as it looked at.
    pub(super) fn victim(&mut self, any: bool, steps: &mut usize) -> Option<Arc<Copy>> {
        let (mut in_memory, mut used) = (None, None);
        for _ in 0..(*steps).min(self.copies.len()) {
            *steps -= 1;
            let Some(copy) = self.copies.pop_front()?.upgrade().filter(|copy| !copy.is_gone()) else {
                continue;
            };
            let is_settled = copy.is_settled();
            if is_settled && !copy.take_hit() {
                return Some(copy);
            }
            self.copies.push_back(Arc::downgrade(&copy));
            (if is_settled { &mut used } else { &mut in_memory }).get_or_insert(copy);
        }
        in_memory.or(used).filter(|_| any)
    }

    /// Forgets those that are gone before they outnumber the others.
    fn tidy(&mut self) {
        if self.copies.len() == self.copies.capacity() {
            self.copies.retain(|copy| copy.strong_count() > 0);
        }
    }
}
