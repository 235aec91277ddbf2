//! The admin interface of a running edge, as its client.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::request;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

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
