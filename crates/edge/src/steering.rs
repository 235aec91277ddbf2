//! Steering: selects a client connection's congestion control, and records the decider.
//!
//! A policy takes effect immediately, each time it sets an algorithm, as in Varnish and Fastly. An
//! experiment's arm, a rule and the configured default (in decreasing precedence) each decide at
//! most once per connection, and only if no stronger decider has. Requests thus never switch a
//! connection back and forth. Arms and rules wait for a minimum response size, because most of a
//! player's connections only fetch playlists.
//!
//! **Invariant:** an algorithm refused by the kernel changes nothing.
//! **Invariant:** the recorded decider is the one that set the algorithm read back from the kernel.

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use thalweg_record::{Decider, Steered};
use thalweg_tcp::congestion::{self, CongestionControl};

mod bundle;
mod socket;
mod tcp;

pub(crate) use bundle::Response;
pub(crate) use socket::Socket;
pub(crate) use tcp::Tcp;

/// Maximum number of refused algorithm names to log, once each. All refusals are counted.
const LOGGED_NAMES_MAX: usize = 16;

/// Congestion control state of a connection. Kept small, because every idle connection has it.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// Algorithm in use when the connection was accepted.
    start: Option<CongestionControl>,
    /// Algorithm last read from the kernel: at accept, and after each attempt to set one.
    current: Option<CongestionControl>,
    /// The strongest decider that has set an algorithm.
    decided: Option<Decider>,
    /// One bit per decider that has already requested an algorithm.
    requested: u8,
    /// Number of requests so far, including the current one.
    requests: u32,
    /// Number of content bytes sent in all responses so far.
    sent_bytes: u64,
    /// Number of retransmitted TCP segments at a policy's last read (`retrans_seen`), and at the
    /// last read during an earlier request (`retrans_before`).
    retrans_seen: AtomicU32,
    retrans_before: u32,
    /// What the bundle assigned, shared with records; `None` on most connections.
    steered: Option<Arc<Steered>>,
}

const _: () = assert!(size_of::<Steering>() <= 64);

/// A request to set an algorithm on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteeringRequest {
    pub(crate) by: Decider,
    /// Algorithm to set; `None` leaves the current one unchanged.
    pub(crate) algorithm: Option<CongestionControl>,
    /// Content length of the response, if known.
    pub(crate) response_bytes: Option<u64>,
    /// Minimum size in bytes: the request applies once the response's content, or all content sent
    /// so far, is this large.
    pub(crate) size_bytes_min: u64,
}

impl SteeringRequest {
    /// Creates a request without a minimum size.
    fn immediate(by: Decider, algorithm: CongestionControl) -> Self {
        Self { by, algorithm: Some(algorithm), response_bytes: None, size_bytes_min: 0 }
    }
}

impl Steering {
    /// Starts steering a newly accepted connection, and applies the configured default.
    pub(crate) fn begin(
        fd: BorrowedFd<'_>,
        default: Option<CongestionControl>,
        common: &SharedSteering,
    ) -> Self {
        let mut steering = Self::new(congestion::get(fd).ok());
        if let Some(algorithm) = default {
            // The refusal has already been counted and logged.
            let _ = steering.apply(fd, SteeringRequest::immediate(Decider::Default, algorithm), common);
        }
        steering
    }

    fn new(start: Option<CongestionControl>) -> Self {
        Self { start, current: start, ..Self::default() }
    }

    /// Counts a new request on the connection.
    pub(crate) fn begin_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
        self.retrans_before = *self.retrans_seen.get_mut();
    }

    /// Counts the content bytes sent by a finished response.
    pub(crate) fn count_sent(&mut self, bytes: u64) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
    }

    /// Returns the algorithm in use when the connection was accepted.
    pub(crate) fn start(&self) -> Option<CongestionControl> {
        self.start
    }

    /// Returns the algorithm last reported by the kernel. Only this process can change it, with
    /// `setsockopt`, so it is read after each attempt to set one rather than after each response.
    pub(crate) fn congestion_control(&self) -> Option<CongestionControl> {
        self.current
    }

    /// Returns the decider that set the algorithm; `Default` if the system's default is in use.
    pub(crate) fn decider(&self) -> Decider {
        self.decided.unwrap_or(Decider::Default)
    }

    /// Sets the requested algorithm if the request is due. Returns whether it was due.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the algorithm; the refusal has been counted and
    /// logged.
    pub(crate) fn apply(
        &mut self,
        fd: BorrowedFd<'_>,
        request: SteeringRequest,
        common: &SharedSteering,
    ) -> Result<bool, thalweg_tcp::Error> {
        if !self.is_due(request.by, request.response_bytes, request.size_bytes_min) {
            return Ok(false);
        }
        self.requested |= bit(request.by);
        if let Some(algorithm) = request.algorithm {
            let chosen = congestion::choose(fd, algorithm);
            self.current = match chosen {
                Ok(()) => Some(algorithm),
                Err(_) => congestion::get(fd).ok(),
            };
            chosen.inspect_err(|error| common.refuse(algorithm.as_str(), error))?;
            self.decided = self.decided.max(Some(request.by));
        }
        Ok(true)
    }

    /// Returns whether `by` may decide now.
    fn is_due(&self, by: Decider, response_bytes: Option<u64>, size_bytes_min: u64) -> bool {
        self.is_open_to(by)
            && match by {
                Decider::Policy | Decider::Default => true,
                Decider::Rule | Decider::Experiment => self.is_large(response_bytes, size_bytes_min),
            }
    }

    /// Returns whether `by` has neither assigned nor requested anything on this connection yet.
    fn is_assignable(&self, by: Decider) -> bool {
        self.requested & bit(by) == 0
    }

    /// Returns whether the response, or all content sent so far, has the minimum size.
    fn is_large(&self, response_bytes: Option<u64>, size_bytes_min: u64) -> bool {
        response_bytes.unwrap_or(0).max(self.sent_bytes) >= size_bytes_min
    }

    /// Returns whether `by` may still decide: no equal or stronger decider has set an algorithm,
    /// and `by` has not requested one yet. A policy always may.
    fn is_open_to(&self, by: Decider) -> bool {
        by == Decider::Policy || Some(by) > self.decided && self.is_assignable(by)
    }
}

fn bit(by: Decider) -> u8 {
    1 << by as u8
}

/// Steering state shared by all connections of an edge.
#[derive(Debug)]
pub(crate) struct SharedSteering {
    /// Default minimum response size for rules and experiments, in bytes.
    size_bytes_min: u64,
    refused: AtomicU64,
    logged: Mutex<Vec<String>>,
}

impl SharedSteering {
    pub(crate) fn new(size_bytes_min: u64) -> Self {
        Self { size_bytes_min, refused: AtomicU64::new(0), logged: Mutex::default() }
    }

    /// Returns the number of attempts to set an algorithm that failed.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a refusal, and logs the first one for each name.
    fn refuse(&self, name: &str, error: &thalweg_tcp::Error) {
        self.refused.fetch_add(1, Relaxed);
        let name = &name[..name.floor_char_boundary(congestion::NAME_BYTES_MAX + 1)];
        let mut logged = self.logged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if logged.len() < LOGGED_NAMES_MAX && !logged.iter().any(|known| known == name) {
            logged.push(name.to_owned());
            tracing::warn!(
                error = chain(error),
                "congestion control not set, connections keep their current one"
            );
        }
    }
}

/// Formats an error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        write!(text, ": {next}").expect("writing to a String cannot fail");
        cause = next.source();
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;
