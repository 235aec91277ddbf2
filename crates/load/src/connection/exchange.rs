//! HTTP exchange: time limits and result.

use std::time::{Duration, Instant};

use thalweg_http::Method;

use crate::Failure;

/// Time limits of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time limit for connecting and, separately, for the TLS handshake.
    pub connect: Duration,
    /// Time limit from the request to the complete response head.
    pub head: Duration,
    /// Time limit for a pause in the content.
    pub content: Duration,
}

impl Timeouts {
    /// Creates time limits that all equal `most`.
    pub const fn each(most: Duration) -> Self {
        Self { connect: most, head: most, content: most }
    }
}

/// A successful exchange.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Response status.
    pub status: u16,
    /// Time just before the request's last byte was passed to the kernel. The time after the system
    /// call would be too late: a server on the same machine may respond before the call returns.
    pub sent: Instant,
    /// Time at which the first response byte was read; over HTTP/2, the response head.
    pub first_byte: Instant,
    /// Time at which the last response byte was read.
    pub last_byte: Instant,
    /// Number of content bytes.
    pub content_bytes: u64,
    /// Whether the connection can carry another request.
    pub is_kept_alive: bool,
}

/// A failed exchange.
#[derive(Debug)]
pub struct ExchangeError {
    /// The failure.
    pub failure: Failure,
    /// Whether the server closed an idle connection before reading the request, or reported that it
    /// did not process the request. Such a request may be retried (RFC 9112 §9.3.1, RFC 9113 §8.7).
    pub is_idle_close: bool,
}

impl From<Failure> for ExchangeError {
    /// Converts a failure after which the request must not be retried.
    fn from(failure: Failure) -> Self {
        Self { failure, is_idle_close: false }
    }
}

/// Parses the method of a request in HTTP/1.1 format.
pub(super) fn method(request: &[u8]) -> Method {
    Method::parse(request.split(|byte| *byte == b' ').next().unwrap_or_default())
}
