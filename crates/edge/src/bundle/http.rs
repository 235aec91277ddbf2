//! One request for a bundle and its answer, on a connection of its own (RFC 9112), within bounds of time and size.
//!
//! **Invariant:** what is not a whole answer with a meaning is a failure, told as such: a redirect, another status, content
//! that breaks off, or whose end could not be told from a break.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, ETAG, HOST, LOCATION, TRANSFER_ENCODING, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use thalweg_bundle::BYTES_MAX;
use thalweg_http::validators::EntityTag;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connect::connect;
use super::{BundleUrl, cut};
use crate::steering::chain;

/// How long the server is asked to hold a request until there is another bundle (`Prefer: wait`, RFC 7240 §4.3).
pub(super) const WAIT_S: u64 = 30;
/// From the request to the end of the answer's head: what the server was asked to hold it, and some time to answer.
pub(super) const HEAD_TIME_MAX: Duration = Duration::from_secs(WAIT_S + 15);
/// From there to the end of the content.
pub(super) const CONTENT_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of the answer's head, and what is read at a time.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of an entity tag that is remembered.
const ETAG_BYTES_MAX: usize = 256;
/// Bytes of what is told of a place that the server names.
const LOCATION_BYTES_MAX: usize = 256;
const AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

/// What a server has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// 200, with its entity tag as it stands.
    Document { content: Vec<u8>, etag: Option<String> },
    /// 200, but longer than a bundle may be.
    TooLong { etag: Option<String> },
    /// 304: none but those that the request told.
    Unchanged,
    /// 204: none at all.
    Nothing,
}

/// Asks on a new connection, with `fields` beside those that every request has.
///
/// # Errors
/// Why there is no answer that means something, for people.
pub(super) async fn ask(url: &BundleUrl, fields: &[(&'static str, String)]) -> Result<Answer, String> {
    let (host, port) = url.host();
    exchange(connect(host, port).await?, request(url, fields)?).await
}

pub(super) fn request(
    url: &BundleUrl,
    fields: &[(&'static str, String)],
) -> Result<Request<Empty<Bytes>>, String> {
    let every = [(HOST, url.authority()), (USER_AGENT, AGENT), (CONNECTION, "close")];
    let request = every
        .into_iter()
        .fold(Request::get(url.target()), |request, (name, value)| request.header(name, value));
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, value));
    request.body(Empty::new()).map_err(|error| format!("no request can be made: {error}"))
}

/// Sends the request and reads its answer.
pub(super) async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| chain(&error);
    let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    // It ends with this exchange, however that ends.
    let mut carried = JoinSet::new();
    carried.spawn(connection);
    match timeout(HEAD_TIME_MAX, sender.send_request(request)).await {
        Ok(response) => answer(response.map_err(failed)?).await,
        Err(_) => Err("no answer came in time".into()),
    }
}

async fn answer(response: Response<Incoming>) -> Result<Answer, String> {
    let etag = response.headers().get(ETAG).and_then(|etag| entity_tag(etag.as_bytes()));
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED => return Ok(Answer::Unchanged),
        StatusCode::NO_CONTENT => return Ok(Answer::Nothing),
        status => return Err(other_status(status, &response)),
    }
    let (is_chunked, body) = (response.headers().contains_key(TRANSFER_ENCODING), response.into_body());
    if body.size_hint().exact().is_none() && !is_chunked {
        return Err("the answer has no length: its end cannot be told from a break".into());
    }
    match timeout(CONTENT_TIME_MAX, content(body)).await {
        Ok(Ok(Some(content))) => Ok(Answer::Document { content, etag }),
        Ok(Ok(None)) => Ok(Answer::TooLong { etag }),
        Ok(Err(error)) => Err(format!("the answer broke off: {}", chain(&error))),
        Err(_) => Err("the answer's content took too long".into()),
    }
}

fn other_status(status: StatusCode, response: &Response<Incoming>) -> String {
    match response.headers().get(LOCATION) {
        Some(to) if status.is_redirection() => {
            let to = cut(String::from_utf8_lossy(to.as_bytes()).into_owned(), LOCATION_BYTES_MAX);
            format!("it answered {status} to {to:?}; redirects are not followed")
        }
        _ => format!("it answered {status}"),
    }
}

/// All of it; nothing if it is longer than a bundle may be, of which no more is read.
async fn content(mut body: Incoming) -> Result<Option<Vec<u8>>, hyper::Error> {
    if body.size_hint().lower() > BYTES_MAX as u64 {
        return Ok(None);
    }
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if content.len() + data.len() > BYTES_MAX {
            return Ok(None);
        }
        content.extend_from_slice(&data);
    }
    Ok(Some(content))
}

/// An entity tag that can be sent back in a list of them.
fn entity_tag(value: &[u8]) -> Option<String> {
    let is_fit = value.len() <= ETAG_BYTES_MAX && value.is_ascii() && EntityTag::parse(value).is_some();
    is_fit.then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;
