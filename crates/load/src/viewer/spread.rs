//! Distribution of viewers over offsets behind the live edge.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thalweg_units::Span;

/// Distribution of offsets behind the live edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Offsets {
    /// Evenly distributed between two offsets.
    Even(Duration, Duration),
    /// Exponentially distributed with this mean: most viewers are near the live edge.
    Exponential(Duration),
}

impl Offsets {
    /// Returns the offset of viewer `index` of `count`. Together, the viewers follow the
    /// distribution exactly for any count, and viewers with consecutive indexes are far apart.
    #[must_use]
    pub fn of(&self, index: u64, count: u64) -> Duration {
        let rank = permuted(index, count.max(1));
        match *self {
            Offsets::Even(from, to) => {
                let share = rank as f64 / (count.max(2) - 1) as f64;
                from + to.saturating_sub(from).mul_f64(share)
            }
            Offsets::Exponential(mean) => {
                let share = (rank as f64 + 0.5) / count.max(1) as f64;
                mean.mul_f64(-(1.0 - share).ln())
            }
        }
    }
}

/// Permutes 0..count by multiplying with a number that is coprime to `count` and close to `count`
/// divided by the golden ratio.
fn permuted(index: u64, count: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_033_988_75) as u64;
    let step = (golden.max(1)..=count.max(1)).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    u64::try_from(u128::from(index) * u128::from(step) % u128::from(count))
        .expect("a remainder is less than `count`")
}

impl FromStr for Offsets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span =
            |text: &str| text.parse::<Span>().map(|span| span.duration).map_err(|error| error.to_string());
        if let Some(mean) = text.strip_prefix("exp:") {
            return Ok(Offsets::Exponential(span(mean)?));
        }
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let (from, to) = (span(from)?, span(to)?);
        if from > to {
            return Err("first offset exceeds the second: write the lower first, as in 0s..60s".to_owned());
        }
        Ok(Offsets::Even(from, to))
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offsets::Even(from, to) => write!(f, "{}ms..{}ms", from.as_millis(), to.as_millis()),
            Offsets::Exponential(mean) => write!(f, "exp:{}ms", mean.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_are_parsed_and_spread() {
        let even: Offsets = "0s..60s".parse().unwrap();
        let mut all: Vec<u64> = (0..61).map(|i| even.of(i, 61).as_secs()).collect();
        assert!(all[0].abs_diff(all[1]) > 5, "{all:?}");
        all.sort_unstable();
        assert_eq!(all, (0..61).collect::<Vec<_>>());
        let exponential: Offsets = "exp:10s".parse().unwrap();
        let sum: Duration = (0..10_000).map(|i| exponential.of(i, 10_000)).sum();
        assert!((sum.as_secs_f64() / 1e4 - 10.0).abs() < 0.01);
        assert_eq!("3s".parse::<Offsets>().unwrap().of(0, 1), Duration::from_secs(3));
        for wrong in ["", "1", "5s..1s", "exp:", "..", "exp:1"] {
            assert!(wrong.parse::<Offsets>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_rank_occurs_once(count in 1..2000u64) {
            let mut ranks: Vec<u64> = (0..count).map(|index| permuted(index, count)).collect();
            ranks.sort_unstable();
            prop_assert_eq!(ranks, (0..count).collect::<Vec<_>>());
        }
    }
}
