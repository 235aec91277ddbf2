//! How late the emulation itself let packets go, and whether what was measured over it can be believed.

use std::time::Duration;

use super::Way;

/// The emulation may let packets leave so much later than they should, at the 99.9th percentile.
pub const LATENESS_MAX: Duration = Duration::from_millis(1);
/// Fewer packets have no 99.9th percentile to speak of.
const PACKETS_MIN: u64 = 1000;

/// How late packets left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The 99.9th percentile of how much later than they should they did.
    pub p999: Duration,
    /// How many packets that is of.
    pub packets: u64,
}

impl Lateness {
    /// That of some ways together.
    pub fn of<'a>(ways: impl IntoIterator<Item = &'a Way>) -> Self {
        let each = ways.into_iter().map(|way| way.line.counts().lateness_us);
        let all = each.reduce(|mut all, one| {
            all.add(one).expect("all lines note up to the same");
            all
        });
        all.map_or_else(Self::default, |all| Self {
            p999: Duration::from_micros(all.value_at_quantile(0.999)),
            packets: all.len(),
        })
    }

    /// Whether enough packets left late enough that nothing measured over these ways can be believed.
    pub fn is_over(&self) -> bool {
        self.packets >= PACKETS_MIN && self.p999 > LATENESS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_packets_say_nothing() {
        let late = |p999_us, packets| Lateness { p999: Duration::from_micros(p999_us), packets }.is_over();
        assert!(late(1001, 1000));
        assert!(!late(1000, 1000));
        assert!(!late(50_000, 999));
    }
}
