//! Prefixes of client addresses, in the notation of RFC 4632 §3.1 and RFC 4291 §2.3.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Bits by which IPv4 clients are grouped.
pub const CLIENT_IPV4_BITS: u8 = 24;
/// Bits by which IPv6 clients are grouped: what an access line is commonly given.
pub const CLIENT_IPV6_BITS: u8 = 56;

/// Addresses that begin with the same bits, as `203.0.113.0/24` or `2001:db8::/32`.
///
/// **Invariant:** the bits after the prefix are zero, and an IPv4 address is not in IPv6 form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no [`Prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixError {
    /// Not an address, a slash and a number of bits.
    Form,
    /// More bits than the address has.
    Bits {
        /// What it has.
        bits_max: u8,
    },
    /// Bits after the prefix are set.
    Host {
        /// The prefix that these are the first bits of.
        prefix: Prefix,
    },
    /// An IPv4 address in IPv6 form: clients with such are looked up as IPv4.
    Mapped,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("not an address, a slash and a number of bits such as 203.0.113.0/24"),
            Self::Bits { bits_max } => write!(f, "more than {bits_max} bits"),
            Self::Host { prefix } => write!(f, "bits after the prefix are set: write {prefix}"),
            Self::Mapped => f.write_str("an IPv4 address in IPv6 form: write it as IPv4"),
        }
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// `127.0.0.0/8` and `::1/128`: this machine.
    pub const LOOPBACK: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 },
        Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 },
    ];

    /// The first `bits` of `address`.
    ///
    /// # Errors
    /// When it has not so many, or others are set, or it is IPv4 in IPv6 form.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, PrefixError> {
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        if bits > bits_max {
            return Err(PrefixError::Bits { bits_max });
        }
        if address.to_canonical() != address {
            return Err(PrefixError::Mapped);
        }
        let prefix = Self { address: first_bits(address, bits), bits };
        if prefix.address == address { Ok(prefix) } else { Err(PrefixError::Host { prefix }) }
    }

    /// The first `bits` of `address`, or all it has; an IPv4 address in IPv6 form counts as IPv4.
    pub fn cut(address: IpAddr, bits: u8) -> Self {
        let address = address.to_canonical();
        let bits = bits.min(if address.is_ipv4() { 32 } else { 128 });
        Self { address: first_bits(address, bits), bits }
    }

    /// The network of a client, as telemetry and control group them: the /24 of an IPv4 address, the /56 of an IPv6 one.
    pub fn of_client(address: IpAddr) -> Self {
        let bits = if address.to_canonical().is_ipv4() { CLIENT_IPV4_BITS } else { CLIENT_IPV6_BITS };
        Self::cut(address, bits)
    }

    /// The prefix that a text is, or the address alone that it is, as settings of who may do what have them.
    ///
    /// # Errors
    /// When it is neither.
    pub fn of_text_or_address(text: &str) -> Result<Self, PrefixError> {
        text.parse().map_or_else(|_| text.parse(), |address| Ok(Self::cut(address, u8::MAX)))
    }

    /// The first address in it.
    pub fn first(self) -> IpAddr {
        self.address
    }

    /// The last address in it.
    pub fn last(self) -> IpAddr {
        match self.address {
            IpAddr::V4(first) => {
                let rest = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                IpAddr::V4((first.to_bits() | rest).into())
            }
            IpAddr::V6(first) => {
                let rest = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                IpAddr::V6((first.to_bits() | rest).into())
            }
        }
    }

    /// How many bits it has.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether `address` begins so; an IPv4 address in IPv6 form counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && (self.first()..=self.last()).contains(&address)
    }
}

/// The address with the bits after the first `bits` zero.
fn first_bits(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            IpAddr::V4((address.to_bits() & !u32::MAX.checked_shr(bits).unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & !u128::MAX.checked_shr(bits).unwrap_or(0)).into())
        }
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
        // Three digits may be more than a u8 has, and are then more than any address has.
        Self::new(address, bits.parse().unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
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
    fn what_is_no_prefix_is_refused() {
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
