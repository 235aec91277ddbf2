//! Target of requests: a URL, resolved once, and the prepared request.

use std::net::{SocketAddr, ToSocketAddrs};

use thalweg_units::Size;

use thalweg_http::{Authority, Target as HttpTarget, number};

use super::connection::{Protocols, Server};
use super::content::Content;

/// Default ports.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// The User-Agent field.
const USER_AGENT: &str = concat!("thalweg-lab/", env!("CARGO_PKG_VERSION"));

/// Target of requests.
#[derive(Debug, Clone)]
pub struct Target {
    /// URL as given by the user, for messages.
    pub url: String,
    /// Server to connect to.
    pub server: Server,
    /// Authority to send in requests.
    pub authority: Authority,
    /// Path and query.
    pub target: String,
    /// Content expected by [`verify`](super::client::Plan::verify).
    pub content: Content,
    /// Content length, if the query has the parameter `bytes` of [`serve`](super::serve).
    pub content_bytes: Option<u64>,
    /// Field lines common to all requests.
    fields: String,
}

impl Target {
    /// Parses a URL, resolves its host, and prepares the request with `fields`. `protocols` selects
    /// the HTTP version and trusted certificates.
    ///
    /// # Errors
    ///
    /// Returns an error message for the user if the URL is invalid or cannot be resolved.
    pub fn new(url: &str, fields: &[(String, String)], protocols: &Protocols) -> Result<Self, String> {
        let (is_tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => {
                return Err(format!(
                    "{url}: not a URL: write http://HOST:PORT/PATH or https://HOST:PORT/PATH"
                ));
            }
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        HttpTarget::new(&target).map_err(|error| format!("{url}: {error}"))?;
        let authority = Authority::parse(host.as_bytes()).map_err(|error| format!("{url}: {error}"))?;
        let port = authority.port().unwrap_or(if is_tls { HTTPS_PORT } else { HTTP_PORT });
        let name = authority.host().trim_matches(['[', ']']);
        let found: Vec<SocketAddr> = (name, port)
            .to_socket_addrs()
            .map_err(|error| format!("{url}: cannot look up {name}: {error}"))?
            .collect();
        // Prefer IPv4: `localhost` resolves to both families, and servers listen on 0.0.0.0 more
        // often than on [::].
        let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
        let address = *address.ok_or_else(|| format!("{url}: {name} has no address"))?;
        let server = protocols.server(address, name, is_tls).map_err(|error| format!("{url}: {error}"))?;
        let fields = field_lines(host, fields);
        Ok(Self {
            url: url.to_owned(),
            server,
            authority,
            content: Content::of(&target),
            content_bytes: content_bytes(&target),
            target,
            fields,
        })
    }

    /// Replaces `into` with the request, including the field lines in `more`; `range` gives the
    /// first and last byte.
    pub fn write_request(&self, range: Option<(u64, u64)>, more: &str, into: &mut Vec<u8>) {
        self.write_request_for(&self.target, range, more, into);
    }

    /// Writes a request like [`write_request`](Self::write_request), for another path and query on
    /// the same server.
    pub fn write_request_for(&self, target: &str, range: Option<(u64, u64)>, more: &str, into: &mut Vec<u8>) {
        into.clear();
        for part in ["GET ", target, " HTTP/1.1\r\n", &self.fields] {
            into.extend_from_slice(part.as_bytes());
        }
        if let Some((first, last)) = range {
            into.extend_from_slice(b"Range: bytes=");
            number::write(into, first);
            into.push(b'-');
            number::write(into, last);
            into.extend_from_slice(b"\r\n");
        }
        into.extend_from_slice(more.as_bytes());
        into.extend_from_slice(b"\r\n");
    }
}

fn content_bytes(target: &str) -> Option<u64> {
    let (_, query) = target.split_once('?')?;
    let value = query.split('&').find_map(|part| part.strip_prefix("bytes="))?;
    value.parse().ok().or_else(|| value.parse::<Size>().ok().map(|size| size.bytes))
}

fn field_lines(host: &str, fields: &[(String, String)]) -> String {
    let is_given = |name: &str| fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let own = [("Host", host), ("User-Agent", USER_AGENT)];
    let own = own.into_iter().filter(|(name, _)| !is_given(name));
    let given = fields.iter().map(|(name, value)| (&**name, &**value));
    own.chain(given).map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// Parses `Name: value`.
///
/// # Errors
///
/// Returns an error message for the user if `text` is not a field line, or if the load generator
/// sets this field itself.
pub fn read_field(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("{text:?} is not a field: write \"Name: value\"");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let value = value.trim();
    let is_value = value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control());
    if !thalweg_http::token::is_token(name.as_bytes()) || !is_value {
        return Err(wrong());
    }
    if ["content-length", "transfer-encoding"].iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        return Err(format!("{name:?}: requests have no content"));
    }
    if name.eq_ignore_ascii_case("range") {
        return Err(format!("{name:?}: use --range"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::connection::Trust;

    fn read(url: &str, fields: &[(String, String)]) -> Result<Target, String> {
        Target::new(url, fields, &Protocols::new(false, Trust::Any))
    }

    #[test]
    fn requests_have_given_and_default_fields() {
        let fields = [read_field("Accept: a/b").unwrap(), read_field("user-agent: me").unwrap()];
        let target = read("http://127.0.0.1:81?x=1#y", &fields).unwrap();
        assert_eq!(target.server.address, "127.0.0.1:81".parse().unwrap());
        let mut request = Vec::new();
        target.write_request(Some((5, 9)), "A: b\r\n", &mut request);
        expect![[r#"
            GET /?x=1 HTTP/1.1
            Host: 127.0.0.1:81
            Accept: a/b
            user-agent: me
            Range: bytes=5-9
            A: b

        "#]]
        .assert_eq(&String::from_utf8(request).unwrap().replace("\r\n", "\n"));
        for (url, address) in [("http://[::1]/", "[::1]:80"), ("https://[::1]/", "[::1]:443")] {
            assert_eq!(read(url, &[]).unwrap().server.address, address.parse().unwrap());
        }
    }

    #[test]
    fn invalid_urls_and_fields_are_rejected() {
        for (url, part) in [
            ("127.0.0.1/", "not a URL"),
            ("ftp://a/", "not a URL"),
            ("http:///a", "host is empty"),
            ("http://a b/", "http://a b/: "),
            ("http://127.0.0.1/a b", "http://127.0.0.1/a b: "),
        ] {
            let error = read(url, &[]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        for text in ["a", "a b: c", "a: b\r\nc: d", "Content-Length: 3", "Range: bytes=1-2"] {
            assert!(read_field(text).is_err(), "{text}");
        }
    }
}
