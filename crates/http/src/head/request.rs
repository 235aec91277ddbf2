//! Request heads (RFC 9112 §3).

use std::mem::MaybeUninit;

use super::error::from_field_section;
use super::{EMPTY_LINES_MAX, FIELDS_CAPACITY, HeadError, Limits, has_bare_line_feed};
use crate::{Authority, Fields, Method, Target, Version};

/// The longest method; the registry's longest, `UPDATEREDIRECTREF`, has 17 letters.
pub const METHOD_BYTES_MAX: usize = 24;

/// A request without its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method's text where it is [`Method::Other`], else empty; see [`method_str`](Self::method_str).
    pub method_text: String,
    /// Path and query.
    pub target: Target,
    /// Whom the request is for: the authority of an absolute-form target, else `Host`; empty in HTTP/1.0
    /// without either.
    pub authority: Authority,
    /// The version of the start line.
    pub version: Version,
    /// The field lines. One `Host` at most; with a target in absolute-form it has been replaced by the
    /// target's authority (RFC 9112 §3.2.2).
    pub fields: Fields,
}

impl RequestHead {
    /// The method as it stands in the request line.
    pub fn method_str(&self) -> &str {
        match self.method {
            Method::Other => &self.method_text,
            method => method.as_str(),
        }
    }
}

/// Parses one request head at the start of `buf` into `into`, whose allocations are used again.
///
/// `Ok(None)`: more bytes are needed. `Ok(Some(n))`: the head took `n` bytes, empty lines before it included.
/// On an error and on `None`, `into` holds nothing of use.
pub fn parse_request(
    buf: &[u8],
    into: &mut RequestHead,
    limits: &Limits,
) -> Result<Option<usize>, HeadError> {
    let Some(skipped) = skip_empty_lines(buf)? else { return Ok(None) };
    let head = &buf[skipped..];
    let head = &head[..head.len().min(limits.head_bytes_max)];

    let mut spans = [const { MaybeUninit::uninit() }; FIELDS_CAPACITY];
    let mut request = httparse::Request::new(&mut []);
    let spans = &mut spans[..limits.fields_max.min(FIELDS_CAPACITY)];
    match request.parse_with_uninit_headers(head, spans) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            take(&head[..head_bytes], &request, into, limits)?;
            Ok(Some(skipped + head_bytes))
        }
        Ok(httparse::Status::Partial) => check_partial(head, &request, limits).map(|()| None),
        Err(error) => Err(explain(error, head, &request)),
    }
}

/// The bytes of empty lines at the start of `buf`; `None` if they may go on.
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

/// Moves what was parsed into `into`, checking what the parser leaves open.
fn take(
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
    take_fields(request.headers, head.len(), into)?;
    take_target(target, into)
}

/// Copies the field lines and reads `Host`.
fn take_fields(
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

/// Takes the target in origin-form or absolute-form (RFC 9112 §3.2); refuses the two others.
fn take_target(target: &str, into: &mut RequestHead) -> Result<(), HeadError> {
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

/// Authority and the rest of `http://authority…`.
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

/// Whether a head that has not ended yet is already past a limit.
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

/// Says which part of the head the parser stopped at.
fn explain(error: httparse::Error, head: &[u8], request: &httparse::Request<'_, '_>) -> HeadError {
    match (error, request.method, request.path) {
        (httparse::Error::Version, Some(method), Some(path)) => {
            let version = head.get(method.len() + path.len() + 2..).unwrap_or_default();
            explain_version(version)
        }
        _ => from_field_section(error),
    }
}

/// A version of the right form is one we do not have (505); anything else is no request line (400).
fn explain_version(version: &[u8]) -> HeadError {
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::Version
        }
        _ => HeadError::StartLine,
    }
}
