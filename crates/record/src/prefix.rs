//! Client address prefixes, in the notation of RFC 4632 §3.1 and RFC 4291 §2.3.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// Prefix length by which IPv4 clients are grouped.
pub const CLIENT_IPV4_BITS: u8 = 24;
/// Prefix length by which IPv6 clients are grouped: the length commonly assigned to an access line.
pub const CLIENT_IPV6_BITS: u8 = 56;

/// An address prefix such as `203.0.113.0/24` or `2001:db8::/32`.
///
/// **Invariant:** all bits after the prefix are zero, and the address is never IPv4-mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpNet);

/// Reason why a string is not a [`Prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixError {
    /// The string does not have the form `ADDRESS/BITS`.
    Form,
    /// The prefix is longer than the address.
    Bits {
        /// Length of the address in bits.
        bits_max: u8,
    },
    /// Bits after the prefix are set.
    Host {
        /// The prefix with those bits cleared.
        prefix: Prefix,
    },
    /// The address is an IPv4-mapped IPv6 address. Clients with such addresses are looked up as
    /// IPv4.
    Mapped,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("must be an address prefix such as 203.0.113.0/24"),
            Self::Bits { bits_max } => write!(f, "prefix length must be at most {bits_max}"),
            Self::Host { prefix } => write!(f, "bits after the prefix are set: write {prefix}"),
            Self::Mapped => f.write_str("IPv4-mapped IPv6 address: write it as IPv4"),
        }
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// Loopback prefixes: `127.0.0.0/8` and `::1/128`.
    pub const LOOPBACK: [Self; 2] = [
        Self(IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8)),
        Self(IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128)),
    ];

    /// Creates a prefix from the first `bits` bits of `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address has fewer bits, has bits set after the prefix, or is
    /// IPv4-mapped.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, PrefixError> {
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let network = IpNet::new(address, bits).map_err(|_| PrefixError::Bits { bits_max })?;
        if address.to_canonical() != address {
            return Err(PrefixError::Mapped);
        }
        let prefix = Self(network.trunc());
        if prefix.0 == network { Ok(prefix) } else { Err(PrefixError::Host { prefix }) }
    }

    /// Truncates `address` to its first `bits` bits, or keeps all its bits if it has fewer. An
    /// IPv4-mapped address counts as IPv4.
    pub fn cut(address: IpAddr, bits: u8) -> Self {
        let whole = IpNet::from(address.to_canonical());
        let bits = bits.min(whole.max_prefix_len());
        Self(IpNet::new(whole.addr(), bits).expect("`bits` is at most the address length").trunc())
    }

    /// Returns the prefix by which telemetry and control group clients: /24 for IPv4, /56 for IPv6.
    pub fn of_client(address: IpAddr) -> Self {
        let bits = if address.to_canonical().is_ipv4() { CLIENT_IPV4_BITS } else { CLIENT_IPV6_BITS };
        Self::cut(address, bits)
    }

    /// Parses a prefix or a single address, as access settings allow.
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is neither a prefix nor an address.
    pub fn of_text_or_address(text: &str) -> Result<Self, PrefixError> {
        text.parse().map_or_else(|_| text.parse(), |address| Ok(Self::cut(address, u8::MAX)))
    }

    /// Returns the prefix as an [`IpNet`].
    pub fn network(self) -> IpNet {
        self.0
    }

    /// Returns the first address of the prefix.
    pub fn first(self) -> IpAddr {
        self.0.network()
    }

    /// Returns the last address of the prefix.
    pub fn last(self) -> IpAddr {
        self.0.broadcast()
    }

    /// Returns the prefix length.
    pub fn bits(self) -> u8 {
        self.0.prefix_len()
    }

    /// Returns whether the prefix contains `address`. An IPv4-mapped address counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, bits) = text.split_once('/').ok_or(PrefixError::Form)?;
        let address = address.parse().map_err(|_| PrefixError::Form)?;
        if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrefixError::Form);
        }
        // A three-digit number that exceeds a u8 also exceeds the length of any address.
        Self::new(address, bits.parse().unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_contains_addresses_with_its_first_bits() {
        for (prefix, address, expected) in [
            ("127.0.0.0/8", "127.1.2.3", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("127.0.0.0/8", "::1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::/0", "::1", true),
        ] {
            let prefix_of = Prefix::of_text_or_address(prefix).unwrap();
            assert_eq!(prefix_of.contains(address.parse().unwrap()), expected, "{address} in {prefix}");
        }
        for (prefix, text) in Prefix::LOOPBACK.into_iter().zip(["127.0.0.0/8", "::1/128"]) {
            assert_eq!(text.parse(), Ok(prefix));
        }
    }

    #[test]
    fn invalid_prefix_is_rejected() {
        let fault = |text| Prefix::of_text_or_address(text).unwrap_err();
        for text in ["", "10.0.0.0/", "10.0.0.0/-1", "10/8", "localhost", "10.0.0.0/8/8"] {
            assert_eq!(fault(text), PrefixError::Form, "{text}");
        }
        assert_eq!(fault("10.0.0.0/33"), PrefixError::Bits { bits_max: 32 });
        assert_eq!(fault("::/129"), PrefixError::Bits { bits_max: 128 });
        assert_eq!(fault("::ffff:10.0.0.0/104"), PrefixError::Mapped);
        assert_eq!(fault("10.0.0.1/8").to_string(), "bits after the prefix are set: write 10.0.0.0/8");
    }
}
