//! A byte budget shared by many holders.
//!
//! **Invariant:** the total never exceeds the limit, and dropping a [`Share`] returns its bytes.
//! **Invariant:** a share cannot grow beyond what it leaves free, so small requests succeed even
//! while a few large shares are in use.

use std::sync::atomic::{AtomicU64, Ordering};

/// A byte limit, and the bytes in use.
#[derive(Debug)]
pub(super) struct Budget {
    held: AtomicU64,
    max: u64,
}

/// One holder's share of a [`Budget`].
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    held: u64,
}

impl Budget {
    pub(super) fn new(max: u64) -> Budget {
        Budget { held: AtomicU64::new(0), max }
    }

    /// Returns the bytes in use.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Creates an empty share.
    pub(super) fn share(&self) -> Share<'_> {
        Share { budget: self, held: 0 }
    }
}

impl Share<'_> {
    /// Resizes the share to `bytes`. Returns `false` and changes nothing if the new size exceeds
    /// the bytes that would remain free. Shrinking always succeeds.
    #[must_use]
    pub(super) fn set(&mut self, bytes: u64) -> bool {
        let (held, max) = (self.held, self.budget.max);
        // Relaxed: the counter guards no other memory.
        let changed = self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            let all = all - held + bytes;
            (bytes <= held || bytes <= max.saturating_sub(all)).then_some(all)
        });
        if changed.is_ok() {
            self.held = bytes;
        }
        changed.is_ok()
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn released_bytes_become_available_to_others() {
        let budget = Budget::new(20);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(!one.set(11) && one.set(10));
        assert!(!other.set(6) && other.set(5));
        assert!(one.set(8) && other.set(6));
        drop(one);
        assert!(!other.set(11) && other.set(10));
    }

    #[test]
    fn small_share_is_granted_while_large_ones_compete() {
        let budget = Budget::new(256 << 20);
        let mut large: Vec<_> = (0..10).map(|_| budget.share()).collect();
        for share in &mut large {
            while share.set(share.held + 10_000) && share.held < 64 << 20 {}
        }
        assert!(budget.share().set(100_000));
    }
}
