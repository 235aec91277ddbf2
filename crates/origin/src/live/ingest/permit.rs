//! Publishing permission: a source must connect to the ingest listener directly and present the
//! token if one is configured. The check performs no I/O.
//!
//! The token arrives as `Authorization: Bearer TOKEN` (RFC 6750 §2.1). Sources that support only a
//! user name and password send it as the `Basic` password (RFC 7617) with any user name, as in
//! `http://source:TOKEN@HOST/…`.
//!
//! **Invariant:** a request forwarded by a proxy is refused even with the token: a publishing point
//! must not be reachable through a delivery node.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, FORWARDED, HeaderMap, HeaderName, ORIGIN, VIA};
use subtle::ConstantTimeEq;

/// Fields that indicate a proxy.
const PROXY_FIELDS: [HeaderName; 4] =
    [VIA, FORWARDED, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("cdn-loop")];

/// A token presented by ingest sources. It never appears in logs or error messages.
#[derive(Clone, PartialEq, Eq)]
pub struct IngestToken(String);

impl IngestToken {
    /// Minimum length in characters: 64 bits in hexadecimal.
    pub const CHARACTERS_MIN: usize = 16;

    /// Creates a token. Returns `None` if `text` is shorter than [`Self::CHARACTERS_MIN`] or
    /// contains a character not allowed in a `Bearer` credential (RFC 6750 §2.1).
    pub fn new(text: &str) -> Option<IngestToken> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        let is_token = text.len() >= Self::CHARACTERS_MIN && text.bytes().all(allowed);
        is_token.then(|| IngestToken(text.to_owned()))
    }

    /// Returns the token as text, to be sent to an origin.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares the tokens in time that depends only on their lengths.
    fn matches(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }
}

impl fmt::Debug for IngestToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IngestToken")
    }
}

/// Settings of the ingest listener: its address and the token that sources must present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    listen: SocketAddr,
    token: Option<IngestToken>,
}

impl Ingest {
    /// Creates an ingest listener's settings.
    ///
    /// # Errors
    ///
    /// Returns an error if `listen` is not a loopback address and `token` is `None`.
    pub fn new(listen: SocketAddr, token: Option<IngestToken>) -> Result<Ingest, UnprotectedIngest> {
        if token.is_none() && !listen.ip().to_canonical().is_loopback() {
            return Err(UnprotectedIngest(listen));
        }
        Ok(Ingest { listen, token })
    }

    /// Returns the address to which sources connect.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Returns the token that sources must present.
    pub fn token(&self) -> Option<&IngestToken> {
        self.token.as_ref()
    }
}

/// Error: an ingest listener's address on which anyone could publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnprotectedIngest(SocketAddr);

impl fmt::Display for UnprotectedIngest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is reachable from other machines, so anyone could publish: set ingest_token, or use a loopback address",
            self.0
        )
    }
}

impl std::error::Error for UnprotectedIngest {}

/// Reasons to deny a publishing request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The request arrived at the listener for edges and clients.
    Listener,
    /// A proxy forwarded the request.
    Forwarded,
    /// A web page sent the request.
    WebPage,
    /// The token is missing or wrong.
    Token,
}

impl Denied {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Denied::Listener | Denied::Forwarded | Denied::WebPage => StatusCode::FORBIDDEN,
            Denied::Token => StatusCode::UNAUTHORIZED,
        }
    }

    /// Returns the `WWW-Authenticate` values of a 401 (RFC 9110 §15.5.2). Each is sent on its own
    /// field line, because ffmpeg reads only the start of a line.
    pub(crate) fn challenges(self) -> &'static [&'static str] {
        match self {
            Denied::Token => &[r#"Basic realm="ingest""#, r#"Bearer realm="ingest""#],
            Denied::Listener | Denied::Forwarded | Denied::WebPage => &[],
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denied::Listener => "this listener does not accept ingest: push to the origin's ingest listener",
            Denied::Forwarded => "publishing through a proxy is refused: push to the origin's ingest listener directly",
            Denied::WebPage => "publishing from a web page is refused",
            Denied::Token => {
                "missing or wrong ingest token: send Authorization: Bearer TOKEN, or push to http://source:TOKEN@HOST/…"
            }
        })
    }
}

/// Checks whether a request with these fields may publish.
pub(crate) fn check(token: Option<&IngestToken>, fields: &HeaderMap) -> Result<(), Denied> {
    if PROXY_FIELDS.iter().any(|name| fields.contains_key(name)) {
        return Err(Denied::Forwarded);
    }
    // Browsers send Origin with every POST. Without this check, any web page open on the machine
    // could publish over loopback.
    if fields.contains_key(ORIGIN) {
        return Err(Denied::WebPage);
    }
    match token {
        Some(token) if !presents(token, fields) => Err(Denied::Token),
        _ => Ok(()),
    }
}

fn presents(token: &IngestToken, fields: &HeaderMap) -> bool {
    let Some((scheme, credentials)) = fields.get(AUTHORIZATION).and_then(|value| {
        let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
        Some((scheme, credentials.trim()))
    }) else {
        return false;
    };
    if scheme.eq_ignore_ascii_case("Bearer") {
        return token.matches(credentials.as_bytes());
    }
    let decoded = STANDARD.decode(credentials).unwrap_or_default();
    let password = decoded.iter().position(|&b| b == b':').map(|colon| &decoded[colon + 1..]);
    scheme.eq_ignore_ascii_case("Basic") && password.is_some_and(|password| token.matches(password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const TOKEN: &str = "0123456789abcdef";

    /// Checks a source's request with one additional field.
    fn outcome(name: &str, value: &str) -> Result<(), Denied> {
        let mut fields = HeaderMap::new();
        fields.insert("host", HeaderValue::from_static("o"));
        fields.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap());
        check(IngestToken::new(TOKEN).as_ref(), &fields)
    }

    #[test]
    fn token_is_accepted_as_bearer_or_basic_password() {
        let basic = |user_password: &str| format!("Basic {}", STANDARD.encode(user_password));
        assert_eq!(outcome("authorization", &format!("Bearer {TOKEN}")), Ok(()));
        assert_eq!(outcome("authorization", &format!("bearer  {TOKEN}")), Ok(()));
        assert_eq!(outcome("authorization", &basic(&format!("anyone:{TOKEN}"))), Ok(()));
        assert_eq!(outcome("authorization", &basic(&format!(":{TOKEN}"))), Ok(()));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcdef0",
            "Digest 0123456789abcdef",
            TOKEN,
            "Basic !",
            &basic(TOKEN),
            &basic(&format!("{TOKEN}:")),
            &basic(&format!("a:b:{TOKEN}")),
        ] {
            assert_eq!(outcome("authorization", wrong), Err(Denied::Token), "{wrong}");
        }
        assert_eq!(outcome("accept", "*/*"), Err(Denied::Token));
    }

    #[test]
    fn forwarded_and_browser_requests_are_refused_even_with_token() {
        for name in ["via", "x-forwarded-for", "forwarded", "cdn-loop", "Via"] {
            let mut fields = HeaderMap::new();
            fields.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {TOKEN}")).unwrap());
            fields.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static(""));
            for token in [None, IngestToken::new(TOKEN)] {
                assert_eq!(check(token.as_ref(), &fields), Err(Denied::Forwarded), "{name}");
            }
        }
        assert_eq!(outcome("origin", "null"), Err(Denied::WebPage));
    }

    #[test]
    fn listener_beyond_loopback_needs_a_token() {
        for (address, needs) in [
            ("127.0.0.1:0", false),
            ("127.9.0.1:0", false),
            ("[::1]:0", false),
            ("[::ffff:127.0.0.1]:0", false),
            ("0.0.0.0:0", true),
            ("[::]:0", true),
            ("192.0.2.1:0", true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(Ingest::new(address, None).is_err(), needs, "{address}");
            assert!(Ingest::new(address, IngestToken::new(TOKEN)).is_ok());
        }
    }

    #[test]
    fn token_is_checked_for_length_and_characters() {
        assert_eq!(IngestToken::new(&TOKEN[1..]), None);
        assert_eq!(IngestToken::new("0123456789abcde f"), None);
        assert_eq!(IngestToken::new("0123456789abcdéf"), None);
        assert_eq!(format!("{:?}", IngestToken::new(TOKEN)), "Some(IngestToken)");
    }
}
