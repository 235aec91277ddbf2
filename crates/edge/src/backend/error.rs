//! Backend connection errors.

use thalweg_cache::Failure;

/// Reason why no backend accepted a connection.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) timeout: bool,
    /// Whether no backend was contacted because the connection limit was reached.
    pub(crate) busy: bool,
    pub(crate) reason: String,
}

impl ConnectError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { timeout: false, busy: false, reason: reason.into() }
    }

    pub(super) fn busy(reason: impl Into<String>) -> Self {
        Self { busy: true, ..Self::new(reason) }
    }
}

impl From<ConnectError> for Failure {
    fn from(ConnectError { reason, timeout, busy }: ConnectError) -> Self {
        match (busy, timeout) {
            (true, _) => Self::Busy(reason),
            (false, true) => Self::BackendTimeout(reason),
            (false, false) => Self::Backend(reason),
        }
    }
}
