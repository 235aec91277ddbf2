//! Places: hashes of clients and connections, from 0 to 999,999, that select holdouts and arms.
//! Every edge and every reader of its records computes the same place, so the formula is part of
//! the contract of [`FORMAT`](crate::FORMAT):
//!
//! `place = XXH3_64(seed = XXH3_64(salt), key) × 1,000,000 ÷ 2^64`, rounded down.
//!
//! The key of a client is 16 bytes: an IPv6 address with all but the first 56 bits cleared, or an
//! IPv4 address in IPv6 form. A household typically has a /56 (RFC 6177 §2), and its devices change
//! the other bits. The key of a connection is the client's whole address in 16 bytes and its port
//! in 2, most significant byte first.

use std::net::{IpAddr, SocketAddr};

use twox_hash::XxHash3_64;

use thalweg_record::Prefix;

/// Bits of an IPv6 address that identify a client.
const CLIENT_BITS: u8 = 56;

/// Computes the place of `key`: 0 to 999,999.
pub(crate) fn of(salt: &str, key: &[u8]) -> u32 {
    let seed = XxHash3_64::oneshot(salt.as_bytes());
    let hash = XxHash3_64::oneshot_with_seed(seed, key);
    u32::try_from((u128::from(hash) * 1_000_000) >> 64).expect("the result is below a million")
}

/// Returns the key of a client, which is independent of the port.
pub(crate) fn client(client: IpAddr) -> Vec<u8> {
    match client.to_canonical() {
        address @ IpAddr::V4(_) => bytes(address).to_vec(),
        address @ IpAddr::V6(_) => bytes(Prefix::cut(address, CLIENT_BITS).first()).to_vec(),
    }
}

/// Returns the key of a connection.
pub(crate) fn connection(client: SocketAddr) -> Vec<u8> {
    [&bytes(client.ip())[..], &client.port().to_be_bytes()].concat()
}

fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
