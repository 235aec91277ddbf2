//! Lateness and packet loss caused by the emulator itself, which determine whether measurements can
//! be trusted.

use std::time::Duration;

use super::PathDirection;

/// Maximum acceptable 99.9th percentile of packet lateness.
pub const LATENESS_MAX: Duration = Duration::from_millis(1);
/// Maximum acceptable share of packets lost by the emulator itself.
pub const MISSED_MAX: f64 = 1e-4;
/// Minimum number of packets for a meaningful 99.9th percentile.
const PACKETS_MIN: u64 = 1000;

/// Lateness of packets, and packets lost by the emulator itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The 99.9th percentile of lateness.
    pub p999: Duration,
    /// Number of packets from which the percentile was computed.
    pub packets: u64,
    /// Packets lost by the emulator itself, not included in `packets`.
    pub missed: u64,
}

impl Lateness {
    /// Combines the lateness of several directions.
    pub fn of<'a>(directions: impl IntoIterator<Item = &'a PathDirection>) -> Self {
        let mut missed = 0;
        let each = directions.into_iter().map(|direction| {
            missed += direction.missed();
            direction.line.counts().lateness_us
        });
        let all = each.reduce(|mut all, one| {
            all.add(one).expect("all histograms have the same bounds");
            all
        });
        all.map_or_else(Self::default, |all| Self {
            missed,
            p999: Duration::from_micros(all.value_at_quantile(0.999)),
            packets: all.len(),
        })
    }

    /// Returns whether packets were too late for measurements to be trusted.
    pub fn is_late(&self) -> bool {
        self.packets >= PACKETS_MIN && self.p999 > LATENESS_MAX
    }

    /// Returns the share of packets lost by the emulator itself.
    pub fn missed_share(&self) -> f64 {
        self.missed as f64 / (self.packets + self.missed).max(1) as f64
    }

    /// Returns whether the emulator itself lost too many packets for measurements to be trusted.
    pub fn is_missing(&self) -> bool {
        self.missed_share() > MISSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_packets_are_never_late() {
        let late = |p999_us, packets| {
            Lateness { p999: Duration::from_micros(p999_us), packets, missed: 0 }.is_late()
        };
        assert!(late(1001, 1000));
        assert!(!late(1000, 1000));
        assert!(!late(50_000, 999));
    }

    #[test]
    fn one_in_ten_thousand_may_be_missing() {
        let missing = |packets, missed| Lateness { packets, missed, ..Lateness::default() }.is_missing();
        assert!(!missing(0, 0) && !missing(9999, 1));
        assert!(missing(9998, 1) && missing(0, 1));
    }
}
