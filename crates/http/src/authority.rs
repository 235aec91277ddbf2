//! The authority of a request: `host [":" port]` of `Host` (RFC 9110 §7.2) or of a target in absolute-form.
//!
//! **Invariant:** the text is lower-case and safe in a cache key, a log line and a file name: letters, digits,
//! `-`, `.`, `_`, or an IPv6 address in brackets. Other characters that RFC 3986 lets into a reg-name do not
//! occur in DNS names and are refused.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

use crate::number::{self, Decimal};

/// The longest host; DNS allows 253 characters and a final dot.
pub const HOST_BYTES_MAX: usize = 255;

/// A host, lower-cased, and a port if one was given. Empty by default, as in HTTP/1.0 without `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Authority {
    text: String,
    host_bytes: usize,
    port: Option<u16>,
}

impl Authority {
    /// Reads `host [":" port]`.
    pub fn parse(value: &[u8]) -> Result<Authority, AuthorityError> {
        let mut authority = Authority::default();
        authority.set(value)?;
        Ok(authority)
    }

    /// [`parse`](Self::parse) that keeps the allocation; unchanged on error.
    pub fn set(&mut self, value: &[u8]) -> Result<(), AuthorityError> {
        let (host, port) = split(value)?;
        self.text.clear();
        self.text.push_str(host);
        self.text.make_ascii_lowercase();
        self.host_bytes = host.len();
        self.port = port;
        if let Some(port) = port {
            write!(self.text, ":{port}").expect("a string takes all that is written");
        }
        Ok(())
    }

    /// Forgets host and port and keeps the allocation.
    pub fn clear(&mut self) {
        self.text.clear();
        self.host_bytes = 0;
        self.port = None;
    }

    /// `host` or `host:port`, lower-cased; an IPv6 address in its brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host alone, lower-cased; an IPv6 address in its brackets.
    pub fn host(&self) -> &str {
        &self.text[..self.host_bytes]
    }

    /// The host as a name: without the dot that may end one that is written in full (RFC 1034 §3.1). `a.example.` and `a.example` are
    /// one host; more dots than one are no name's, and are left out as well.
    pub fn name(&self) -> &str {
        self.host().trim_end_matches('.')
    }

    /// The port, if one was given.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the request named no host.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why an authority is refused; the answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityError {
    /// No host.
    Empty,
    /// A host longer than [`HOST_BYTES_MAX`].
    TooLong,
    /// A character that no host has; user information ends here too (RFC 9110 §4.2.4).
    Host,
    /// Not a port: 1 to 65535.
    Port,
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthorityError::Empty => "host is empty",
            AuthorityError::TooLong => "host is too long",
            AuthorityError::Host => "host has a character that no host name has",
            AuthorityError::Port => "port is not a number from 1 to 65535",
        })
    }
}

impl std::error::Error for AuthorityError {}

/// Host and port of `value`, both checked.
fn split(value: &[u8]) -> Result<(&str, Option<u16>), AuthorityError> {
    let host_bytes = if value.starts_with(b"[") {
        1 + value.iter().position(|byte| *byte == b']').ok_or(AuthorityError::Host)?
    } else {
        value.iter().position(|byte| *byte == b':').unwrap_or(value.len())
    };
    let (host, rest) = value.split_at(host_bytes);
    let host = check_host(host)?;
    match rest {
        // RFC 3986 §3.2.3: the port may be empty, which is the same as none.
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
    fn a_name_has_no_final_dot() {
        let name = |text: &str| Authority::parse(text.as_bytes()).unwrap().name().to_owned();
        assert_eq!(
            ["A.Example.:80", "a.example", "a.", "a..", "."].map(name),
            ["a.example", "a.example", "a", "a", ""]
        );
        assert_eq!(name("[::1]:80"), "[::1]");
        assert_eq!(Authority::default().name(), "");
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        check("", expect!["host is empty"]);
        check(":80", expect!["host is empty"]);
        check("user@example.com", expect!["host has a character that no host name has"]);
        check("a b", expect!["host has a character that no host name has"]);
        check("a,b", expect!["host has a character that no host name has"]);
        check("a/b", expect!["host has a character that no host name has"]);
        check("[::1", expect!["host has a character that no host name has"]);
        check("[::1]x", expect!["host has a character that no host name has"]);
        check("[x]", expect!["host has a character that no host name has"]);
        check("a:0", expect!["port is not a number from 1 to 65535"]);
        check("a:65536", expect!["port is not a number from 1 to 65535"]);
        check("a:+1", expect!["port is not a number from 1 to 65535"]);
        check("a:80:80", expect!["port is not a number from 1 to 65535"]);
        check(&"a".repeat(256), expect!["host is too long"]);
    }
}
