//! Places: where among a million a client or a connection falls. Every edge and every reader of its records comes to the
//! same place, so this is part of the contract of [`FORMAT`](crate::FORMAT):
//!
//! `place = XXH3_64(seed = XXH3_64(salt), key) × 1,000,000 ÷ 2^64`, rounded down.
//!
//! The key of a client is 16 bytes: an IPv6 address whose bits after the first 56 are zero (RFC 6177 §2: a household has so
//! much to itself, and its devices change the rest), or an IPv4 address in IPv6 form. The key of a connection is the
//! client's whole address in 16 bytes and its port in 2, most significant byte first.

use std::net::{IpAddr, SocketAddr};

use twox_hash::XxHash3_64;

use thalweg_record::Prefix;

/// Bits of an IPv6 address that tell clients apart.
const CLIENT_BITS: u8 = 56;

/// The place of `key`: 0 to 999,999.
pub(crate) fn of(salt: &str, key: &[u8]) -> u32 {
    let seed = XxHash3_64::oneshot(salt.as_bytes());
    let hash = XxHash3_64::oneshot_with_seed(seed, key);
    u32::try_from((u128::from(hash) * 1_000_000) >> 64).expect("it is below a million")
}

/// The key of a client; those of all ports are one.
pub(crate) fn client(client: IpAddr) -> Vec<u8> {
    match client.to_canonical() {
        address @ IpAddr::V4(_) => bytes(address).to_vec(),
        address @ IpAddr::V6(_) => bytes(Prefix::cut(address, CLIENT_BITS).first()).to_vec(),
    }
}

/// The key of a connection.
pub(crate) fn connection(client: SocketAddr) -> Vec<u8> {
    [&bytes(client.ip())[..], &client.port().to_be_bytes()].concat()
}

fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
