//! The authority of a request: `host [":" port]` from `Host` (RFC 9110 §7.2) or an absolute-form
//! target.
//!
//! **Invariant:** the stored string is lower-case and safe in cache keys, log lines and file names.
//! It consists of letters, digits, `-`, `.` and `_`, or is an IPv6 address in brackets. Other
//! reg-name characters (RFC 3986 §3.2.2) do not occur in DNS names and are rejected.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

use crate::number::{self, Decimal};

/// Maximum host length in bytes. DNS allows 253 characters plus a trailing dot.
pub const HOST_BYTES_MAX: usize = 255;

/// A lower-cased host with an optional port. Empty by default, as in HTTP/1.0 without `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Authority {
    text: String,
    host_bytes: usize,
    port: Option<u16>,
}

impl Authority {
    /// Parses `host [":" port]`.
    pub fn parse(value: &[u8]) -> Result<Authority, AuthorityError> {
        let mut authority = Authority::default();
        authority.set(value)?;
        Ok(authority)
    }

    /// Like [`parse`](Self::parse), but reuses the allocation. On error, `self` is unchanged.
    pub fn set(&mut self, value: &[u8]) -> Result<(), AuthorityError> {
        let (host, port) = split(value)?;
        self.text.clear();
        self.text.push_str(host);
        self.text.make_ascii_lowercase();
        self.host_bytes = host.len();
        self.port = port;
        if let Some(port) = port {
            write!(self.text, ":{port}").expect("writing to a String cannot fail");
        }
        Ok(())
    }

    /// Clears host and port but keeps the allocation.
    pub fn clear(&mut self) {
        self.text.clear();
        self.host_bytes = 0;
        self.port = None;
    }

    /// Returns `host` or `host:port`, lower-cased; an IPv6 address keeps its brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host alone, lower-cased; an IPv6 address keeps its brackets.
    pub fn host(&self) -> &str {
        &self.text[..self.host_bytes]
    }

    /// Returns the host name without the trailing dot of a fully qualified name (RFC 1034 §3.1):
    /// `a.example.` and `a.example` are the same host. Multiple trailing dots, though invalid,
    /// are removed too.
    pub fn name(&self) -> &str {
        self.host().trim_end_matches('.')
    }

    /// Returns the port, if the authority has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether the authority has no host.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reason for rejecting an authority. The response status is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityError {
    /// The host is empty.
    Empty,
    /// The host is longer than [`HOST_BYTES_MAX`].
    TooLong,
    /// The host contains an invalid character, including the `@` of user information (RFC 9110
    /// §4.2.4).
    Host,
    /// The port is not a number from 1 to 65535.
    Port,
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthorityError::Empty => "host is empty",
            AuthorityError::TooLong => "host is too long",
            AuthorityError::Host => "host contains an invalid character",
            AuthorityError::Port => "port must be a number from 1 to 65535",
        })
    }
}

impl std::error::Error for AuthorityError {}

/// Splits `value` into host and port and checks both.
fn split(value: &[u8]) -> Result<(&str, Option<u16>), AuthorityError> {
    let host_bytes = if value.starts_with(b"[") {
        1 + value.iter().position(|byte| *byte == b']').ok_or(AuthorityError::Host)?
    } else {
        value.iter().position(|byte| *byte == b':').unwrap_or(value.len())
    };
    let (host, rest) = value.split_at(host_bytes);
    let host = check_host(host)?;
    match rest {
        // RFC 3986 §3.2.3: an empty port means no port.
        [] | [b':'] => Ok((host, None)),
        [b':', port @ ..] => Ok((host, Some(parse_port(port)?))),
        _ => Err(AuthorityError::Host),
    }
}

fn check_host(host: &[u8]) -> Result<&str, AuthorityError> {
    if host.is_empty() {
        return Err(AuthorityError::Empty);
    }
    if host.len() > HOST_BYTES_MAX {
        return Err(AuthorityError::TooLong);
    }
    let host = str::from_utf8(host).map_err(|_| AuthorityError::Host)?;
    let valid = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
    };
    if valid { Ok(host) } else { Err(AuthorityError::Host) }
}

fn parse_port(digits: &[u8]) -> Result<u16, AuthorityError> {
    match number::parse(digits) {
        Some(Decimal::Value(port @ 1..=65_535)) => u16::try_from(port).map_err(|_| AuthorityError::Port),
        _ => Err(AuthorityError::Port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(value: &str, expect: Expect) {
        let actual = match Authority::parse(value.as_bytes()) {
            Ok(authority) => format!("{authority} host={} port={:?}", authority.host(), authority.port()),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&actual);
    }

    #[test]
    fn host_and_port_are_split_and_lower_cased() {
        check("Example.COM", expect!["example.com host=example.com port=None"]);
        check("Example.com:8080", expect!["example.com:8080 host=example.com port=Some(8080)"]);
        check("example.com:", expect!["example.com host=example.com port=None"]);
        check("[2001:DB8::1]:80", expect!["[2001:db8::1]:80 host=[2001:db8::1] port=Some(80)"]);
        check("a:0080", expect!["a:80 host=a port=Some(80)"]);
    }

    #[test]
    fn name_has_no_final_dot() {
        let name = |text: &str| Authority::parse(text.as_bytes()).unwrap().name().to_owned();
        assert_eq!(
            ["A.Example.:80", "a.example", "a.", "a..", "."].map(name),
            ["a.example", "a.example", "a", "a", ""]
        );
        assert_eq!(name("[::1]:80"), "[::1]");
        assert_eq!(Authority::default().name(), "");
    }

    #[test]
    fn invalid_authority_is_refused() {
        check("", expect!["host is empty"]);
        check(":80", expect!["host is empty"]);
        check("user@example.com", expect!["host contains an invalid character"]);
        check("a b", expect!["host contains an invalid character"]);
        check("a,b", expect!["host contains an invalid character"]);
        check("a/b", expect!["host contains an invalid character"]);
        check("[::1", expect!["host contains an invalid character"]);
        check("[::1]x", expect!["host contains an invalid character"]);
        check("[x]", expect!["host contains an invalid character"]);
        check("a:0", expect!["port must be a number from 1 to 65535"]);
        check("a:65536", expect!["port must be a number from 1 to 65535"]);
        check("a:+1", expect!["port must be a number from 1 to 65535"]);
        check("a:80:80", expect!["port must be a number from 1 to 65535"]);
        check(&"a".repeat(256), expect!["host is too long"]);
    }
}
