//! How a response stands in the sequence of purges: what it was tested against, and what that came to.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// [`Standing::checked`] of what is gone.
pub(super) const GONE: u64 = u64::MAX;
/// [`Standing::stale_ms`] of what was not purged.
const NEVER: u64 = u64::MAX;

/// Where a response stands in the sequence of purges, as it is kept with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The number of the newest purge before its fetch began, 0 for none.
    pub number: u64,
    /// Since when it is stale by a purge, in unix milliseconds.
    pub stale_ms: Option<u64>,
}

/// How a stored response stands: what it was tested against, and what that came to.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(super) number: u64,
    pub(super) checked: AtomicU64,
    stale_ms: AtomicU64,
}

impl Standing {
    /// Of a response whose fetch began after purge `number`.
    pub(crate) fn new(number: u64) -> Self {
        Self { number, checked: number.into(), stale_ms: NEVER.into() }
    }

    /// Of a response that was found on disk.
    pub(crate) fn at(position: Position) -> Self {
        let standing = Self::new(position.number);
        position.stale_ms.into_iter().for_each(|since_ms| standing.soften(since_ms));
        standing
    }

    pub(crate) fn position(&self) -> Position {
        Position { number: self.number, stale_ms: self.stale_ms() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it was tested against all purges that were written down up to this number.
    pub(crate) fn is_tested(&self, number: u64) -> bool {
        self.checked.load(Acquire) >= number
    }

    /// Whether it was found to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.checked.load(Acquire) == GONE
    }

    /// For another head of the same content.
    pub(crate) fn again(&self) -> Self {
        Self { stale_ms: self.stale_ms.load(Relaxed).into(), ..Self::new(self.number) }
    }

    /// Stale from `since_ms` on, or from when it was before.
    pub(crate) fn soften(&self, since_ms: u64) {
        self.stale_ms.fetch_min(since_ms, Relaxed);
    }

    /// Since when it is stale by a purge, in unix milliseconds.
    pub(crate) fn stale_ms(&self) -> Option<u64> {
        Some(self.stale_ms.load(Relaxed)).filter(|since_ms| *since_ms != NEVER)
    }
}
