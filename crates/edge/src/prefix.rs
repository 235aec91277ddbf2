//! Address prefixes, for settings of who may do what.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses that begin with the same bits: `10.0.0.0/8`, `2001:db8::/32`, or one address alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    bits: u8,
}

/// A text that is no [`IpPrefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPrefixError;

impl fmt::Display for IpPrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address, or an address, a slash and a number of bits")
    }
}

impl std::error::Error for IpPrefixError {}

impl IpPrefix {
    /// `127.0.0.0/8` and `::1/128`: this machine.
    pub const LOOPBACK: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 },
        Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 },
    ];

    /// Whether `address` begins so. An IPv4 address in IPv6 form counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(prefix), IpAddr::V4(address)) => {
                let differ = prefix.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(prefix), IpAddr::V6(address)) => {
                let differ = prefix.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for IpPrefix {
    type Err = IpPrefixError;

    fn from_str(text: &str) -> Result<Self, IpPrefixError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| IpPrefixError)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| IpPrefixError)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        match bits.unwrap_or(bits_max) {
            bits if bits <= bits_max => Ok(Self { address, bits }),
            _ => Err(IpPrefixError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_prefix_that_it_begins_with() {
        for (prefix, address, expected) in [
            ("127.0.0.0/8", "127.1.2.3", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("127.0.0.0/8", "::1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::/0", "::1", true),
        ] {
            let prefix_of = prefix.parse::<IpPrefix>().unwrap();
            assert_eq!(prefix_of.contains(address.parse().unwrap()), expected, "{address} in {prefix}");
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for text in
            ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10/8", "localhost", "10.0.0.0/8/8"]
        {
            assert_eq!(text.parse::<IpPrefix>(), Err(IpPrefixError), "{text}");
        }
    }
}
