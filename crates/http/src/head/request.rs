//! Request heads (RFC 9112 §3).

use std::mem::MaybeUninit;

use super::error::from_field_section;
use super::{EMPTY_LINES_MAX, FIELDS_CAPACITY, HeadError, Limits, has_bare_line_feed, lowered};
use crate::{Authority, Fields, Method, Target, Version};

/// Maximum method length in bytes. The longest registered method, `UPDATEREDIRECTREF`, has 17
/// letters.
pub const METHOD_BYTES_MAX: usize = 24;

/// A request without its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method name if the method is [`Method::Other`], otherwise empty; see
    /// [`method_str`](Self::method_str).
    pub method_text: String,
    /// Path and query.
    pub target: Target,
    /// The requested authority, from an absolute-form target or otherwise from `Host`. Empty for an
    /// HTTP/1.0 request with neither.
    pub authority: Authority,
    /// The version in the request line.
    pub version: Version,
    /// The field lines, with at most one `Host`. The authority of an absolute-form target replaces
    /// the received `Host` (RFC 9112 §3.2.2).
    pub fields: Fields,
}

impl RequestHead {
    /// Returns the method as written in the request line.
    pub fn method_str(&self) -> &str {
        match self.method {
            Method::Other => &self.method_text,
            method => method.as_str(),
        }
    }
}

/// Parses the request head at the start of `buf` into `into`, reusing its allocations.
///
/// Returns `None` if more bytes are needed, otherwise the length of the head in bytes, including
/// any empty lines before it. After an error or `None`, the contents of `into` are unspecified.
pub fn parse_request(
    buf: &[u8],
    into: &mut RequestHead,
    limits: &Limits,
) -> Result<Option<usize>, HeadError> {
    let Some(skipped) = skip_empty_lines(buf)? else { return Ok(None) };
    let head = &buf[skipped..];
    let head = &head[..head.len().min(limits.head_bytes_max)];
    let head_bytes = parse_head(head, into, limits)?;
    Ok(head_bytes.map(|head_bytes| skipped + head_bytes))
}

fn parse_head(head: &[u8], into: &mut RequestHead, limits: &Limits) -> Result<Option<usize>, HeadError> {
    let mut spans = [const { MaybeUninit::uninit() }; FIELDS_CAPACITY];
    let mut request = httparse::Request::new(&mut []);
    let spans = &mut spans[..limits.fields_max.min(FIELDS_CAPACITY)];
    match request.parse_with_uninit_headers(head, spans) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            copy_head(&head[..head_bytes], &request, into, limits)?;
            Ok(Some(head_bytes))
        }
        Ok(httparse::Status::Partial) => check_partial(head, &request, limits).map(|()| None),
        Err(httparse::Error::Version) => match version_at(&request).and_then(|at| lowered(head, at)) {
            Some(lowered) => parse_head(&lowered, into, limits),
            None => Err(explain_version(head, &request)),
        },
        Err(error) => Err(from_field_section(error)),
    }
}

/// Returns the length in bytes of the empty lines at the start of `buf`; `None` if more may follow.
fn skip_empty_lines(buf: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut skipped = 0;
    for _ in 0..=EMPTY_LINES_MAX {
        match &buf[skipped..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => skipped += 2,
            [b'\r' | b'\n', ..] => return Err(HeadError::StartLine),
            _ => return Ok(Some(skipped)),
        }
    }
    Err(HeadError::EmptyLines)
}

/// Copies the parsed head into `into` and performs the checks that the parser omits.
fn copy_head(
    head: &[u8],
    request: &httparse::Request<'_, '_>,
    into: &mut RequestHead,
    limits: &Limits,
) -> Result<(), HeadError> {
    if has_bare_line_feed(head) {
        return Err(HeadError::BareLineFeed);
    }
    let method = request.method.unwrap_or_default();
    let target = request.path.unwrap_or_default();
    check_method(method)?;
    check_target_length(target, limits)?;
    into.method = Method::parse(method.as_bytes());
    into.method_text.clear();
    if into.method == Method::Other {
        into.method_text.push_str(method);
    }
    into.version = if request.version == Some(0) { Version::Http10 } else { Version::Http11 };
    copy_fields(request.headers, head.len(), into)?;
    parse_target(target, into)
}

/// Copies the field lines and parses `Host`.
fn copy_fields(
    lines: &[httparse::Header<'_>],
    bytes: usize,
    into: &mut RequestHead,
) -> Result<(), HeadError> {
    into.fields.clear();
    into.fields.reserve(lines.len(), bytes);
    into.authority.clear();
    let mut has_host = false;
    for line in lines {
        into.fields.push_line(line.name.as_bytes(), line.value);
        if line.name.eq_ignore_ascii_case("host") {
            if has_host {
                return Err(HeadError::HostRepeated);
            }
            has_host = true;
            into.authority.set(line.value).map_err(HeadError::Host)?;
        }
    }
    if !has_host && into.version == Version::Http11 {
        return Err(HeadError::HostMissing);
    }
    Ok(())
}

/// Parses a target in origin-form or absolute-form (RFC 9112 §3.2); rejects the other two forms.
fn parse_target(target: &str, into: &mut RequestHead) -> Result<(), HeadError> {
    if target == "*" {
        return Err(HeadError::Asterisk);
    }
    if target.starts_with('/') {
        return into.target.set(target).map_err(HeadError::Target);
    }
    let (authority, rest) = split_absolute(target).ok_or(HeadError::StartLine)?;
    into.authority.set(authority.as_bytes()).map_err(HeadError::Host)?;
    into.fields.set("Host", into.authority.as_str());
    if rest.starts_with('/') { into.target.set(rest) } else { into.target.set(&format!("/{rest}")) }
        .map_err(HeadError::Target)
}

/// Splits `http://authority…` into the authority and the rest.
fn split_absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

fn check_method(method: &str) -> Result<(), HeadError> {
    match method {
        "CONNECT" => Err(HeadError::Connect),
        _ if method.len() > METHOD_BYTES_MAX => Err(HeadError::MethodTooLong),
        _ => Ok(()),
    }
}

fn check_target_length(target: &str, limits: &Limits) -> Result<(), HeadError> {
    if target.len() > limits.target_bytes_max { Err(HeadError::TargetTooLong) } else { Ok(()) }
}

/// Checks whether an incomplete head already exceeds a limit.
fn check_partial(head: &[u8], request: &httparse::Request<'_, '_>, limits: &Limits) -> Result<(), HeadError> {
    match (request.method, request.path) {
        (None, _) if head.len() > METHOD_BYTES_MAX => return Err(HeadError::MethodTooLong),
        (None, _) => {}
        (Some(method), None) => {
            check_method(method)?;
            if head.len() - method.len() - 1 > limits.target_bytes_max {
                return Err(HeadError::TargetTooLong);
            }
        }
        (Some(_), Some(target)) => check_target_length(target, limits)?,
    }
    if head.len() >= limits.head_bytes_max { Err(HeadError::TooLarge) } else { Ok(()) }
}

/// Returns the offset of the version; `None` if the method or the target is not parsed yet.
fn version_at(request: &httparse::Request<'_, '_>) -> Option<usize> {
    Some(request.method?.len() + request.path?.len() + 2)
}

/// Returns the error for a rejected version: a well-formed version is unsupported (505), and
/// anything else is not a request line (400).
fn explain_version(head: &[u8], request: &httparse::Request<'_, '_>) -> HeadError {
    match version_at(request).and_then(|at| head.get(at..)).unwrap_or_default() {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::Version
        }
        _ => HeadError::StartLine,
    }
}
