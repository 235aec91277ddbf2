//! An ideal transfer: what a connection without loss and queueing could have achieved.
//!
//! The sender starts with its congestion window and doubles it every round trip (slow start). This
//! determines the highest rate that a response of a given size can show, and the time that the
//! response takes at a given rate.
//!
//! Source: Schlinker et al., "Internet Performance from Facebook's Edge" (IMC 2019), section 3.2.

use std::time::Duration;

/// Limit on the rounds of slow start. The window exceeds any response long before this limit.
const ROUNDS_MAX: u32 = 64;

/// The start of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ideal {
    pub(super) bytes: u64,
    /// Congestion window at the start, in bytes.
    pub(super) window_bytes: u64,
    pub(super) min_rtt: Duration,
}

impl Ideal {
    /// Returns the highest rate that the transfer can show, in bytes per second: the bytes sent in
    /// the largest round, divided by the minimum round-trip time. Returns `None` without a window
    /// or a round-trip time.
    pub(super) fn testable_bytes_per_s(&self) -> Option<u64> {
        if self.window_bytes == 0 || self.min_rtt.is_zero() {
            return None;
        }
        let (mut left, mut window, mut largest) = (self.bytes, self.window_bytes, 0);
        while left > 0 {
            let round = window.min(left);
            largest = largest.max(round);
            left -= round;
            window = window.saturating_mul(2);
        }
        let per_s = u128::from(largest) * 1_000_000 / self.min_rtt.as_micros().max(1);
        Some(u64::try_from(per_s).unwrap_or(u64::MAX))
    }

    /// Returns the time from the first byte to the acknowledgement of the last one on a path with
    /// rate `bytes_per_s`. This is the sum of the rounds in which the window is below the path's
    /// bandwidth-delay product, the time for the rest at the path's rate, and one round trip for
    /// the last acknowledgement.
    pub(super) fn time_at(&self, bytes_per_s: u64) -> Duration {
        let path_bytes = (u128::from(bytes_per_s) * self.min_rtt.as_micros() / 1_000_000) as u64;
        let (mut left, mut window, mut time) = (self.bytes, self.window_bytes.max(1), Duration::ZERO);
        for _ in 0..ROUNDS_MAX {
            if window >= path_bytes || window >= left {
                break;
            }
            left -= window;
            time += self.min_rtt;
            window = window.saturating_mul(2);
        }
        time + Duration::from_secs_f64(left as f64 / bytes_per_s.max(1) as f64) + self.min_rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_500;
    const RTT: Duration = Duration::from_millis(60);

    fn ideal(packets: u64) -> Ideal {
        Ideal { bytes: packets * MSS, window_bytes: 10 * MSS, min_rtt: RTT }
    }

    /// Numbers from the publication's figure: with a window of 10 packets and a round trip of 60
    /// ms, responses of 2, 24 and 14 packets can show 0.4, 2.8 and 2 Mbit/s.
    #[test]
    fn testable_rate_is_that_of_the_largest_round() {
        let megabits = |packets| ideal(packets).testable_bytes_per_s().unwrap() as f64 * 8e-6;
        for (packets, expected) in [(2, 0.4), (10, 2.0), (14, 2.0), (24, 2.8), (30, 4.0), (70, 8.0)] {
            assert!((megabits(packets) - expected).abs() < 0.01, "{packets}: {}", megabits(packets));
        }
    }

    #[test]
    fn rate_is_not_testable_without_window_or_round_trip() {
        assert_eq!(Ideal { window_bytes: 0, ..ideal(10) }.testable_bytes_per_s(), None);
        assert_eq!(Ideal { min_rtt: Duration::ZERO, ..ideal(10) }.testable_bytes_per_s(), None);
    }

    /// A path of 4 Mbit/s and 60 ms holds 20 packets and takes 3 ms per packet. 70 packets thus
    /// take one round of 10, then 60 at the path's rate.
    #[test]
    fn time_has_slow_start_then_the_rate() {
        let time = ideal(70).time_at(500_000);
        assert_eq!(time.as_millis(), 60 + 60 * 3 + 60);
        // All packets fit in the first window, which exceeds the path's bandwidth-delay product.
        assert_eq!(ideal(10).time_at(125_000).as_millis(), 120 + 60);
    }

    #[test]
    fn time_falls_with_the_rate_and_never_below_a_round_trip() {
        let mut before = Duration::MAX;
        for rate in [1_000, 10_000, 100_000, 1_000_000, 100_000_000, u64::MAX / 2] {
            let time = ideal(1_000).time_at(rate);
            assert!(time <= before && time >= RTT, "{rate}: {time:?}");
            before = time;
        }
    }
}
