//! Bytes that many hold together, within one limit.
//!
//! **Invariant:** what is held is never above the limit, and what a [`Share`] holds comes back when it is dropped.
//! **Invariant:** nobody gets more than is left for the others then: however much a few hold and do not let go, one who
//! needs little gets it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The limit, and how much of it is held.
#[derive(Debug)]
pub(super) struct Budget {
    held: AtomicU64,
    max: u64,
}

/// What one holder has of a [`Budget`].
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    held: u64,
}

impl Budget {
    pub(super) fn new(max: u64) -> Budget {
        Budget { held: AtomicU64::new(0), max }
    }

    /// A share of no bytes.
    pub(super) fn share(&self) -> Share<'_> {
        Share { budget: self, held: 0 }
    }
}

impl Share<'_> {
    /// Holds `bytes` from now on; `false`, and nothing changes, where that is more than would be left. To hold less is
    /// always granted.
    #[must_use]
    pub(super) fn set(&mut self, bytes: u64) -> bool {
        let (held, max) = (self.held, self.budget.max);
        // The count guards no other memory.
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
    fn what_one_lets_go_another_may_hold() {
        let budget = Budget::new(20);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(!one.set(11) && one.set(10));
        assert!(!other.set(6) && other.set(5));
        assert!(one.set(8) && other.set(6));
        drop(one);
        assert!(!other.set(11) && other.set(10));
    }

    #[test]
    fn one_who_needs_little_gets_it_however_much_others_hold() {
        let budget = Budget::new(256 << 20);
        let mut large: Vec<_> = (0..10).map(|_| budget.share()).collect();
        for share in &mut large {
            while share.set(share.held + 10_000) && share.held < 64 << 20 {}
        }
        assert!(budget.share().set(100_000));
    }
}
