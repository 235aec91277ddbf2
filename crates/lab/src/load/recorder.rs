//! Where the clients of a thread count what they measure; the main thread looks on.
//!
//! What began in the warm-up is not counted. A lock that one thread takes, and another once a second, costs some 20 ns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Failure;
use super::figures::{Figures, Time};

/// Counts into the figures of one thread.
#[derive(Debug, Clone)]
pub struct Recorder {
    figures: Arc<Mutex<Figures>>,
    from: Instant,
    session: u64,
}

/// A request that is being counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    is_counted: bool,
}

impl Recorder {
    /// Counts what begins from then on; `session` tells this run from others.
    pub fn new(from: Instant, session: u64) -> Self {
        Self { figures: Arc::default(), from, session }
    }

    /// The figures so far.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        // What panics while it counts has at most one count too few.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells this run from others.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// When counting begins.
    pub fn from(&self) -> Instant {
        self.from
    }

    /// A request begins, or was due, at that time.
    pub fn begin(&self, at: Instant) -> Counted {
        let is_counted = at >= self.from;
        if is_counted {
            self.figures().begun += 1;
        }
        Counted { is_counted }
    }

    /// The request ended: with a status if there was one, with these times, with or without an error.
    pub fn end(
        &self,
        request: Counted,
        status: Option<u16>,
        times: &[(Time, Duration)],
        failure: Option<&Failure>,
    ) {
        if !request.is_counted {
            return;
        }
        let mut figures = self.figures();
        figures.requests += 1;
        if let Some(status) = status {
            *figures.statuses.entry(status).or_default() += 1;
        }
        for (time, value) in times {
            figures.record(*time, micros(*value));
        }
        if let Some(failure) = failure {
            figures.fail(failure.kind, unix_us(SystemTime::now()), &failure.detail);
        }
    }

    /// A time that belongs to the request.
    pub fn time(&self, request: Counted, time: Time, value: Duration) {
        if request.is_counted {
            self.figures().record(time, micros(value));
        }
    }

    /// So many bytes of content arrived at that time.
    pub fn content(&self, at: Instant, bytes: u64) {
        if at >= self.from {
            self.figures().content_bytes += bytes;
        }
    }

    /// An idle connection had been closed.
    pub fn reconnect(&self, request: Counted) {
        if request.is_counted {
            self.figures().reconnects += 1;
        }
    }
}

fn micros(value: Duration) -> u64 {
    u64::try_from(value.as_micros()).unwrap_or(u64::MAX)
}

/// In microseconds.
pub(super) fn unix_us(time: SystemTime) -> u64 {
    // A clock before 1970 is no clock.
    time.duration_since(UNIX_EPOCH).map_or(0, micros)
}
