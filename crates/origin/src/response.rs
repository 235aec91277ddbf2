//! Response construction: common fields, conditional requests, ranges and HEAD.
//!
//! Conditions (RFC 9110 §13) and ranges (§14) are evaluated by `thalweg_http`. Every response
//! allows cross-origin reads (CORS, Fetch standard), because players run on pages from other
//! origins.

use std::ops::Range;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use thalweg_http::validators::{Outcome, Preconditions, range_applies};
use thalweg_http::{date, range};

use crate::body::{self, Body};

/// Response fields exposed to page scripts in addition to the CORS-safelisted ones.
const EXPOSED: &str = "Content-Length, Content-Range, Date, ETag, Age, Cache-Status, Server-Timing";
/// How long a browser may cache a preflight result, in seconds.
const PREFLIGHT_MAX_AGE_S: &str = "86400";

/// `Cache-Control` of responses that must not be stored: errors and `/time`.
pub(crate) const NO_STORE: &str = "no-store";

/// Metadata of a complete representation.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) content_type: &'static str,
    pub(crate) cache_control: String,
    /// Strong entity tag, which changes whenever the content does.
    pub(crate) etag: Option<String>,
    /// Last-Modified, in seconds since 1970.
    pub(crate) modified_s: Option<u64>,
    /// Size in bytes, once the content is complete.
    pub(crate) size: Option<u64>,
}

/// The parts of a request that a response depends on.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
    /// Query of the target, which selects tracks in manifests.
    pub(crate) query: Option<&'a str>,
}

/// The part of a representation that a response carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// All bytes.
    Whole,
    /// One byte range.
    Range(Range<u64>),
    /// No bytes: the response has no content.
    Nothing,
}

/// Builds the response head for a GET or HEAD request for `resource`; also returns which part of
/// the content to send.
pub(crate) fn head(request: &RequestHead<'_>, resource: &Resource) -> (hyper::http::response::Builder, Part) {
    let outcome = preconditions(request, resource);
    let mut builder = describe(resource);
    match outcome {
        Outcome::NotModified => return (builder.status(StatusCode::NOT_MODIFIED), Part::Nothing),
        Outcome::Failed => return (builder.status(StatusCode::PRECONDITION_FAILED), Part::Nothing),
        Outcome::Proceed => {}
    }
    builder = builder.header(header::CONTENT_TYPE, resource.content_type);
    let Some(size) = resource.size else {
        let part = if *request.method == Method::HEAD { Part::Nothing } else { Part::Whole };
        return (builder, part);
    };
    builder = builder.header(header::ACCEPT_RANGES, "bytes");
    let (builder, part) = match wanted_range(request, resource) {
        None => (builder.header(header::CONTENT_LENGTH, size), Part::Whole),
        Some(wanted) => match range::resolve(wanted, size) {
            Some(wanted) => {
                let builder = builder
                    .status(StatusCode::PARTIAL_CONTENT)
                    .header(header::CONTENT_RANGE, range::content_range(&wanted, Some(size)))
                    .header(header::CONTENT_LENGTH, wanted.end - wanted.start);
                (builder, Part::Range(wanted))
            }
            None => {
                let unsatisfied = range::unsatisfied_range(size);
                let builder = builder.status(StatusCode::RANGE_NOT_SATISFIABLE);
                (builder.header(header::CONTENT_RANGE, unsatisfied), Part::Nothing)
            }
        },
    };
    let part = if *request.method == Method::HEAD { Part::Nothing } else { part };
    (builder, part)
}

/// Combines a response head with its content.
pub(crate) fn finish(builder: hyper::http::response::Builder, content: Body) -> Response<Body> {
    builder.body(content).expect("response fields are valid")
}

/// Responds to a GET or HEAD request with a short representation held in memory.
pub(crate) fn bytes(
    request: &RequestHead<'_>,
    resource: &Resource,
    content: &bytes::Bytes,
) -> Response<Body> {
    let (builder, part) = head(request, resource);
    let content = match part {
        Part::Whole => body::full(content.clone()),
        Part::Range(range) => {
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            body::full(content.slice(at(range.start)..at(range.end)))
        }
        Part::Nothing => body::empty(),
    };
    finish(builder, content)
}

/// Responds with plain text that must not be stored.
pub(crate) fn text(status: StatusCode, message: impl std::fmt::Display) -> Response<Body> {
    cacheable_text(status, message, NO_STORE)
}

/// Responds with plain text and the given `Cache-Control`.
pub(crate) fn cacheable_text(
    status: StatusCode,
    message: impl std::fmt::Display,
    cache_control: &'static str,
) -> Response<Body> {
    let content = format!("{message}\n");
    let builder = open_to_all(Response::builder().status(status))
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::CACHE_CONTROL, cache_control);
    finish(builder, body::full(content))
}

/// Responds with 405 on a path that supports only the methods in `allow`.
pub(crate) fn method_not_allowed(allow: &'static str) -> Response<Body> {
    let message = format_args!("method not allowed: this path supports {allow}");
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, message);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// Responds to an OPTIONS request, such as a CORS preflight.
pub(crate) fn preflight(allow: &'static str) -> Response<Body> {
    let builder = open_to_all(Response::builder().status(StatusCode::NO_CONTENT))
        .header(header::ALLOW, allow)
        .header(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS")
        .header(header::ACCESS_CONTROL_ALLOW_HEADERS, "*, Range")
        .header(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_S);
    finish(builder, body::empty())
}

/// Returns the entity tag of content held in memory.
pub(crate) fn etag_of(content: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    format!("\"{:016x}-{:x}\"", hasher.finish(), content.len())
}

fn describe(resource: &Resource) -> hyper::http::response::Builder {
    let builder = open_to_all(Response::builder());
    let mut builder = builder.header(header::CACHE_CONTROL, resource.cache_control.as_str());
    if let Some(etag) = &resource.etag {
        builder = builder.header(header::ETAG, etag.as_str());
    }
    if let Some(modified) = resource.modified_s {
        builder = builder.header(header::LAST_MODIFIED, &date::format(modified)[..]);
    }
    builder
}

fn open_to_all(builder: hyper::http::response::Builder) -> hyper::http::response::Builder {
    builder
        .header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
        .header(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED)
        .header(HeaderName::from_static("timing-allow-origin"), "*")
}

fn preconditions(request: &RequestHead<'_>, resource: &Resource) -> Outcome {
    let joined = |name: HeaderName| {
        let lines: Vec<&[u8]> = request.fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        (!lines.is_empty()).then(|| lines.join(&b", "[..]))
    };
    let if_match = joined(header::IF_MATCH);
    let if_none_match = joined(header::IF_NONE_MATCH);
    let one = |name: HeaderName| request.fields.get(name).map(HeaderValue::as_bytes);
    let conditions = Preconditions::from_values(
        if_match.as_deref(),
        if_none_match.as_deref(),
        one(header::IF_MODIFIED_SINCE),
        one(header::IF_UNMODIFIED_SINCE),
    );
    let method = thalweg_http::Method::parse(request.method.as_str().as_bytes());
    conditions.evaluate(resource.etag.as_deref().map(str::as_bytes), resource.modified_s, method)
}

/// Returns the requested range, if the request names exactly one range and its If-Range condition
/// holds.
fn wanted_range(request: &RequestHead<'_>, resource: &Resource) -> Option<range::ByteRange> {
    if *request.method != Method::GET {
        return None;
    }
    let value = request.fields.get(header::RANGE)?;
    let if_range = request.fields.get(header::IF_RANGE).map(HeaderValue::as_bytes);
    let etag = resource.etag.as_deref().map(str::as_bytes);
    if !range_applies(if_range, etag, resource.modified_s, None) {
        return None;
    }
    range::parse(value.as_bytes())?.single()
}
