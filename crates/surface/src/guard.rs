//! Guard against web pages: decides which requests a browser may send on behalf of a page.
//!
//! Control surfaces have no passwords: anyone who can connect to one may use it. This includes a
//! browser on the same network, which runs pages from any site. Two rules therefore apply to every
//! surface:
//!
//! - **Host.** On a loopback listener, `Host` must be an IP address, a name under `.localhost`, or
//!   a name without a dot, such as `localhost` or this machine's name. None of these can be
//!   registered in the DNS. Without this rule, a page whose own name resolves to 127.0.0.1 (DNS
//!   rebinding) could read everything, because the browser treats the surface as the page's own
//!   origin. Nothing else identifies such a request. It has no `Origin`, and browsers send
//!   `Sec-Fetch-*` only to trustworthy URLs (W3C Fetch Metadata §2), which exclude plain HTTP under
//!   a foreign name. Only local programs can connect to a loopback listener, and they need no other
//!   name. Other listeners accept any name: agents, edges and proxies use names chosen by the
//!   operator, and the network decides who may connect.
//! - **Origin.** A request with an `Origin` is refused, whatever its method. Only pages send this
//!   field: with every write, and with cross-origin reads. No surface supports CORS, so a page from
//!   another site could not read the response and could only cause side effects. A surface that
//!   serves pages ([`Pages::Own`]) accepts requests from its own pages, whose origin equals the
//!   request's `Host`. A surface without pages accepts none.
//!
//! On other listeners, only the network protects against DNS rebinding. A rebinding page can read
//! responses and send any GET request. On a controller, this includes acknowledging a bundle.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::answer::{Refusal, uniform};

/// Pages from which a surface accepts requests with an `Origin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// None: the surface serves no pages.
    None,
    /// The surface's own pages.
    Own,
}

/// A surface's guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    /// Address on which the surface listens.
    pub(crate) listening: SocketAddr,
    pub(crate) pages: Pages,
}

/// Passes a request to the surface, or responds with a refusal.
pub(crate) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.judge(request.headers()) {
        Ok(()) => uniform(next.run(request).await).await,
        Err(refusal) => refusal.into_response(),
    }
}

impl Guard {
    fn judge(self, fields: &HeaderMap) -> Result<(), Refusal> {
        let Self { listening, pages } = self;
        if listening.ip().to_canonical().is_loopback()
            && let Some(host) = texts(fields, HOST).find(|host| !is_local(host))
        {
            let why = format!(
                "host {host:?} is refused: {listening} is reached as localhost or by IP address; \
                 a proxy in front of it must send Host: localhost"
            );
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let host = texts(fields, HOST).next().unwrap_or_default();
        match texts(fields, ORIGIN).find(|origin| pages == Pages::None || !is_same(origin, &host)) {
            Some(origin) => {
                let remedy = match pages {
                    Pages::None => "use the command line or the API",
                    Pages::Own => "a proxy in between must forward Host unchanged",
                };
                let why = format!("pages from {origin} may not send requests to {host:?}: {remedy}");
                Err(Refusal::new(StatusCode::FORBIDDEN, why))
            }
            None => Ok(()),
        }
    }
}

fn texts(fields: &HeaderMap, name: HeaderName) -> impl Iterator<Item = String> {
    fields.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns whether `host` cannot be a registered DNS name, so that it can only refer to this
/// machine.
fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_single = !name.is_empty() && !name.contains(['.', ':', '[']);
    address.parse::<IpAddr>().is_ok() || is_single || name.ends_with(".localhost")
}

/// Returns whether `origin` has the authority `host`. The scheme may differ, because a proxy may
/// add TLS.
fn is_same(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const LOOPBACK: &str = "127.0.0.1:8082";
    const ANYWHERE: &str = "0.0.0.0:8082";

    fn judge(listening: &str, fields: &[(HeaderName, &str)]) -> Option<Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name.clone(), value.parse().unwrap());
        }
        Guard { listening: listening.parse().unwrap(), pages: Pages::Own }.judge(&map).err()
    }

    #[test]
    fn loopback_listener_accepts_only_local_hosts() {
        for listening in [LOOPBACK, "127.0.0.9:1", "[::1]:8082", "[::ffff:127.0.0.1]:1"] {
            for host in [
                "localhost",
                "LocalHost:8082",
                "a.localhost:1",
                "localhost.",
                "pop1",
                "127.0.0.1:8082",
                "10.0.0.1",
            ] {
                assert!(judge(listening, &[(HOST, host)]).is_none(), "{listening} {host}");
            }
            assert!(judge(listening, &[(HOST, "[::1]:8082")]).is_none());
            assert!(judge(listening, &[]).is_none(), "a browser always sends Host");
            for host in [
                "evil.example",
                "evil.example:8082",
                "localhost.evil.example",
                "notlocalhost.example",
                "[evil]",
                "",
                "a b",
                "127.0.0.1.nip.io",
            ] {
                let refusal =
                    judge(listening, &[(HOST, host)]).unwrap_or_else(|| panic!("{listening} {host}"));
                assert_eq!(refusal.into_response().status(), StatusCode::MISDIRECTED_REQUEST);
            }
            assert!(judge(listening, &[(HOST, "localhost"), (HOST, "evil.example")]).is_some());
        }
        for listening in [ANYWHERE, "[::]:8082", "192.0.2.1:8082"] {
            assert!(judge(listening, &[(HOST, "controller.example:8082")]).is_none(), "{listening}");
        }
    }

    #[test]
    fn page_from_another_origin_is_refused() {
        for (origin, host, is_refused) in [
            ("http://localhost:8081", "localhost:8081", false),
            ("https://console.example", "Console.example", false),
            ("http://console.example", "console.example:8081", true),
            ("http://localhost:9", "localhost:8081", true),
            ("http://evil.example", "127.0.0.1:8081", true),
            ("null", "localhost:8081", true),
            ("", "", true),
        ] {
            let refusal = judge(ANYWHERE, &[(HOST, host), (ORIGIN, origin)]);
            assert_eq!(refusal.is_some(), is_refused, "{origin} at {host}");
            let is_forbidden = |refusal: Refusal| refusal.into_response().status() == StatusCode::FORBIDDEN;
            assert!(refusal.is_none_or(is_forbidden));
        }
        assert!(judge(ANYWHERE, &[(ORIGIN, "http://a")]).is_some(), "without a host there is no own origin");
        let own = [(HOST, HeaderValue::from_static("a")), (ORIGIN, HeaderValue::from_static("http://a"))];
        let without_pages = Guard { listening: ANYWHERE.parse().unwrap(), pages: Pages::None };
        assert!(without_pages.judge(&own.into_iter().collect()).is_err());
    }
}
