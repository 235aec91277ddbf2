//! Where one fetch goes, and how long it may take there.

use std::sync::Arc;
use std::time::Duration;

use thalweg_policy::program::BackendRow;

use super::Backend;
use super::proxy::Ends;
use crate::config::Timeouts;

/// The longest time that a policy's seconds become: to wait for longer is to wait for ever.
const TIME_S_MAX: f64 = 365.0 * 24.0 * 3600.0;

/// Where a fetch goes.
#[derive(Debug, Clone, Default)]
pub(crate) enum Target {
    /// To one of the configured backends, by turns; another is tried when it fails.
    #[default]
    Configured,
    /// To this one and no other.
    One(Arc<Backend>),
}

/// Where a fetch goes, and what is its own in going there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Route {
    pub(crate) target: Target,
    /// Until it accepts a connection; `None`: what the backend declares, else the configured time. So are the others.
    pub(crate) connect: Option<Duration>,
    /// From the request's last byte to the end of the head.
    pub(crate) first_byte: Option<Duration>,
    /// Between two reads of content.
    pub(crate) between_bytes: Option<Duration>,
    /// The client's connection, for a backend that is told of it by PROXY protocol.
    pub(crate) ends: Option<Ends>,
}

impl Route {
    /// Whether another connection may be tried where a new one was lost before the response began.
    pub(crate) fn has_others(&self) -> bool {
        matches!(self.target, Target::Configured)
    }

    /// The `Host` to ask with; `own` is the request's.
    pub(crate) fn host<'a>(&'a self, own: &'a str) -> &'a str {
        match &self.target {
            Target::One(backend) if own.is_empty() => backend.host(),
            _ => own,
        }
    }
}

/// How long a fetch waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchTimeouts {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) between_bytes: Duration,
}

impl FetchTimeouts {
    /// As configured.
    pub(super) fn configured(timeouts: &Timeouts) -> Self {
        let Timeouts { connect, first_byte, between_bytes, .. } = *timeouts;
        Self { connect, first_byte, between_bytes }
    }

    /// As a backend declares, else as before.
    pub(super) fn declared(self, row: &BackendRow) -> Self {
        Self {
            connect: row.connect_timeout_s.map_or(self.connect, duration),
            first_byte: row.first_byte_timeout_s.map_or(self.first_byte, duration),
            between_bytes: row.between_bytes_timeout_s.map_or(self.between_bytes, duration),
        }
    }

    /// As one fetch says, else as before.
    pub(super) fn of(self, route: &Route) -> Self {
        Self {
            connect: route.connect.unwrap_or(self.connect),
            first_byte: route.first_byte.unwrap_or(self.first_byte),
            between_bytes: route.between_bytes.unwrap_or(self.between_bytes),
        }
    }
}

/// A policy's seconds as a time; what is below zero, or no number, is none.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, TIME_S_MAX)).unwrap_or_default()
}
