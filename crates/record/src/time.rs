//! RFC 3339 times in UTC.

use jiff::Timestamp;

/// Returns the time `unix_us` microseconds after the Unix epoch, capped at the latest representable
/// time in the year 9999.
///
/// The format `{:.3}` prints milliseconds, as in `2026-11-20T23:00:00.123Z`.
pub fn time(unix_us: u64) -> Timestamp {
    let time = i64::try_from(unix_us).map(Timestamp::from_microsecond);
    time.ok().and_then(Result::ok).unwrap_or(Timestamp::MAX)
}

/// Parses an RFC 3339 time into microseconds since the Unix epoch. Returns `None` if the time is
/// invalid or before the epoch.
pub fn parse_time(text: &str) -> Option<u64> {
    text.parse::<Timestamp>().ok()?.as_microsecond().try_into().ok()
}
