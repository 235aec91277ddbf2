//! Purge state of a response: its position in the purge sequence, and the result of its tests.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Value of [`PurgeState::checked`] for a purged response.
pub(super) const GONE: u64 = u64::MAX;
/// Value of [`PurgeState::stale_ms`] for a response that was not soft-purged.
const NEVER: u64 = u64::MAX;

/// A response's position in the purge sequence, as stored with the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the newest purge before the fetch started; 0 before the first purge.
    pub number: u64,
    /// When a soft purge made the response stale, in Unix milliseconds; `None` without a soft
    /// purge.
    pub stale_ms: Option<u64>,
}

/// Purge state of a stored response: the purges against which it was tested, and the result.
#[derive(Debug)]
pub(crate) struct PurgeState {
    pub(super) number: u64,
    pub(super) checked: AtomicU64,
    stale_ms: AtomicU64,
}

impl PurgeState {
    /// Creates the state of a response whose fetch started after purge `number`.
    pub(crate) fn new(number: u64) -> Self {
        Self { number, checked: number.into(), stale_ms: NEVER.into() }
    }

    /// Creates the state of a response found on disk.
    pub(crate) fn at(position: Position) -> Self {
        let purge_state = Self::new(position.number);
        position.stale_ms.into_iter().for_each(|since_ms| purge_state.soften(since_ms));
        purge_state
    }

    pub(crate) fn position(&self) -> Position {
        Position { number: self.number, stale_ms: self.stale_ms() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the response was tested against all listed purges up to this number.
    pub(crate) fn is_tested(&self, number: u64) -> bool {
        self.checked.load(Acquire) >= number
    }

    /// Returns the purge number up to which the response was tested.
    pub(crate) fn tested(&self) -> u64 {
        self.checked.load(Acquire)
    }

    /// Returns whether the response was found to be purged.
    pub(crate) fn is_gone(&self) -> bool {
        self.checked.load(Acquire) == GONE
    }

    /// Creates the state for another head with the same content.
    pub(crate) fn again(&self) -> Self {
        Self { stale_ms: self.stale_ms.load(Relaxed).into(), ..Self::new(self.number) }
    }

    /// Makes the response stale from `since_ms`, or from the time of an earlier soft purge.
    pub(crate) fn soften(&self, since_ms: u64) {
        self.stale_ms.fetch_min(since_ms, Relaxed);
    }

    /// Returns when a soft purge made the response stale, in Unix milliseconds; `None` without a
    /// soft purge.
    pub(crate) fn stale_ms(&self) -> Option<u64> {
        Some(self.stale_ms.load(Relaxed)).filter(|since_ms| *since_ms != NEVER)
    }
}
