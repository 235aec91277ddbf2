//! JSON responses and refusals, sent with `no-store` so that no cache stores them.

use std::fmt::Display;
use std::time::Duration;

use axum::body::to_bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};

/// Media type of JSON.
const JSON: &str = "application/json";
/// Maximum length of an error message in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// Creates a successful JSON response.
pub fn json(content: &Value) -> Response {
    with_status(StatusCode::OK, content)
}

fn with_status(status: StatusCode, content: &Value) -> Response {
    (status, [(CONTENT_TYPE, JSON), (CACHE_CONTROL, "no-store")], content.to_string()).into_response()
}

/// A rejected or failed request: the response status, and the error message for the client.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    reason: String,
    field: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// Creates a refusal with the given status.
    pub fn new(status: StatusCode, reason: impl Display) -> Self {
        Self { status, reason: reason.to_string(), field: None }
    }

    /// Adds a field to the response, replacing any field added earlier.
    pub fn with_field(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { field: Some((name, value)), ..self }
    }

    /// Creates a refusal with status 429: the client has reached a limit, and may try again after
    /// this time.
    pub fn busy(reason: impl Display, retry_after: Duration) -> Self {
        let retry_after_s = HeaderValue::from(retry_after.as_secs().max(1));
        Self::new(StatusCode::TOO_MANY_REQUESTS, reason).with_field(RETRY_AFTER, retry_after_s)
    }

    /// Creates a refusal with status 400: the request is invalid.
    pub fn bad_request(reason: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    /// Creates a refusal with status 404: the resource does not exist.
    pub fn not_found(reason: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }

    /// Creates a refusal with status 500: the server failed.
    pub fn internal(reason: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, reason)
    }

    /// Creates a refusal with status 503: a later request may succeed.
    pub fn unavailable(reason: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = with_status(self.status, &object!({ "error": self.reason }));
        response.headers_mut().extend(self.field);
        response
    }
}

/// Converts errors created by the router, such as a 404 or an invalid query, to the form of a
/// [`Refusal`]. Other fields remain, such as `Allow` in a 405 (RFC 9110 §15.5.6). HTML pages are
/// left unchanged.
pub(crate) async fn uniform(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_finished = kind.is_some_and(|kind| kind == JSON.as_bytes() || kind.starts_with(b"text/html"));
    if !(status.is_client_error() || status.is_server_error()) || is_finished {
        return response;
    }
    let (head, content) = response.into_parts();
    let text = to_bytes(content, REASON_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let reason = match text.trim() {
        "" => status.canonical_reason().unwrap_or("refused"),
        text => text,
    };
    let mut refusal = Refusal::new(status, reason).into_response();
    for (name, value) in &head.headers {
        if name != CONTENT_LENGTH {
            refusal.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    refusal
}
