//! Client for the admin interfaces of edges and controllers.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use http::request;
use serde_json::Value;
use thalweg_edge::SHOWN_BYTES_MAX;
use thalweg_policy::source::FILES_MAX;
use thalweg_surface::client::{Blocking, Failure};
use thalweg_surface::{ClientTls, Limits};

/// Maximum wait for a response head: the edge may compile a policy, or wait for the disk during a
/// purge.
const HEAD_TIME_MAX: Duration = Duration::from_secs(300);
/// Maximum response size in bytes: enough for all bans that an edge can hold, and for all the
/// policy text that it shows.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Maximum length of a path in bytes: `PATH_MAX` in `limits.h`.
const PATH_BYTES_MAX: usize = 4096;
/// Maximum length of one byte in a JSON string, where it may be escaped as `\u0001`.
const ESCAPED_BYTES_MAX: usize = 6;
const _: () = assert!(
    ESCAPED_BYTES_MAX * (SHOWN_BYTES_MAX + FILES_MAX * PATH_BYTES_MAX) + (1 << 20) <= ANSWER_BYTES_MAX
);

/// Server to query.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Name of the server in messages.
    pub(crate) what: &'static str,
    /// Flag for the server's address.
    pub(crate) flag: &'static str,
    /// URL without a path.
    pub(crate) url: String,
    /// TLS configuration, for an `https` URL.
    pub(crate) tls: Option<ClientTls>,
}

/// Sends a request to the edge at `addr` and returns the response, a JSON object.
///
/// # Errors
///
/// Returns an error if no edge responds, or the edge refuses the request.
pub fn request_edge(addr: SocketAddr, request: request::Builder, content: String) -> anyhow::Result<Value> {
    let server = Server { what: "edge", flag: "--admin", url: format!("http://{addr}"), tls: None };
    request_json(server, request, content)
}

/// Sends a request to a server and returns the response, a JSON object.
///
/// # Errors
///
/// Returns an error if no server responds, or the server refuses the request.
pub(crate) fn request_json(
    server: Server,
    request: request::Builder,
    content: String,
) -> anyhow::Result<Value> {
    let Server { what, flag, url, tls } = server;
    let path = request.uri_ref().map(ToString::to_string).unwrap_or_default();
    let request = request.uri(format!("{url}{path}")).body(content.into())?;
    let addr = url.trim_start_matches("http://");
    let limits = Limits { head: HEAD_TIME_MAX, content_bytes_max: ANSWER_BYTES_MAX, ..Limits::default() };
    let answer = Blocking::with_tls(limits, tls)?.send(request).map_err(|error| match error.why {
        Failure::Unreachable(_) => {
            anyhow::Error::new(error).context(format!("no {what} answers at {addr}; set {flag}"))
        }
        _ => error.into(),
    })?;
    let (status, content) = (answer.status(), answer.into_body());
    let answer: Value = serde_json::from_slice(&content).with_context(|| {
        format!("{addr} responded with {status}, not JSON: {flag} must be the address of the {what}")
    })?;
    if !status.is_success() {
        let why = answer["error"].as_str();
        bail!(
            "{}",
            why.map_or_else(|| format!("the {what} refused the request without stating why"), str::to_owned)
        );
    }
    Ok(answer)
}

/// Returns the current time in Unix milliseconds.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
