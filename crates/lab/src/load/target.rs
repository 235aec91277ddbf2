//! What is asked for: a URL, resolved once, and the request that asks for it.

use std::net::{SocketAddr, ToSocketAddrs};

use thalweg_record::units::Size;

use thalweg_http::{Authority, Target as HttpTarget, number};

use super::connection::{Protocols, Server};
use super::content::Content;

/// The ports of URLs that name none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// What the requests say who asks.
const USER_AGENT: &str = concat!("thalweg-lab/", env!("CARGO_PKG_VERSION"));

/// One URL.
#[derive(Debug, Clone)]
pub struct Target {
    /// As it was given, for messages.
    pub url: String,
    /// Its server.
    pub server: Server,
    /// As the server is named in requests.
    pub authority: Authority,
    /// Path and query.
    pub target: String,
    /// What [`verify`](super::client::Plan::verify) expects.
    pub content: Content,
    /// How much of it, where the query says `bytes=…` as [`serve`](super::serve) reads it.
    pub content_bytes: Option<u64>,
    /// The field lines that are the same in all requests.
    fields: String,
}

impl Target {
    /// Reads a URL, looks its host up, and writes the request with `fields`, each `Name: value`; `protocols` says how its server is
    /// spoken to.
    ///
    /// # Errors
    /// In words for the one who wrote it.
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
        // `localhost` is both, and servers listen at 0.0.0.0 more often than at [::].
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

    /// Writes the request in place of what is in `into`: of `range`, from its first to its last byte, and with more field lines.
    pub fn write_request(&self, range: Option<(u64, u64)>, more: &str, into: &mut Vec<u8>) {
        self.write_request_for(&self.target, range, more, into);
    }

    /// The same for another path and query on the same server.
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

/// Reads `Name: value`.
///
/// # Errors
/// In words for the one who wrote it: what is no field, and what the generator writes itself.
pub fn read_field(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("{text:?} is no field: write \"Name: value\"");
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

    use super::super::connection::Trust;
    use super::*;

    fn read(url: &str, fields: &[(String, String)]) -> Result<Target, String> {
        Target::new(url, fields, &Protocols::new(false, Trust::Anybody))
    }

    #[test]
    fn requests() {
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
    fn wrong_ones_are_told() {
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
