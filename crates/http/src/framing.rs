//! Message framing: where the content ends (RFC 9112 §6.3) and whether the connection persists
//! (§9.3).
//!
//! Anything that a proxy and a backend could interpret differently is an error (§11.2).

use std::fmt;

use crate::number::{self, Decimal};
use crate::token::trim_ows;
use crate::{Fields, Method, RequestHead, ResponseHead, Version, status};

/// How a message's content is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no content.
    None,
    /// Content of this many bytes; `Content-Length: 0` is `Length(0)`.
    Length(u64),
    /// Content in the chunked coding; see [`chunked`](crate::chunked).
    Chunked,
    /// Content extends until the connection closes; responses only. Truncation cannot be detected.
    UntilClose,
}

/// Reason why a message's end cannot be determined. Respond, then close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// Both `Transfer-Encoding` and `Content-Length` are present.
    LengthAndCoding,
    /// `Transfer-Encoding` is present in HTTP/1.0 (RFC 9112 §6.1).
    CodingInHttp10,
    /// An unsupported coding precedes the final chunked coding.
    UnknownCoding,
    /// `Transfer-Encoding` does not end in exactly one `chunked`.
    NotChunked,
    /// `Content-Length` is not `1*DIGIT`, or does not fit into 64 bits.
    InvalidLength,
    /// `Content-Length` has several values that differ.
    DifferingLengths,
}

impl FramingError {
    /// Returns the response status for an invalid request. Does not apply to an invalid backend
    /// response, for which the status is always 502.
    pub fn status(&self) -> u16 {
        if *self == FramingError::UnknownCoding { 501 } else { 400 }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FramingError::LengthAndCoding => "both content-length and transfer-encoding are present",
            FramingError::CodingInHttp10 => "transfer-encoding is not allowed in HTTP/1.0",
            FramingError::UnknownCoding => "transfer coding is not implemented",
            FramingError::NotChunked => "transfer-encoding must end in exactly one chunked coding",
            FramingError::InvalidLength => "content-length must be a decimal number below 2^64",
            FramingError::DifferingLengths => "content-length values differ",
        })
    }
}

impl std::error::Error for FramingError {}

/// Returns the framing of a request's content.
///
/// A repeated `Content-Length` with equal values counts as one (RFC 9110 §8.6). When forwarding the
/// request, write `Content-Length` from the result; never copy the received lines.
pub fn request_framing(head: &RequestHead) -> Result<Framing, FramingError> {
    let framing = declared(head.version, &head.fields)?;
    Ok(framing.unwrap_or(Framing::None))
}

/// Returns the framing of a response's content, given the method of the request.
pub fn response_framing(request_method: Method, head: &ResponseHead) -> Result<Framing, FramingError> {
    if request_method == Method::Head || status::is_bodyless(head.status) {
        return Ok(Framing::None);
    }
    let framing = declared(head.version, &head.fields)?;
    Ok(framing.unwrap_or(Framing::UntilClose))
}

/// Returns whether the connection may carry another message after this one (RFC 9112 §9.3).
pub fn keep_alive(version: Version, fields: &Fields) -> bool {
    let (mut close, mut keep) = (false, false);
    for option in fields.list("connection") {
        close |= option.eq_ignore_ascii_case(b"close");
        keep |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    !close && (version == Version::Http11 || keep)
}

/// Returns the framing declared by the fields; `None` if they declare no length and no coding.
fn declared(version: Version, fields: &Fields) -> Result<Option<Framing>, FramingError> {
    let length = content_length(fields)?;
    if !fields.contains("transfer-encoding") {
        return Ok(length.map(Framing::Length));
    }
    if length.is_some() {
        return Err(FramingError::LengthAndCoding);
    }
    if version == Version::Http10 {
        return Err(FramingError::CodingInHttp10);
    }
    check_coding(fields)?;
    Ok(Some(Framing::Chunked))
}

/// Accepts only a single line that consists of `chunked`, in any letter case. Rejects even the
/// empty list members allowed by RFC 9110 §5.6.1, because parsers disagree about them and no sender
/// needs them.
fn check_coding(fields: &Fields) -> Result<(), FramingError> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let mut lines = fields.get_all("transfer-encoding");
    if lines.next().is_some_and(is_chunked) && lines.next().is_none() {
        return Ok(());
    }
    let codings = fields.list("transfer-encoding");
    let ends_chunked = codings.clone().last().is_some_and(is_chunked);
    let chunked = codings.clone().filter(|coding| is_chunked(coding)).count();
    if ends_chunked && chunked == 1 && codings.count() > 1 {
        Err(FramingError::UnknownCoding)
    } else {
        Err(FramingError::NotChunked)
    }
}

/// Returns the value of `Content-Length`; `None` if the field is absent.
pub fn content_length(fields: &Fields) -> Result<Option<u64>, FramingError> {
    let mut length = None;
    for line in fields.get_all("content-length") {
        for text in line.split(|byte| *byte == b',') {
            let Some(Decimal::Value(value)) = number::parse(trim_ows(text)) else {
                return Err(FramingError::InvalidLength);
            };
            if length.is_some_and(|length| length != value) {
                return Err(FramingError::DifferingLengths);
            }
            length = Some(value);
        }
    }
    Ok(length)
}
