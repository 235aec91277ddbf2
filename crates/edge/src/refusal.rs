//! Refusals: requests that the edge answers with an error of its own.

use thalweg_cache::Failure;
use thalweg_http::cache_status::Forward;

/// An error response made by the edge, and its details for the record.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The reason shown to the client.
    pub(crate) reason: &'static str,
    pub(crate) forward: Option<Forward>,
    /// The status of the backend's response, if it sent one.
    pub(crate) forward_status: Option<u16>,
    /// Whether the request waited for another request's fetch.
    pub(crate) collapsed: bool,
}

impl Refusal {
    /// Creates a refusal that involves no backend.
    pub(crate) const fn own(status: u16, reason: &'static str) -> Self {
        Self { status, reason, forward: None, forward_status: None, collapsed: false }
    }

    /// Creates the refusal for a failed fetch; `forward` is why the request was forwarded.
    pub(crate) fn failed(failure: &Failure, forward: impl Into<Option<Forward>>) -> Self {
        let (status, reason) = match failure {
            Failure::BackendTimeout(_) => (504, "the backend did not respond in time"),
            Failure::Busy(_) => (503, "too many fetches in progress"),
            Failure::Policy(reason) => (503, *reason),
            Failure::NoRoom => (503, "no room for the response"),
            _ => (502, "no valid answer came from the backend"),
        };
        let (forward, forward_status) = (forward.into(), failure.status());
        Self { status, reason, forward, forward_status, collapsed: false }
    }
}
