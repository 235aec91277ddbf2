//! System clock and detection of its jumps. The system clock supplies record times and window
//! boundaries, but it can be set at any time. Durations are therefore measured with `Instant`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum difference between elapsed wall-clock time and elapsed monotonic time. A larger
/// difference means that the clock was set; slewing (0.5 ms per second) stays below it between two
/// batches.
const JUMP_MAX: Duration = Duration::from_secs(5);
/// Minimum time without a clock jump before the clock is trusted.
const STEADY_MIN: Duration = Duration::from_secs(600);

/// Returns the current time in microseconds since the Unix epoch, or 0 if the clock is set to an
/// earlier time.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A simultaneous reading of the system clock and the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub(crate) unix_us: u64,
    pub(crate) instant: Instant,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self { unix_us: unix_us(), instant: Instant::now() }
    }
}

/// Detector for an untrustworthy system clock. The clock is trusted once it has kept pace with the
/// monotonic clock for [`STEADY_MIN`]. A clock that is wrong for a short time, as before the first
/// NTP reply, is not trusted.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    /// The last reading, and the time since which the clock has not jumped.
    seen: Option<(Moment, Instant)>,
}

impl Steady {
    /// Records a reading and returns whether the clock can be trusted.
    pub(crate) fn is_steady(&mut self, now: Moment) -> bool {
        let since = match self.seen {
            Some((last, since)) if !has_jumped(last, now) => since,
            _ => now.instant,
        };
        self.seen = Some((now, since));
        now.instant.saturating_duration_since(since) >= STEADY_MIN
    }
}

fn has_jumped(last: Moment, now: Moment) -> bool {
    let passed = now.instant.saturating_duration_since(last.instant);
    let expected = last.unix_us.saturating_add(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
    u128::from(now.unix_us.abs_diff(expected)) > JUMP_MAX.as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_trusted_only_after_enough_time_without_jumps() {
        let (started, mut steady) = (Instant::now(), Steady::default());
        let mut at = |s: u64, ahead_s: i64| {
            let unix_us = 1_800_000_000_000_000_u64.saturating_add(s * 1_000_000);
            let unix_us = unix_us.saturating_add_signed(ahead_s * 1_000_000);
            steady.is_steady(Moment { unix_us, instant: started + Duration::from_secs(s) })
        };
        let year = 365 * 86_400;
        assert!(!at(0, year), "the clock may be wrong from the start");
        assert!(!at(100, 0));
        assert!(!at(699, 1) && at(700, 3), "slewing must not count as a jump");
        assert!(at(5000, 4));
        assert!(!at(5001, -3600) && !at(5600, -3600) && at(5601, -3600));
        assert!(!at(5602, 0), "a jump back must count too");
    }
}
