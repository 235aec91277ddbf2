//! How late the emulation itself let packets go and how many it lost, and whether what was measured over it can be believed.

use std::time::Duration;

use super::Way;

/// The emulation may let packets leave so much later than they should, at the 99.9th percentile.
pub const LATENESS_MAX: Duration = Duration::from_millis(1);
/// It may lose this share of them by itself.
pub const MISSED_MAX: f64 = 1e-4;
/// Fewer packets have no 99.9th percentile to speak of.
const PACKETS_MIN: u64 = 1000;

/// How late packets left, and how many never did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The 99.9th percentile of how much later than they should they did.
    pub p999: Duration,
    /// How many packets that is of.
    pub packets: u64,
    /// How many more the emulator itself lost.
    pub missed: u64,
}

impl Lateness {
    /// That of some ways together.
    pub fn of<'a>(ways: impl IntoIterator<Item = &'a Way>) -> Self {
        let mut missed = 0;
        let each = ways.into_iter().map(|way| {
            missed += way.missed();
            way.line.counts().lateness_us
        });
        let all = each.reduce(|mut all, one| {
            all.add(one).expect("all lines note up to the same");
            all
        });
        all.map_or_else(Self::default, |all| Self {
            missed,
            p999: Duration::from_micros(all.value_at_quantile(0.999)),
            packets: all.len(),
        })
    }

    /// Whether enough packets left late enough that nothing measured over these ways can be believed.
    pub fn is_late(&self) -> bool {
        self.packets >= PACKETS_MIN && self.p999 > LATENESS_MAX
    }

    /// The share of packets that the emulator itself lost.
    pub fn missed_share(&self) -> f64 {
        self.missed as f64 / (self.packets + self.missed).max(1) as f64
    }

    /// Whether these are too many to believe it.
    pub fn is_missing(&self) -> bool {
        self.missed_share() > MISSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_packets_say_nothing() {
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
