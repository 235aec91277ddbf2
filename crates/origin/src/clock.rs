//! Access to the wall clock. Besides this module, only [`source`](crate::source) and storage read
//! it.

use std::time::{SystemTime, UNIX_EPOCH};
use thalweg_media::presentation::utc::Utc;

/// Returns the current time in microseconds since 1970, UTC.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the current time, to the millisecond.
pub(crate) fn now_utc() -> Utc {
    Utc(now_us().div_euclid(1000))
}

/// Converts a file timestamp to seconds since 1970.
pub(crate) fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
