//! The first bits of an address, as filters of sockets have them. Records have a prefix of their own (`thalweg_record::Prefix`), which
//! is read and written as text: neither of these crates depends on the other, and this one is whole without records.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses that begin with the same bits. An IPv4 address in IPv6 form counts as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// With the bits after the first ones zero; never IPv4 in IPv6 form.
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The first `bits` of `address`: of one of IPv4 in IPv6 form, those of the IPv4 address. More bits than there are
    /// count as all.
    pub fn of(address: IpAddr, bits: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let mask = !u32::MAX.checked_shr(bits.into()).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(address) => {
                let bits = bits.min(128);
                let mask = !u128::MAX.checked_shr(bits.into()).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
        }
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        self.address
    }

    /// How many bits are the same.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether `address` begins with them.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Self::of(address, self.bits) == self
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
