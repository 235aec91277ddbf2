//! The admin interface of a running edge, and that of a controller, as their client.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::request;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thalweg_edge::SHOWN_BYTES_MAX;
use thalweg_policy::source::FILES_MAX;
use tokio::net::TcpStream;

/// The longest answer that is read; one with as many bans as an edge keeps, or as much of a policy as it shows, is shorter.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The longest path that can be opened: PATH_MAX of limits.h.
const PATH_BYTES_MAX: usize = 4096;
/// What a byte may become in a JSON string: `\u0001`.
const ESCAPED_BYTES_MAX: usize = 6;
const _: () = assert!(
    ESCAPED_BYTES_MAX * (SHOWN_BYTES_MAX + FILES_MAX * PATH_BYTES_MAX) + (1 << 20) <= ANSWER_BYTES_MAX
);

/// Sends a request with `content` on a connection of its own, which lasts as long as the runtime.
///
/// # Errors
/// When nobody answers.
pub(crate) async fn send(
    addr: SocketAddr,
    request: request::Builder,
    content: String,
) -> anyhow::Result<Response<Incoming>> {
    let socket = TcpStream::connect(addr).await?;
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let request: Request<Full<Bytes>> = request.header(HOST, addr.to_string()).body(content.into())?;
    Ok(client.send_request(request).await?)
}

/// Whom to ask: what it is, and the flag that says where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) what: &'static str,
    pub(crate) flag: &'static str,
}

/// An edge's admin interface.
const EDGE: Asked = Asked { what: "edge", flag: "--admin" };

/// Asks the edge at `addr` and gives its answer, a JSON object.
///
/// # Errors
/// When no edge answers, or it refuses.
pub(crate) fn ask(addr: SocketAddr, request: request::Builder, content: String) -> anyhow::Result<Value> {
    ask_of(EDGE, addr, request, content)
}

/// Asks whoever is at `addr` and gives the answer, a JSON object.
///
/// # Errors
/// When nobody answers, or it is a refusal.
pub(crate) fn ask_of(
    asked: Asked,
    addr: SocketAddr,
    request: request::Builder,
    content: String,
) -> anyhow::Result<Value> {
    let Asked { what, flag } = asked;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (status, content) = runtime.block_on(async {
        let response = send(addr, request, content).await;
        let response = response.with_context(|| format!("no {what} answers at {addr}; {flag} says where"))?;
        let status = response.status();
        let content = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let content = content.map_err(|cause| anyhow::anyhow!("the answer of {addr} broke off: {cause}"))?;
        anyhow::Ok((status, content.to_bytes()))
    })?;
    let answer: Value = serde_json::from_slice(&content)
        .with_context(|| format!("{addr} answered {status}: that is no {what}'s interface"))?;
    if !status.is_success() {
        let reason = answer["reason"].as_str().or(answer["error"].as_str());
        bail!("{}", reason.map_or_else(|| format!("the {what} refuses"), str::to_owned));
    }
    Ok(answer)
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
