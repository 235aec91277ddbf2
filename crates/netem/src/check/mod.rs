//! Comparison of an emulated path with its description. [`probe`] measures the path; this module
//! turns the measurements into verdicts.

mod probe;

use std::time::Duration;

use serde::Serialize;

use crate::emulation::{LATENESS_MAX, Lateness, MISSED_MAX};
use crate::scenario::Direction;

pub use probe::{DELAY_PACKET_BYTES, RATE_MIN_BITS_PER_S, check_rate, measure};

/// Maximum deviation from the expected delay.
pub const DELAY_TOLERANCE: Duration = Duration::from_millis(1);
/// Maximum relative deviation from the expected rate.
pub const RATE_TOLERANCE: f64 = 0.03;
/// Maximum deviation from the expected loss, in standard deviations. One check in 16,000 fails by
/// chance.
const LOSS_DEVIATIONS: f64 = 4.0;

/// Measurements of one direction of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Median delay of small packets, sent below the rate so that no queue builds up.
    pub delay: Duration,
    /// Number of packets sent below the rate, to measure delay and loss.
    pub sent: u64,
    /// Number of packets in `sent` that were lost.
    pub lost: u64,
    /// Traffic that passed while sending above the rate, or `None` if the rate is unlimited.
    pub passed: Option<Passed>,
    /// Lateness and packet loss caused by the emulator itself.
    pub lateness: Lateness,
}

/// Traffic that passed a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passed {
    /// Bits in the IP packets that arrived.
    pub bits: f64,
    /// Bits that the bottleneck should have carried in `time`.
    pub bits_asked: f64,
    /// Time between the first and the last arrival.
    pub time: Duration,
}

/// Verdict on one property.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the property.
    pub what: &'static str,
    /// Unit of `asked`, `allowed` and `measured`.
    pub unit: &'static str,
    /// Expected value.
    pub asked: f64,
    /// Allowed deviation from the expected value.
    pub allowed: f64,
    /// Measured value.
    pub measured: f64,
    /// Whether the deviation is within `allowed`.
    pub is_met: bool,
}

impl Verdict {
    fn new(what: &'static str, unit: &'static str, [asked, allowed, measured]: [f64; 3]) -> Self {
        Self { what, unit, asked, allowed, measured, is_met: (measured - asked).abs() <= allowed }
    }
}

/// Compares measurements with the direction's description.
pub fn judge(direction: &Direction, measured: &Measured) -> Vec<Verdict> {
    let mut verdicts = vec![delay(direction, measured), loss(direction, measured)];
    if let Some(passed) = &measured.passed {
        verdicts.push(rate(direction, passed));
    }
    let late = measured.lateness;
    let lateness = Verdict::new("late p99.9", "ms", [0.0, millis(LATENESS_MAX), millis(late.p999)]);
    verdicts.push(Verdict { is_met: !late.is_late(), ..lateness });
    let missed = [0.0, MISSED_MAX, late.missed_share()].map(|share| share * 100.0);
    verdicts.push(Verdict::new("missed", "%", missed));
    verdicts
}

fn delay(direction: &Direction, measured: &Measured) -> Verdict {
    // Add the transmission time of one small packet in the bottleneck, and the mean jitter.
    let transmission = direction.capacity.mean_bits_per_s().map_or(Duration::ZERO, |bits_per_s| {
        Duration::from_secs_f64(DELAY_PACKET_BYTES as f64 * 8.0 / bits_per_s)
    });
    let asked = direction.delay + direction.jitter / 2 + transmission;
    Verdict::new("delay", "ms", [asked, DELAY_TOLERANCE, measured.delay].map(millis))
}

fn loss(direction: &Direction, measured: &Measured) -> Verdict {
    let (asked, sent) = (direction.loss.mean(), measured.sent as f64);
    let deviation = (asked * (1.0 - asked) * direction.loss.clustering() / sent).sqrt();
    // Counts are integers, so allow one extra packet.
    let allowed = LOSS_DEVIATIONS * deviation + if deviation > 0.0 { 1.0 / sent } else { 0.0 };
    let share = measured.lost as f64 / sent;
    Verdict::new("loss", "%", [asked, allowed, share].map(|share| share * 100.0))
}

fn rate(direction: &Direction, passed: &Passed) -> Verdict {
    // Packets lost behind the bottleneck used its capacity but did not arrive.
    let asked = passed.bits_asked * (1.0 - direction.loss.mean());
    let mbit_per_s = |bits: f64| bits / passed.time.as_secs_f64() / 1e6;
    Verdict::new("rate", "Mbit/s", [asked, asked * RATE_TOLERANCE, passed.bits].map(mbit_per_s))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Capacity, Discipline, Loss, Queue};

    #[test]
    fn each_deviation_fails_its_verdict() {
        let direction = Direction {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(4),
            capacity: Capacity::Rate(1_000_000),
            queue: Queue { bytes: 15_000, discipline: Discipline::DropTail },
            loss: Loss::random(0.01),
        };
        let right = Measured {
            delay: Duration::from_micros(22_700),
            sent: 4000,
            lost: 40,
            passed: Some(Passed { bits: 0.99e6, bits_asked: 1e6, time: Duration::from_secs(1) }),
            lateness: Lateness { p999: Duration::from_micros(300), packets: 5000, missed: 0 },
        };
        let off = |measured: Measured| -> Vec<&str> {
            judge(&direction, &measured)
                .iter()
                .filter(|verdict| !verdict.is_met)
                .map(|verdict| verdict.what)
                .collect()
        };
        assert!(off(right.clone()).is_empty());
        assert_eq!(off(Measured { delay: Duration::from_millis(25), ..right.clone() }), ["delay"]);
        assert_eq!(off(Measured { delay: Duration::from_millis(21), ..right.clone() }), ["delay"]);
        assert_eq!(off(Measured { lost: 70, ..right.clone() }), ["loss"]);
        assert_eq!(off(Measured { lost: 10, ..right.clone() }), ["loss"]);
        let passed = |bits| Some(Passed { bits, bits_asked: 1e6, time: Duration::from_secs(1) });
        assert_eq!(off(Measured { passed: passed(1.03e6), ..right.clone() }), ["rate"]);
        assert_eq!(off(Measured { passed: passed(0.95e6), ..right.clone() }), ["rate"]);
        let late = |packets| Lateness { p999: Duration::from_millis(2), packets, missed: 0 };
        assert_eq!(off(Measured { lateness: late(5000), ..right.clone() }), ["late p99.9"]);
        assert!(off(Measured { lateness: late(10), ..right.clone() }).is_empty());
        let missing = Lateness { missed: 1, ..right.lateness };
        assert_eq!(off(Measured { lateness: missing, ..right }), ["missed"]);
    }
}
