//! Bundle request: one exchange with the bundle server, limited in time and size.
//!
//! **Invariant:** any response that is not complete and meaningful is reported as a failure. This
//! includes redirects, unexpected statuses, truncated content, and content delimited only by the
//! end of the connection.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, ETAG, LOCATION};
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use serde_json::Value;
use thalweg_bundle::BYTES_MAX;
use thalweg_http::validators::EntityTag;
use thalweg_surface::client::{Client, Content, Failure};
use thalweg_surface::{ClientTls, Limits};

use super::{BundleServer, cut};
use crate::steering::chain;

/// How long the server may hold a request while it has no new bundle, in seconds (`Prefer: wait`,
/// RFC 7240 §4.3).
pub(super) const WAIT_S: u64 = 30;
/// Maximum time from the request to the end of the response head: the requested wait plus the time
/// to connect and respond.
const HEAD_TIME_MAX: Duration = Duration::from_secs(WAIT_S + 15);
/// Maximum time from the end of the response head to the end of the content.
const CONTENT_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum length of an entity tag to keep, in bytes.
const ETAG_BYTES_MAX: usize = 256;
/// Maximum number of bytes logged from a `Location` or from the reason given by a server.
const REASON_BYTES_MAX: usize = 256;

/// A server's reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// 200, with the entity tag verbatim.
    Document { content: Vec<u8>, etag: Option<String> },
    /// 200, but the content exceeds the maximum length of a bundle.
    TooLong { etag: Option<String> },
    /// 304: the server has only the bundles named in the request.
    Unchanged,
    /// 204: the server has no bundle.
    Nothing,
}

/// Creates a client for bundle requests. Each request uses a new connection, because the host name
/// may later resolve to another server.
pub(super) fn client(tls: Option<ClientTls>) -> Client {
    let (head, content) = (HEAD_TIME_MAX, CONTENT_TIME_MAX);
    Client::with_tls(Limits { head, content, content_bytes_max: BYTES_MAX, ..Limits::default() }, tls)
}

/// Requests a bundle, with `fields` in addition to the standard ones.
///
/// # Errors
///
/// Returns an error message for the operator if there is no meaningful reply.
pub(super) async fn request_bundle(
    client: &Client,
    server: &BundleServer,
    fields: &[(&'static str, String)],
) -> Result<Reply, String> {
    let mut request = Request::get(server.url.to_string());
    if let Some(token) = &server.token {
        request = request.header(AUTHORIZATION, token.credentials()?);
    }
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, value));
    let request = request.body(Bytes::new()).map_err(|error| format!("cannot build the request: {error}"))?;
    let response = client.send(request).await.map_err(|error| chain(&error))?;
    let etag = response.headers().get(ETAG).and_then(|etag| entity_tag(etag.as_bytes()));
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED => return Ok(Reply::Unchanged),
        StatusCode::NO_CONTENT => return Ok(Reply::Nothing),
        StatusCode::UNAUTHORIZED => {
            let status = response.status();
            return Err(format!("status {status}: check bundle_token_file or controller_certificate"));
        }
        status => return Err(other_status(status, response).await),
    }
    match response.into_body().whole().await {
        Ok(content) => Ok(Reply::Document { content: content.into(), etag }),
        Err(error) if matches!(error.why, Failure::TooLong(_)) => Ok(Reply::TooLong { etag }),
        Err(error) => Err(chain(&error)),
    }
}

/// Describes a response that is not a valid reply, including the reason given by a controller, if
/// any.
async fn other_status(status: StatusCode, response: Response<Content>) -> String {
    match response.headers().get(LOCATION) {
        Some(to) if status.is_redirection() => {
            let to = cut(String::from_utf8_lossy(to.as_bytes()).into_owned(), REASON_BYTES_MAX);
            format!("status {status}, redirect to {to:?} not followed")
        }
        _ => {
            let content = response.into_body().whole().await.unwrap_or_default();
            let content: Value = serde_json::from_slice(&content).unwrap_or_default();
            let reason = content["error"].as_str().map(|reason| cut(reason.to_owned(), REASON_BYTES_MAX));
            reason.map_or_else(|| format!("status {status}"), |reason| format!("status {status}: {reason:?}"))
        }
    }
}

/// Returns the entity tag if it is valid and short enough to be sent back in a list.
fn entity_tag(value: &[u8]) -> Option<String> {
    let is_fit = value.len() <= ETAG_BYTES_MAX && value.is_ascii() && EntityTag::parse(value).is_some();
    is_fit.then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;
