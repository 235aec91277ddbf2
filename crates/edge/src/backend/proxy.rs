//! The PROXY protocol, versions 1 and 2, as HAProxy's specification `proxy-protocol.txt` has it: what a connection to a
//! backend begins with to tell of the client's.

use std::net::SocketAddr;

use proxy_header::{ProxiedAddress, ProxyHeader};

/// The two ends of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// The header for a connection on behalf of a client; without one, of ourselves.
pub(super) fn header(version: u8, ends: Option<Ends>) -> Vec<u8> {
    let header = ends.map_or_else(ProxyHeader::with_local, |ends| {
        ProxyHeader::with_address(ProxiedAddress::stream(plain(ends.client), plain(ends.server)))
    });
    let mut out = Vec::new();
    // A stream's two ends are of one family, which is all that version 1 asks for.
    let written = if version == 1 { header.encode_v1(&mut out) } else { header.encode_v2(&mut out) };
    written.expect("the ends of one TCP connection can be written");
    out
}

/// IPv4 as IPv4, also where the socket takes both.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
