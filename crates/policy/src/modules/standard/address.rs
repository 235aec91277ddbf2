//! Parses addresses (vmod_std(3): `std.ip`, `std.port`).
//!
//! Accepts `address`, `address:port`, `address port`, and an IPv6 address in brackets with a port.
//! Names are never resolved: a host or service name is an error, as with `resolve=false`. An
//! IPv4-mapped IPv6 address becomes the IPv4 address, so that ACLs match it.
//!
//! varnishd passes its input to getaddrinfo(3) and accepts more. Short, octal and hexadecimal forms
//! (`1.2.3`, `010.0.0.1`, `0x7f.1`) are errors here, because programs disagree on their meaning and
//! an ACL must not guess. Also rejected are ports above 65,535 (varnishd uses them modulo 65,536),
//! an empty port (0 in varnishd) and an empty address (`::1` in varnishd).

use std::net::{IpAddr, SocketAddr};

use super::Error;

/// Default port if the policy specifies no other.
pub const PORT_DEFAULT: u16 = 80;

/// `std.ip(s, p=port_default)`: parses an address; `std.port` returns the result's port.
pub fn address(text: &[u8], port_default: u16) -> Result<SocketAddr, Error> {
    let text = str::from_utf8(text).map_err(|_| Error::Address)?;
    let parsed = match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').and_then(|(host, rest)| with_port(host, port_text(rest)?, port_default))
        }
        None => plain(text, port_default),
    };
    parsed.ok_or(Error::Address)
}

/// Parses an address without brackets. If `text` has more than one colon, all of them belong to the
/// address.
fn plain(text: &str, port_default: u16) -> Option<SocketAddr> {
    let host_bytes = match text.find([':', ' ']) {
        Some(at) if text[at..].starts_with(' ') || text[at + 1..].find(':').is_none() => at,
        _ => text.find(' ').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(host_bytes);
    with_port(host, port_text(rest)?, port_default)
}

/// Returns the port after an address, unparsed. Returns `Some(None)` if there is no port, and
/// `None` if `rest` is malformed.
fn port_text(rest: &str) -> Option<Option<&str>> {
    match rest.as_bytes().first() {
        None => Some(None),
        Some(b':') => Some(Some(&rest[1..])),
        Some(b' ') => Some(Some(rest.trim_start_matches(' '))),
        Some(_) => None,
    }
}

fn with_port(host: &str, port: Option<&str>, port_default: u16) -> Option<SocketAddr> {
    let ip: IpAddr = host.parse().ok()?;
    let port = match port {
        None => port_default,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        Some(_) => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, expected) in [
            ("1.2.3.4", "1.2.3.4:80"),
            ("1.2.3.4:8080", "1.2.3.4:8080"),
            ("1.2.3.4 8080", "1.2.3.4:8080"),
            ("1.2.3.4  80", "1.2.3.4:80"),
            ("1.2.3.4:65535", "1.2.3.4:65535"),
            ("1.2.3.4:080", "1.2.3.4:80"),
            ("1.2.3.4:0", "1.2.3.4:0"),
            ("::1", "[::1]:80"),
            ("[::1]", "[::1]:80"),
            ("[::1]:81", "[::1]:81"),
            ("[::1] 81", "[::1]:81"),
            ("::1 81", "[::1]:81"),
            ("::1:80", "[::1:80]:80"),
            ("::ffff:1.2.3.4", "1.2.3.4:80"),
            ("[1.2.3.4]:80", "1.2.3.4:80"),
        ] {
            assert_eq!(address(text.as_bytes(), PORT_DEFAULT), Ok(expected.parse().unwrap()), "{text}");
        }
        assert_eq!(address(b"::1", 81), Ok("[::1]:81".parse().unwrap()));
    }

    #[test]
    fn other_text_is_not_an_address() {
        for text in [
            "",
            "1",
            "1.2.3",
            "0x7f.1",
            "010.0.0.1",
            "localhost",
            " 1.2.3.4",
            "1.2.3.4 ",
            "1.2.3.4:",
            ":80",
            "1.2.3.4:http",
            "1.2.3.4:99999",
            "1.2.3.4:65536",
            "1.2.3.4:-1",
            "1.2.3.4:+80",
            "[::1",
            "[::1]x",
            "[::1]:",
            "fe80::1%lo",
            "1.2.3.4:80:80",
            "é",
        ] {
            assert_eq!(address(text.as_bytes(), PORT_DEFAULT), Err(Error::Address), "{text}");
        }
        assert_eq!(address(&[0xff], PORT_DEFAULT), Err(Error::Address));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in r"[\[\]:. 0-9a-fé]{0,24}") {
            let _ = address(text.as_bytes(), PORT_DEFAULT);
        }

        #[test]
        fn formatted_addresses_parse_back(v4: [u8; 4], v6: [u16; 8], port: u16) {
            for ip in [IpAddr::from(v4), IpAddr::from(v6).to_canonical()] {
                let address_and_port = SocketAddr::new(ip, port);
                prop_assert_eq!(address(address_and_port.to_string().as_bytes(), 80), Ok(address_and_port));
                prop_assert_eq!(address(ip.to_string().as_bytes(), port), Ok(address_and_port));
            }
        }
    }
}
