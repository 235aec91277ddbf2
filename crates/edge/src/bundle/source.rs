//! Where bundles come from, as it is configured: a file, or the URL of a server (RFC 9110 §4.2.1).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thalweg_http::{Authority, Target};

use super::escape;

const PORT_DEFAULT: u16 = 80;
/// The parameter of the query that says which edge asks.
const EDGE: &str = "edge";

/// Where an edge has its bundles from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// A file, which may come later and be replaced.
    File(PathBuf),
    /// A server that is asked again and again.
    Http(BundleUrl),
}

/// The URL of a server's bundle: `http://HOST[:PORT][/PATH][?QUERY]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleUrl {
    authority: Authority,
    target: Target,
}

/// Why a text is no [`BundleSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSourceError {
    /// It is empty.
    Empty,
    /// It begins with `https://`.
    Tls,
    /// It begins with another scheme than `http://`.
    Scheme,
    /// Host, port, path or query is not well-formed.
    Url(String),
}

impl fmt::Display for BundleSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a path cannot be empty"),
            Self::Tls => f.write_str("TLS towards the bundle's server is not supported"),
            Self::Scheme => f.write_str("a bundle comes from a file or from http://HOST[:PORT]/PATH"),
            Self::Url(reason) => write!(f, "the bundle's URL is http://HOST[:PORT]/PATH: {reason}"),
        }
    }
}

impl std::error::Error for BundleSourceError {}

impl FromStr for BundleSource {
    type Err = BundleSourceError;

    fn from_str(text: &str) -> Result<Self, BundleSourceError> {
        match text.split_once("://") {
            Some(("http", rest)) => BundleUrl::parse(rest).map(Self::Http).map_err(BundleSourceError::Url),
            Some(("https", _)) => Err(BundleSourceError::Tls),
            Some((scheme, _)) if !scheme.contains('/') => Err(BundleSourceError::Scheme),
            _ if text.is_empty() => Err(BundleSourceError::Empty),
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl BundleUrl {
    /// Of what comes after the scheme.
    fn parse(rest: &str) -> Result<Self, String> {
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority = Authority::parse(authority.as_bytes()).map_err(|error| error.to_string())?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = Target::new(&format!("{slash}{target}")).map_err(|error| error.to_string())?;
        Ok(Self { authority, target })
    }

    /// The same, asked for by an edge of this machine's name, unless it says itself which one asks.
    pub(super) fn of_this_machine(self) -> Self {
        self.of(&rustix::system::uname().nodename().to_string_lossy())
    }

    fn of(self, edge: &str) -> Self {
        let query = self.target.query().unwrap_or_default();
        let says_it = query.split('&').any(|parameter| parameter.split('=').next() == Some(EDGE));
        if says_it {
            return self;
        }
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let mark = if self.target.query().is_some() { "&" } else { "?" };
        let text = format!("{}{mark}{EDGE}={}", self.target.as_str(), escape(edge, unreserved));
        Self { target: Target::new(&text).expect("what was added is visible"), ..self }
    }

    /// As `Host` has it.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// As a connection is made to it.
    pub(super) fn host(&self) -> (&str, u16) {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        (host, self.authority.port().unwrap_or(PORT_DEFAULT))
    }

    /// Path and query.
    pub(super) fn target(&self) -> &str {
        self.target.as_str()
    }
}

impl fmt::Display for BundleUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.target())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expect: Expect) {
        expect.assert_eq(&match text.parse::<BundleSource>() {
            Ok(BundleSource::File(path)) => format!("file {}", path.display()),
            Ok(BundleSource::Http(url)) => {
                let ((host, port), asked) = (url.host(), url.clone().of("a b&c"));
                format!("{host} {port}: {asked}")
            }
            Err(error) => format!("error: {error}"),
        });
    }

    #[test]
    fn sources() {
        check("bundle.json", expect!["file bundle.json"]);
        check("/etc/a://b", expect!["file /etc/a://b"]);
        check("http/bundle.json", expect!["file http/bundle.json"]);
        check("", expect!["error: a path cannot be empty"]);
        check(
            "http://127.0.0.1:8083/bundle?pop=fra1",
            expect!["127.0.0.1 8083: http://127.0.0.1:8083/bundle?pop=fra1&edge=a%20b%26c"],
        );
        check("http://Static.example", expect!["static.example 80: http://static.example/?edge=a%20b%26c"]);
        check("http://a?x", expect!["a 80: http://a/?x&edge=a%20b%26c"]);
        check("http://[::1]:9/b", expect!["::1 9: http://[::1]:9/b?edge=a%20b%26c"]);
        check("http://a/b?edge=own&pop=p", expect!["a 80: http://a/b?edge=own&pop=p"]);
        check("http://a/b?hedge=1", expect!["a 80: http://a/b?hedge=1&edge=a%20b%26c"]);
        check("https://a/b", expect!["error: TLS towards the bundle's server is not supported"]);
        check("ftp://a/b", expect!["error: a bundle comes from a file or from http://HOST[:PORT]/PATH"]);
        for text in [
            "http://",
            "http:///b",
            "http://u:p@a/b",
            "http://a:99999/b",
            "http://a/b#c",
            "http://a/b c",
            "http://a/../b",
        ] {
            let error = text.parse::<BundleSource>().unwrap_err();
            assert!(matches!(error, BundleSourceError::Url(_)), "{text}: {error}");
        }
    }
}
