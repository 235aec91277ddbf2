//! Counters of a pool and of the reads that use it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::FailureKind;

/// Bounds of the histogram of requests per connection.
const REQUESTS_BOUNDS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 1000.0, 10_000.0];
/// Bounds of the histogram of connection ages, in seconds.
const AGE_BOUNDS_S: [f64; 8] = [0.1, 1.0, 5.0, 20.0, 60.0, 300.0, 1800.0, 3600.0];

/// A counter of seconds.
pub(crate) type Seconds = Counter<f64, AtomicU64>;

/// Sums over all closed connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClosedConnections {
    pub(crate) count: u64,
    pub(crate) requests: u64,
    pub(crate) age_s: f64,
}

/// All counters. Each event is counted once, also if the request is repeated later.
#[derive(Debug)]
pub(crate) struct Stats {
    /// Requests, without repetitions after reuse races.
    pub(crate) requests: Counter,
    /// Content received.
    pub(crate) read_bytes: Counter,
    /// Open connections, idle ones included.
    pub(crate) open: Gauge,
    /// Idle connections.
    pub(crate) idle: Gauge,
    /// Connections opened.
    pub(crate) opened: Counter,
    /// Requests sent on a kept connection.
    pub(crate) reused: Counter,
    /// Kept connections that were closed as the request was sent.
    pub(crate) races: Counter,
    /// Idle connections closed by the server.
    pub(crate) closed_idle: Counter,
    /// Idle connections closed at the idle limit.
    pub(crate) expired: Counter,
    /// Responses that were not read to their end.
    pub(crate) abandoned: Counter,
    /// Waits for a slot.
    pub(crate) slot_waits: Counter,
    /// Time spent waiting for a slot.
    pub(crate) slot_wait_s: Seconds,
    /// Requests on each closed connection.
    pub(crate) connection_requests: Histogram,
    /// Age of each closed connection in seconds.
    pub(crate) connection_age_s: Histogram,
    /// Ranged reads sent.
    pub(crate) reads: Counter,
    /// Reads that joined an equal one in progress.
    pub(crate) collapsed: Counter,
    /// Reads that continued with another request after theirs broke off.
    pub(crate) resumed: Counter,
    /// Requests sent again after a failure.
    pub(crate) repeated: Counter,
    /// Requests not sent again because the budget was used up.
    pub(crate) unrepeated: Counter,
    /// Second requests for a read whose first byte was late.
    pub(crate) hedges: Counter,
    /// Hedges whose response was used.
    pub(crate) hedges_won: Counter,
    /// Failures, by kind.
    pub(crate) failures: Family<[(&'static str, &'static str); 1], Counter>,
    closed: Mutex<ClosedConnections>,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            requests: Counter::default(),
            read_bytes: Counter::default(),
            open: Gauge::default(),
            idle: Gauge::default(),
            opened: Counter::default(),
            reused: Counter::default(),
            races: Counter::default(),
            closed_idle: Counter::default(),
            expired: Counter::default(),
            abandoned: Counter::default(),
            slot_waits: Counter::default(),
            slot_wait_s: Seconds::default(),
            connection_requests: Histogram::new(REQUESTS_BOUNDS),
            connection_age_s: Histogram::new(AGE_BOUNDS_S),
            reads: Counter::default(),
            collapsed: Counter::default(),
            resumed: Counter::default(),
            repeated: Counter::default(),
            unrepeated: Counter::default(),
            hedges: Counter::default(),
            hedges_won: Counter::default(),
            failures: Family::default(),
            closed: Mutex::default(),
        }
    }
}

impl Stats {
    /// Counts a failure.
    pub(crate) fn fail(&self, kind: FailureKind) {
        self.failures.get_or_create(&[("kind", kind.name())]).inc();
    }

    /// Returns the number of failures of a kind.
    pub(crate) fn failed(&self, kind: FailureKind) -> u64 {
        self.failures.get_or_create(&[("kind", kind.name())]).get()
    }

    /// Returns the requests and the age in seconds of closed connections.
    pub(crate) fn closed_connections(&self) -> ClosedConnections {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a closed connection.
    #[allow(clippy::cast_precision_loss, reason = "no connection has 2^53 requests")]
    pub(super) fn close(&self, age: Duration, requests: u64) {
        self.open.dec();
        self.connection_requests.observe(requests as f64);
        self.connection_age_s.observe(age.as_secs_f64());
        let mut totals = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        totals.count += 1;
        totals.requests += requests;
        totals.age_s += age.as_secs_f64();
    }

    pub(super) fn wait_for_slot(&self, time: Duration) {
        self.slot_waits.inc();
        self.slot_wait_s.inc_by(time.as_secs_f64());
    }
}
