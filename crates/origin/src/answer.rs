//! Answers: fields that all have, conditional requests, ranges, HEAD.
//!
//! RFC 9110 §13 (conditions) and §14 (ranges) by way of `thalweg_http`; the fetch standard's CORS: everything may be
//! read by any page, since players run on pages of other hosts.

use std::ops::Range;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use thalweg_http::validators::{Outcome, Preconditions, range_applies};
use thalweg_http::{date, range};

use crate::body::{self, Body};

/// Fields that a page's script may read beside the safelisted ones.
const EXPOSED: &str = "Content-Length, Content-Range, Date, ETag, Age, Cache-Status, Server-Timing";
/// How long a browser may remember that a request with other fields is allowed.
const PREFLIGHT_MAX_AGE_S: &str = "86400";

/// For what must not be kept: errors, and the time.
pub(crate) const NO_STORE: &str = "no-store";

/// What describes a representation, whole.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) content_type: &'static str,
    pub(crate) cache_control: String,
    /// Strong: changes whenever a byte does.
    pub(crate) etag: Option<String>,
    /// Seconds since 1970.
    pub(crate) modified_s: Option<u64>,
    /// Bytes, once all are there.
    pub(crate) size: Option<u64>,
}

/// What of a request an answer depends on.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
}

/// What an answer has content of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// Some bytes.
    Range(Range<u64>),
    /// None: the answer has no content.
    Nothing,
}

/// The head of the answer to a GET or HEAD of `resource`, and what content goes with it.
pub(crate) fn head(asked: &Asked<'_>, resource: &Resource) -> (hyper::http::response::Builder, Part) {
    let outcome = preconditions(asked, resource);
    let mut builder = describe(resource);
    match outcome {
        Outcome::NotModified => return (builder.status(StatusCode::NOT_MODIFIED), Part::Nothing),
        Outcome::Failed => return (builder.status(StatusCode::PRECONDITION_FAILED), Part::Nothing),
        Outcome::Proceed => {}
    }
    builder = builder.header(header::CONTENT_TYPE, resource.content_type);
    let Some(size) = resource.size else {
        let part = if *asked.method == Method::HEAD { Part::Nothing } else { Part::Whole };
        return (builder, part);
    };
    builder = builder.header(header::ACCEPT_RANGES, "bytes");
    let (builder, part) = match wanted_range(asked, resource) {
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
    let part = if *asked.method == Method::HEAD { Part::Nothing } else { part };
    (builder, part)
}

/// Ends a head with its content.
pub(crate) fn finish(builder: hyper::http::response::Builder, content: Body) -> Response<Body> {
    builder.body(content).expect("fields are made of checked text")
}

/// The answer to a GET or HEAD of something short.
pub(crate) fn bytes(asked: &Asked<'_>, resource: &Resource, content: &bytes::Bytes) -> Response<Body> {
    let (builder, part) = head(asked, resource);
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

/// An answer in words, that nobody keeps.
pub(crate) fn text(status: StatusCode, words: impl std::fmt::Display) -> Response<Body> {
    words_kept(status, words, NO_STORE)
}

/// An answer in words that may be kept as `cache_control` says.
pub(crate) fn words_kept(
    status: StatusCode,
    words: impl std::fmt::Display,
    cache_control: &'static str,
) -> Response<Body> {
    let content = format!("{words}\n");
    let builder = open_to_all(Response::builder().status(status))
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::CACHE_CONTROL, cache_control);
    finish(builder, body::full(content))
}

/// The answer to a method that a path does not have.
pub(crate) fn method_not_allowed(allow: &'static str) -> Response<Body> {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format_args!("this path has {allow}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    answer
}

/// The answer to OPTIONS, a browser's question before it sends a request with fields of its own.
pub(crate) fn preflight(allow: &'static str) -> Response<Body> {
    let builder = open_to_all(Response::builder().status(StatusCode::NO_CONTENT))
        .header(header::ALLOW, allow)
        .header(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS")
        .header(header::ACCESS_CONTROL_ALLOW_HEADERS, "*, Range")
        .header(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_S);
    finish(builder, body::empty())
}

/// Entity tag of short content.
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

fn preconditions(asked: &Asked<'_>, resource: &Resource) -> Outcome {
    let joined = |name: HeaderName| {
        let lines: Vec<&[u8]> = asked.fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        (!lines.is_empty()).then(|| lines.join(&b", "[..]))
    };
    let if_match = joined(header::IF_MATCH);
    let if_none_match = joined(header::IF_NONE_MATCH);
    let one = |name: HeaderName| asked.fields.get(name).map(HeaderValue::as_bytes);
    let conditions = Preconditions::from_values(
        if_match.as_deref(),
        if_none_match.as_deref(),
        one(header::IF_MODIFIED_SINCE),
        one(header::IF_UNMODIFIED_SINCE),
    );
    let method = thalweg_http::Method::parse(asked.method.as_str().as_bytes());
    conditions.evaluate(resource.etag.as_deref().map(str::as_bytes), resource.modified_s, method)
}

/// The range that is asked for, if it is one and the request is one that may have it.
fn wanted_range(asked: &Asked<'_>, resource: &Resource) -> Option<range::ByteRange> {
    if *asked.method != Method::GET {
        return None;
    }
    let value = asked.fields.get(header::RANGE)?;
    let if_range = asked.fields.get(header::IF_RANGE).map(HeaderValue::as_bytes);
    let etag = resource.etag.as_deref().map(str::as_bytes);
    if !range_applies(if_range, etag, resource.modified_s, None) {
        return None;
    }
    range::parse(value.as_bytes())?.single()
}
