//! Fetch timeouts.

use std::time::Duration;

use thalweg_policy::program::BackendRow;

use crate::config::Timeouts;

/// Maximum timeout that a policy can set, in seconds; a longer one is reduced to this value.
const TIME_S_MAX: f64 = 365.0 * 24.0 * 3600.0;

/// Timeouts of a fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchTimeouts {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) between_bytes: Duration,
}

impl FetchTimeouts {
    /// Returns the configured timeouts.
    pub(super) fn configured(timeouts: &Timeouts) -> Self {
        let Timeouts { connect, first_byte, between_bytes, .. } = *timeouts;
        Self { connect, first_byte, between_bytes }
    }

    /// Returns these timeouts with the backend's own declarations applied.
    pub(super) fn declared(self, row: &BackendRow) -> Self {
        Self {
            connect: row.connect_timeout_s.map_or(self.connect, duration),
            first_byte: row.first_byte_timeout_s.map_or(self.first_byte, duration),
            between_bytes: row.between_bytes_timeout_s.map_or(self.between_bytes, duration),
        }
    }
}

/// Converts a policy's seconds to a duration; a negative value or NaN becomes zero.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, TIME_S_MAX)).unwrap_or_default()
}
