//! Route of one fetch: its backend and timeouts.

use std::sync::Arc;
use std::time::Duration;

use super::proxy::Ends;
use super::server::Backend;
use super::timeouts::FetchTimeouts;

/// The backend or backends that a fetch may use.
#[derive(Debug, Clone, Default)]
pub(crate) enum Target {
    /// The configured backends, in rotation; if one fails, the next is tried.
    #[default]
    Configured,
    /// One specific backend.
    One(Arc<Backend>),
}

/// Backend and timeouts of a fetch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Route {
    pub(crate) target: Target,
    /// Connect timeout. If `None`, the backend's declared timeout applies or, without one, the
    /// configured timeout; likewise for the other two.
    pub(crate) connect: Option<Duration>,
    /// Timeout from the last byte of the request to the end of the response head.
    pub(crate) first_byte: Option<Duration>,
    /// Timeout between two reads of content.
    pub(crate) between_bytes: Option<Duration>,
    /// Addresses of the client connection, for a backend that uses the PROXY protocol.
    pub(crate) ends: Option<Ends>,
}

impl Route {
    /// Returns whether another backend may be tried if a new connection closes without a response.
    pub(crate) fn has_others(&self) -> bool {
        matches!(self.target, Target::Configured)
    }

    /// Returns the `Host` value to send; `own` is the request's value, which may be empty.
    pub(crate) fn host<'a>(&'a self, own: &'a str) -> &'a str {
        match &self.target {
            Target::One(backend) if own.is_empty() => backend.host(),
            _ => own,
        }
    }

    /// Returns this fetch's timeouts; `usual` contains the defaults.
    pub(super) fn timeouts(&self, usual: FetchTimeouts) -> FetchTimeouts {
        FetchTimeouts {
            connect: self.connect.unwrap_or(usual.connect),
            first_byte: self.first_byte.unwrap_or(usual.first_byte),
            between_bytes: self.between_bytes.unwrap_or(usual.between_bytes),
        }
    }
}
