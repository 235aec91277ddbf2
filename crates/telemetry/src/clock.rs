//! The clock that people set. Windows and tables follow it; what lasts is measured by `Instant`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Two readings that differ by more than this from what passed between them were not of the same setting. What slews a clock
/// (0.5 ms a second) changes less between two batches.
const JUMP_MAX: Duration = Duration::from_secs(5);
/// How long a setting has to last until it is believed.
const STEADY_MIN: Duration = Duration::from_secs(600);

/// Microseconds since the Unix epoch; 0 before it.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A moment, by both clocks: the one that people set and the one that only goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) unix_us: u64,
    pub(crate) instant: Instant,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { unix_us: unix_us(), instant: Instant::now() }
    }
}

/// Whether the clock that people set is to be believed: it has gone with the other one for [`STEADY_MIN`]. One that is ahead for a
/// moment, as before the first answer of an NTP server, is not.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    /// The last reading, and since when the setting is the same.
    seen: Option<(Moment, Instant)>,
}

impl Steady {
    /// Takes a reading; whether it is to be believed.
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
    fn a_clock_is_believed_once_it_has_gone_on_for_long_enough() {
        let (begun, mut steady) = (Instant::now(), Steady::default());
        let mut at = |s: u64, ahead_s: i64| {
            let unix_us = 1_800_000_000_000_000_u64.saturating_add(s * 1_000_000);
            let unix_us = unix_us.saturating_add_signed(ahead_s * 1_000_000);
            steady.is_steady(Moment { unix_us, instant: begun + Duration::from_secs(s) })
        };
        let year = 365 * 86_400;
        assert!(!at(0, year), "it may be ahead from the start");
        assert!(!at(100, 0));
        assert!(!at(699, 1) && at(700, 3), "it is slewed, and goes on");
        assert!(at(5000, 4));
        assert!(!at(5001, -3600) && !at(5600, -3600) && at(5601, -3600));
        assert!(!at(5602, 0), "and back");
    }
}
