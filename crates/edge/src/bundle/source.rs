//! Configured bundle source: a file, or the URL of a server (RFC 9110 §4.2.1).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thalweg_http::{Authority, Target};
use thalweg_record::{NAME_BYTES_MAX, is_name};

/// Query parameter that identifies the edge.
const EDGE: &str = "edge";

/// Source of an edge's bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// A file, which may be created or replaced at any time.
    File(PathBuf),
    /// A server, polled repeatedly.
    Http(BundleUrl),
}

/// The URL of a bundle on a server: `http[s]://HOST[:PORT][/PATH][?QUERY]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleUrl {
    is_secure: bool,
    authority: Authority,
    target: Target,
}

/// Reasons why a string is not a valid [`BundleSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSourceError {
    /// The string is empty.
    Empty,
    /// The URL has a scheme other than `http://` and `https://`.
    Scheme,
    /// Host, port, path or query is malformed.
    Url(String),
    /// The edge name is invalid.
    Name(String),
}

impl fmt::Display for BundleSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a path cannot be empty"),
            Self::Scheme => {
                f.write_str("invalid bundle source (expected a file or http[s]://HOST[:PORT]/PATH)")
            }
            Self::Url(reason) => {
                write!(f, "invalid bundle URL (expected http[s]://HOST[:PORT]/PATH): {reason}")
            }
            Self::Name(name) => write!(
                f,
                "{name:?} is not a valid edge name (letters, digits, '-', '_' and '.', at most {NAME_BYTES_MAX}): \
                 set another with edge=NAME in the URL's query"
            ),
        }
    }
}

impl std::error::Error for BundleSourceError {}

impl FromStr for BundleSource {
    type Err = BundleSourceError;

    fn from_str(text: &str) -> Result<Self, BundleSourceError> {
        match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => {
                let url = BundleUrl::parse(scheme == "https", rest).map_err(BundleSourceError::Url)?;
                match url.edge() {
                    Some(name) if !is_name(name) => Err(BundleSourceError::Name(name.to_owned())),
                    _ => Ok(Self::Http(url)),
                }
            }
            Some((scheme, _)) if !scheme.contains('/') => Err(BundleSourceError::Scheme),
            _ if text.is_empty() => Err(BundleSourceError::Empty),
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl BundleSource {
    /// Returns whether the source is a server that speaks TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Self::Http(url) if url.is_secure)
    }

    /// Adds this machine's name as `edge=` to a server's URL, unless the URL already has that
    /// parameter.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine's name is not a valid edge name.
    pub fn of_this_machine(self) -> Result<Self, BundleSourceError> {
        match self {
            Self::Http(url) => url.of(&rustix::system::uname().nodename().to_string_lossy()).map(Self::Http),
            file @ Self::File(_) => Ok(file),
        }
    }
}

impl BundleUrl {
    /// Parses the part after `http://` or `https://`.
    fn parse(is_secure: bool, rest: &str) -> Result<Self, String> {
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority = Authority::parse(authority.as_bytes()).map_err(|error| error.to_string())?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = Target::new(&format!("{slash}{target}")).map_err(|error| error.to_string())?;
        Ok(Self { is_secure, authority, target })
    }

    /// Returns the value of `edge=` in the query, if present.
    fn edge(&self) -> Option<&str> {
        let parameters = self.target.query()?.split('&');
        let mut named = parameters.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")));
        named.find(|(name, _)| *name == EDGE).map(|(_, edge)| edge)
    }

    /// Adds `edge=` unless the URL already has it.
    fn of(self, edge: &str) -> Result<Self, BundleSourceError> {
        if self.edge().is_some() {
            return Ok(self);
        }
        if !is_name(edge) {
            return Err(BundleSourceError::Name(edge.to_owned()));
        }
        let mark = if self.target.query().is_some() { "&" } else { "?" };
        let text = format!("{}{mark}{EDGE}={edge}", self.target.as_str());
        Ok(Self { target: Target::new(&text).expect("an edge name needs no escaping"), ..self })
    }
}

impl fmt::Display for BundleUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority.as_str(), self.target.as_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expect: Expect) {
        expect.assert_eq(&match text.parse::<BundleSource>() {
            Ok(BundleSource::File(path)) => format!("file {}", path.display()),
            Ok(BundleSource::Http(url)) => url.of("e-1").unwrap().to_string(),
            Err(error) => format!("error: {error}"),
        });
    }

    #[test]
    fn sources_are_parsed_or_rejected() {
        check("bundle.json", expect!["file bundle.json"]);
        check("/etc/a://b", expect!["file /etc/a://b"]);
        check("http/bundle.json", expect!["file http/bundle.json"]);
        check("", expect!["error: a path cannot be empty"]);
        check(
            "http://127.0.0.1:8083/bundle?pop=fra1",
            expect!["http://127.0.0.1:8083/bundle?pop=fra1&edge=e-1"],
        );
        check("http://Static.example", expect!["http://static.example/?edge=e-1"]);
        check("http://a?x", expect!["http://a/?x&edge=e-1"]);
        check("http://[::1]:9/b", expect!["http://[::1]:9/b?edge=e-1"]);
        check("http://a/b?edge=own&pop=p", expect!["http://a/b?edge=own&pop=p"]);
        check("http://a/b?hedge=1", expect!["http://a/b?hedge=1&edge=e-1"]);
        check("https://a/b", expect!["https://a/b?edge=e-1"]);
        check(
            "ftp://a/b",
            expect!["error: invalid bundle source (expected a file or http[s]://HOST[:PORT]/PATH)"],
        );
        for name in ["", "a%20b", "a:b"] {
            let source = format!("http://a/b?pop=p&edge={name}").parse::<BundleSource>();
            assert_eq!(source, Err(BundleSourceError::Name(name.into())));
        }
        check(
            "http://a/b?edge",
            expect![[
                r#"error: "" is not a valid edge name (letters, digits, '-', '_' and '.', at most 253): set another with edge=NAME in the URL's query"#
            ]],
        );
        let Ok(BundleSource::Http(url)) = "http://a/b".parse() else { panic!("not a URL") };
        assert_eq!(url.of("a\nb"), Err(BundleSourceError::Name("a\nb".into())));
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
