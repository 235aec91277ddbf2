//! Backoff: pauses between the attempts of an operation that keeps failing.
//!
//! The pauses are random, so that processes that obstruct one another, such as two consumers that
//! verify the same block, do not repeat their attempts at the same times.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

/// Upper bound of the first pause; each further pause doubles it.
const FIRST_MAX: Duration = Duration::from_millis(200);
/// Maximum pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pauses after consecutive failures.
#[derive(Debug)]
pub struct Backoff {
    /// Upper bound of the next pause.
    most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { most: FIRST_MAX }
    }
}

impl Backoff {
    /// Whether no attempt has failed yet.
    pub(crate) fn is_first(&self) -> bool {
        self.most == FIRST_MAX
    }

    /// Returns the pause after a failure: a random time between half the upper bound and the upper
    /// bound.
    pub fn pause(&mut self) -> Duration {
        let random = f64::from((RandomState::new().hash_one(()) >> 32) as u32) / f64::from(u32::MAX);
        let pause = self.most.mul_f64(0.5 + 0.5 * random);
        self.most = (self.most * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_maximum_and_differ() {
        let pauses = || {
            let mut backoff = Backoff::default();
            [(); 10].map(|()| backoff.pause())
        };
        let (one, other) = (pauses(), pauses());
        assert!(one[0] >= FIRST_MAX / 2 && one[0] <= FIRST_MAX, "{one:?}");
        assert!(one[9] >= PAUSE_MAX / 2 && one[9] <= PAUSE_MAX, "{one:?}");
        assert!(one != other, "{one:?}");
    }
}
