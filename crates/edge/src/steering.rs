//! Steering: selects the congestion control of a client's connection, and records who selected it.
//!
//! A policy acts immediately, each time it sets an algorithm, as in Varnish and Fastly. An
//! experiment's arm, a rule and the configured default (in decreasing precedence) each decide once
//! per connection, and only if nothing stronger has: a connection is upgraded, never switched back
//! and forth between requests. Arms and rules wait until there is enough to send, because most
//! connections of a player only fetch a playlist.
//!
//! **Invariant:** an algorithm that the kernel refuses changes nothing.
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

/// Maximum number of refused names to log, each once; all refusals are counted.
const LOGGED_NAMES_MAX: usize = 16;

/// Congestion control state of a connection. Every idle connection has one, so it is small.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// Algorithm in the kernel when the connection was accepted.
    start: Option<CongestionControl>,
    /// Algorithm in the kernel at accept, and after each attempt to set one.
    current: Option<CongestionControl>,
    /// The strongest decider that has set an algorithm.
    decided: Option<Decider>,
    /// One bit per decider that has already requested an algorithm.
    requested: u8,
    /// Requests so far, including the current one.
    requests: u32,
    /// Content bytes of all responses so far.
    sent_bytes: u64,
    /// Retransmitted TCP segments when a policy last read the count (`retrans_seen`), and when one
    /// last read it in an earlier request (`retrans_before`).
    retrans_seen: AtomicU32,
    retrans_before: u32,
    /// Decision of the active bundle, shared with records; absent on most connections.
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
    /// Minimum size: the request applies once the response, or all content sent so far, is this
    /// large.
    pub(crate) size_bytes_min: u64,
}

impl SteeringRequest {
    /// Creates a request without a minimum size.
    fn immediate(by: Decider, algorithm: CongestionControl) -> Self {
        Self { by, algorithm: Some(algorithm), response_bytes: None, size_bytes_min: 0 }
    }
}

impl Steering {
    /// Starts steering a newly accepted connection; applies the configured default.
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

    /// Counts a request that has arrived on the connection.
    pub(crate) fn begin_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
        self.retrans_before = *self.retrans_seen.get_mut();
    }

    /// Counts the content bytes sent by an ended response.
    pub(crate) fn count_sent(&mut self, bytes: u64) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
    }

    /// Returns the algorithm when the connection was accepted.
    pub(crate) fn start(&self) -> Option<CongestionControl> {
        self.start
    }

    /// Returns the algorithm that the kernel last reported. Only this process can change it, by
    /// `setsockopt` on its own descriptor, so it is read after each attempt to set one and not
    /// after each response.
    pub(crate) fn congestion_control(&self) -> Option<CongestionControl> {
        self.current
    }

    /// Returns the decider that set the algorithm; `Default` for the system's own.
    pub(crate) fn decider(&self) -> Decider {
        self.decided.unwrap_or(Decider::Default)
    }

    /// Sets the requested algorithm if the request is due; returns whether it was.
    ///
    /// # Errors
    /// If the kernel refuses the algorithm; the refusal has been counted and logged.
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

    /// Whether `by` may decide now.
    fn is_due(&self, by: Decider, response_bytes: Option<u64>, size_bytes_min: u64) -> bool {
        self.is_open_to(by)
            && match by {
                Decider::Policy | Decider::Default => true,
                Decider::Rule | Decider::Experiment => {
                    response_bytes.unwrap_or(0).max(self.sent_bytes) >= size_bytes_min
                }
            }
    }

    /// Whether `by` may decide at all: no equal or stronger decider has, and `by` has not requested
    /// yet. A policy always may.
    fn is_open_to(&self, by: Decider) -> bool {
        by == Decider::Policy || Some(by) > self.decided && self.requested & bit(by) == 0
    }
}

fn bit(by: Decider) -> u8 {
    1 << by as u8
}

/// Steering state shared by all connections of an edge.
#[derive(Debug)]
pub(crate) struct SharedSteering {
    /// Default minimum size for rules and experiments.
    size_bytes_min: u64,
    refused: AtomicU64,
    logged: Mutex<Vec<String>>,
}

impl SharedSteering {
    pub(crate) fn new(size_bytes_min: u64) -> Self {
        Self { size_bytes_min, refused: AtomicU64::new(0), logged: Mutex::default() }
    }

    /// Returns how often an algorithm could not be set.
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
