//! Places: hashes from 0 to 999,999 that assign clients and connections to holdouts and arms. Every
//! edge and every consumer of its records must compute the same place, so the formula is part of
//! the document format ([`FORMAT`](crate::FORMAT)):
//!
//! `place = XXH3_64(seed = XXH3_64(salt), key) × 1,000,000 ÷ 2^64`, rounded down.
//!
//! A client's key has 16 bytes: an IPv4 address in IPv4-mapped IPv6 form, or an IPv6 address with
//! all but its first 56 bits cleared. A household typically gets a /56 (RFC 6177 §2), and its
//! devices change the remaining bits. A connection's key is the client's full address in 16 bytes,
//! followed by its port in 2 bytes, most significant byte first. The key of an address in a redraw
//! period is the full address, followed by the period's number in 8 bytes.

use std::net::{IpAddr, SocketAddr};

use twox_hash::XxHash3_64;

use thalweg_record::Prefix;

/// Leading bits of an IPv6 address that identify a client.
const CLIENT_BITS: u8 = 56;

/// Computes the place of `key`, from 0 to 999,999.
pub(crate) fn of(salt: &str, key: &[u8]) -> u32 {
    let seed = XxHash3_64::oneshot(salt.as_bytes());
    let hash = XxHash3_64::oneshot_with_seed(seed, key);
    u32::try_from((u128::from(hash) * 1_000_000) >> 64).expect("the place is below one million")
}

/// Returns a client's key, which does not depend on the port.
pub(crate) fn client(client: IpAddr) -> Vec<u8> {
    match client.to_canonical() {
        address @ IpAddr::V4(_) => bytes(address).to_vec(),
        address @ IpAddr::V6(_) => bytes(Prefix::cut(address, CLIENT_BITS).first()).to_vec(),
    }
}

/// Returns a connection's key.
pub(crate) fn connection(client: SocketAddr) -> Vec<u8> {
    [&bytes(client.ip())[..], &client.port().to_be_bytes()].concat()
}

/// Returns the key of a client's address in a redraw period.
pub(crate) fn address_in_period(client: IpAddr, period: u64) -> Vec<u8> {
    [&bytes(client)[..], &period.to_be_bytes()].concat()
}

fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
