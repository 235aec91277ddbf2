//! rtnetlink message encoding: `struct rtmsg`, `struct rtnexthop` and attributes
//! (`include/uapi/linux/rtnetlink.h`).

use std::net::IpAddr;

use crate::diag::Malformed;
use crate::diag::netlink::{ATTRIBUTE_HEADER_BYTES, HEADER_BYTES, aligned, u16_at};

/// Size of `struct rtmsg`.
pub(super) const MESSAGE_BYTES: usize = 12;
/// Size of `struct rtnexthop`.
pub(super) const NEXTHOP_BYTES: usize = 8;

pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;

/// Attribute types, `RTA_*`.
pub(super) mod kind {
    pub(crate) const DST: u16 = 1;
    pub(crate) const OIF: u16 = 4;
    pub(crate) const GATEWAY: u16 = 5;
    pub(crate) const PRIORITY: u16 = 6;
    pub(crate) const PREFSRC: u16 = 7;
    pub(crate) const METRICS: u16 = 8;
    pub(crate) const MULTIPATH: u16 = 9;
    pub(crate) const FLOW: u16 = 11;
    pub(crate) const TABLE: u16 = 15;
    pub(crate) const VIA: u16 = 18;
    pub(crate) const ENCAP_TYPE: u16 = 21;
    pub(crate) const ENCAP: u16 = 22;
    pub(crate) const NH_ID: u16 = 30;
}

/// Builds a netlink header. [`with_length`] sets its length later.
pub(super) fn header(kind: u16, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&sequence.to_ne_bytes());
    message
}

pub(super) fn with_length(mut message: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a route message has a few KiB");
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

pub(super) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length =
        u16::try_from(ATTRIBUTE_HEADER_BYTES + value.len()).expect("attribute values fit in 16 bits");
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(aligned(message.len()), 0);
}

/// Iterates over a list of next hops, each a `struct rtnexthop` with its attributes.
pub(super) fn nexthops(mut rest: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    std::iter::from_fn(move || {
        let left = std::mem::take(&mut rest);
        if left.is_empty() {
            return None;
        }
        let length_bytes = u16_at(left, 0).map_or(0, usize::from);
        let bytes = left.get(..length_bytes).filter(|bytes| bytes.len() >= NEXTHOP_BYTES);
        rest = left.get(aligned(length_bytes)..).unwrap_or_default();
        let left_bytes = left.len();
        Some(bytes.ok_or(Malformed::AttributeLength { length_bytes, left_bytes }).inspect_err(|_| rest = &[]))
    })
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => None,
    }
}

pub(super) fn short(kind: u16, value: &[u8], bytes_min: usize) -> Malformed {
    Malformed::ValueShort { kind, bytes: value.len(), bytes_min }
}
