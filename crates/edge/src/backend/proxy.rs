//! PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`): a header that passes the
//! client's addresses to a backend.

use std::net::SocketAddr;

use proxy_header::{ProxiedAddress, ProxyHeader};

/// Both addresses of a client connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// Encodes the header of a connection opened for a client or, if `ends` is `None`, for the edge
/// itself.
pub(super) fn header(version: u8, ends: Option<Ends>) -> Vec<u8> {
    let header = ends.map_or_else(ProxyHeader::with_local, |ends| {
        ProxyHeader::with_address(ProxiedAddress::stream(plain(ends.client), plain(ends.server)))
    });
    let mut out = Vec::new();
    // Version 1 requires that both addresses have the same family, which is always the case here.
    let written = if version == 1 { header.encode_v1(&mut out) } else { header.encode_v2(&mut out) };
    written.expect("both ends have the same address family");
    out
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
