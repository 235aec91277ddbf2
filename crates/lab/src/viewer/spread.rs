//! How viewers are spread: over offsets, and over the addresses that they come from. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use thalweg_record::units::Span;

/// Addresses of one prefix that are used: one has room for some 28,000 connections.
pub const ADDRESSES_MAX: u32 = 1 << 16;

/// How far behind the live edge viewers are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Offsets {
    /// Evenly between two.
    Even(Duration, Duration),
    /// Exponentially with this mean: most are near the edge.
    Exponential(Duration),
}

impl Offsets {
    /// The offset of one of `count` viewers. All together have the distribution exactly, whatever their number, and those
    /// that follow one another are far apart in it.
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

/// A permutation of 0..count: steps of about the golden section that share no factor with `count`.
fn permuted(index: u64, count: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_033_988_75) as u64;
    let step = (golden.max(1)..=count.max(1)).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    u64::try_from(u128::from(index) * u128::from(step) % u128::from(count)).expect("below count")
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
            return Err("the first offset is the lower one: 0s..60s".to_owned());
        }
        Ok(Offsets::Even(from, to))
    }
}

/// Addresses that viewers come from: one, or all hosts of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    first: IpAddr,
    count: u32,
}

impl Source {
    /// One of them; they take turns.
    #[must_use]
    pub fn address(&self, index: u64) -> IpAddr {
        let step = u32::try_from(index % u64::from(self.count)).expect("below a number of 32 bits");
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).saturating_add(step)).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).saturating_add(u128::from(step))).into(),
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address or prefix such as 198.18.1.0/24");
        let Some((address, length)) = text.split_once('/') else {
            return Ok(Source { first: text.parse().map_err(|_| wrong())?, count: 1 });
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u32 = length.parse().map_err(|_| wrong())?;
        let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = bits.checked_sub(length).ok_or_else(wrong)?;
        let size = 1u32.checked_shl(host_bits).unwrap_or(ADDRESSES_MAX).min(ADDRESSES_MAX);
        // Neither the network's own address nor the broadcast address.
        let (skip, count) = if host_bits >= 2 { (1, size - 2) } else { (0, size) };
        let first = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                Ipv4Addr::from((u32::from(address) & mask) + skip).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                Ipv6Addr::from((u128::from(address) & mask) + u128::from(skip)).into()
            }
        };
        Ok(Source { first, count })
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
    fn offsets_are_read_and_spread() {
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

    #[test]
    fn sources_are_the_hosts_of_a_prefix() {
        let source: Source = "198.18.1.7/24".parse().unwrap();
        assert_eq!(source.address(0).to_string(), "198.18.1.1");
        assert_eq!(source.address(253).to_string(), "198.18.1.254");
        assert_eq!(source.address(254).to_string(), "198.18.1.1");
        assert_eq!("2001:db8::/56".parse::<Source>().unwrap().address(2).to_string(), "2001:db8::3");
        assert_eq!("127.0.0.9".parse::<Source>().unwrap().address(5).to_string(), "127.0.0.9");
        for wrong in ["", "1.2.3.4/33", "/8", "host", "::/200"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_rank_once(count in 1..2000u64) {
            let mut ranks: Vec<u64> = (0..count).map(|index| permuted(index, count)).collect();
            ranks.sort_unstable();
            prop_assert_eq!(ranks, (0..count).collect::<Vec<_>>());
        }
    }
}
