//! URL of a configured backend (RFC 9110 §4.2.1, without a path).

use std::fmt;
use std::str::FromStr;

use thalweg_http::Authority;
use thalweg_policy::program::{BackendAddress, BackendRow};

/// A backend's URL: `http://HOST[:PORT]`. It has no path, because request targets are forwarded
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendUrl {
    host: String,
    port: u16,
}

/// Reasons why a string is not a valid [`BackendUrl`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendUrlError {
    /// The string does not start with `http://`.
    Scheme,
    /// The URL has a path, query or fragment.
    Path,
    /// The host or port is malformed.
    Authority(String),
}

impl fmt::Display for BackendUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("invalid backend URL (expected http://HOST[:PORT])"),
            Self::Path => f.write_str("backend URL must not have a path: request paths stay unchanged"),
            Self::Authority(reason) => {
                write!(f, "invalid backend URL (expected http://HOST[:PORT]): {reason}")
            }
        }
    }
}

impl std::error::Error for BackendUrlError {}

impl FromStr for BackendUrl {
    type Err = BackendUrlError;

    fn from_str(text: &str) -> Result<Self, BackendUrlError> {
        let rest = text.strip_prefix("http://").ok_or(BackendUrlError::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(BackendUrlError::Path);
        }
        let authority = Authority::parse(rest.as_bytes())
            .map_err(|error| BackendUrlError::Authority(error.to_string()))?;
        if authority.host().is_empty() {
            return Err(BackendUrlError::Authority("the host is missing".into()));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: authority.port().unwrap_or(80) })
    }
}

impl BackendUrl {
    /// Creates the URL of the server at `address`.
    pub fn at(address: std::net::SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }

    /// Returns the declaration of this backend; its name is the URL.
    pub(super) fn row(&self) -> BackendRow {
        BackendRow {
            name: self.to_string(),
            address: Some(BackendAddress::Host { host: self.host.clone(), port: self.port }),
            host_header: None,
            connect_timeout_s: None,
            first_byte_timeout_s: None,
            between_bytes_timeout_s: None,
            connections_max: None,
            proxy_header: None,
            preamble: Vec::new(),
            probe: None,
        }
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "http://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "http://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expect: Expect) {
        expect.assert_eq(&match text.parse::<BackendUrl>() {
            Ok(url) => url.to_string(),
            Err(error) => format!("error: {error}"),
        });
    }

    #[test]
    fn urls_are_parsed_or_rejected() {
        check("http://127.0.0.1:8081", expect!["http://127.0.0.1:8081"]);
        check("http://origin.example/", expect!["http://origin.example:80"]);
        check("http://[::1]:9", expect!["http://[::1]:9"]);
        check("https://a", expect!["error: invalid backend URL (expected http://HOST[:PORT])"]);
        check("http://a/b", expect!["error: backend URL must not have a path: request paths stay unchanged"]);
    }
}
