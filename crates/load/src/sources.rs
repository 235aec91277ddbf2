//! Source addresses of clients: single addresses, ranges and prefixes, assigned in turn.
//!
//! One address can have about 28,000 connections to one server, limited by the range of local
//! ports. On loopback, all addresses in 127.0.0.0/8 can be used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, parsed from `127.0.0.2`, `127.0.0.2-127.0.0.50` (inclusive), `10.1.0.0/24`
/// or `2001:db8::/56`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    first: IpAddr,
    count: u128,
}

impl Source {
    fn nth(&self, index: u128) -> IpAddr {
        match self.first {
            // The cast is safe: the index is below the number of addresses.
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + index as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + index).into(),
        }
    }
}

/// All sources in order; if empty, the system chooses the addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(pub Vec<Source>);

impl Sources {
    fn total(&self) -> u128 {
        self.0.iter().fold(0, |sum, source| sum.saturating_add(source.count))
    }

    /// Returns how many times the clients before `client` have used up all addresses.
    pub fn rounds(&self, client: usize) -> usize {
        // The cast is safe: the result is at most `client`.
        (client as u128).checked_div(self.total()).unwrap_or(0) as usize
    }

    /// Returns the source address of client `client`, or `None` if the system chooses it.
    pub fn of(&self, client: usize) -> Option<IpAddr> {
        let mut index = (client as u128).checked_rem(self.total())?;
        for source in &self.0 {
            if index < source.count {
                return Some(source.nth(index));
            }
            index -= source.count;
        }
        None
    }

    /// Returns whether all addresses are in the same family as `server`.
    pub fn suit(&self, server: IpAddr) -> bool {
        self.0.iter().all(|source| source.first.is_ipv4() == server.is_ipv4())
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a source: write an address, a range such as 127.0.0.2-127.0.0.50, or a prefix such as 10.1.0.0/24"
            )
        };
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| wrong());
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first)?, address(last)?);
            let apart = match (first, last) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    last.to_bits().checked_sub(first.to_bits()).map(u128::from)
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().checked_sub(first.to_bits()),
                _ => None,
            };
            return Ok(Self { first, count: apart.ok_or_else(wrong)?.saturating_add(1) });
        }
        let Some((prefix, length)) = text.split_once('/') else {
            return Ok(Self { first: address(text)?, count: 1 });
        };
        prefix_of(address(prefix)?, length.parse().map_err(|_| wrong())?).ok_or_else(wrong)
    }
}

/// Returns the host addresses of a prefix. IPv4 excludes the first and last address; IPv6 excludes
/// the first, the routers' anycast address (RFC 4291 §2.6.1). In prefixes of one or two addresses,
/// all addresses are used.
fn prefix_of(address: IpAddr, length: u32) -> Option<Source> {
    let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
    let host_bits = bits.checked_sub(length)?;
    let count = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    let mask = count.wrapping_sub(1);
    let (first, spared) = match address {
        IpAddr::V4(address) => (Ipv4Addr::from_bits(address.to_bits() & !(mask as u32)).into(), 2),
        IpAddr::V6(address) => (Ipv6Addr::from_bits(address.to_bits() & !mask).into(), 1),
    };
    let whole = Source { first, count };
    if count <= 2 {
        return Some(whole);
    }
    Some(Source { first: whole.nth(1), count: count - spared })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(texts: &[&str], clients: &[usize], expected: Expect) {
        let sources = Sources(texts.iter().map(|text| text.parse().unwrap()).collect());
        let addresses: Vec<String> = clients
            .iter()
            .map(|client| sources.of(*client).map_or_else(|| "any".to_owned(), |address| address.to_string()))
            .collect();
        expected.assert_eq(&addresses.join(" "));
    }

    #[test]
    fn addresses_are_taken_in_turn() {
        check(&[], &[0, 7], expect!["any any"]);
        check(
            &["127.0.0.9", "127.0.0.2-127.0.0.3"],
            &[0, 1, 2, 3],
            expect!["127.0.0.9 127.0.0.2 127.0.0.3 127.0.0.9"],
        );
        check(&["10.1.2.3/24"], &[0, 253, 254], expect!["10.1.2.1 10.1.2.254 10.1.2.1"]);
        check(&["10.1.2.3/32"], &[0, 1], expect!["10.1.2.3 10.1.2.3"]);
        check(&["10.1.2.3/31"], &[0, 1], expect!["10.1.2.2 10.1.2.3"]);
        check(&["0.0.0.0/0"], &[0], expect!["0.0.0.1"]);
        check(&["2001:db8:0:100::/56"], &[0, 65535], expect!["2001:db8:0:100::1 2001:db8:0:100::1:0"]);
        check(&["::/0"], &[0, 1], expect!["::1 ::2"]);
        let two = Sources(vec!["127.0.0.2-127.0.0.3".parse().unwrap()]);
        assert_eq!([0, 1, 2, 5].map(|client| two.rounds(client)), [0, 0, 1, 2]);
        assert_eq!(Sources::default().rounds(5), 0);
    }

    #[test]
    fn invalid_sources_are_rejected() {
        for text in ["", "a", "127.0.0.3-127.0.0.2", "127.0.0.1-::1", "10.0.0.0/33", "10.0.0.0/", "::/129"] {
            assert!(text.parse::<Source>().unwrap_err().contains("is not a source"), "{text}");
        }
    }
}
