//! Wall-clock time at two precisions.

use rustix::time::{ClockId, clock_gettime};

/// Returns the Unix time in seconds, with the precision of [`now_ms`].
pub(crate) fn coarse_now_s() -> f64 {
    now_ms() as f64 / 1e3
}

/// Returns the Unix time in seconds, with microsecond precision.
pub(crate) fn now_s() -> f64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Returns the Unix time in milliseconds at the kernel's last tick, which is at most 10 ms ago.
/// Costs a third of [`now_s`].
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or_default()
}
