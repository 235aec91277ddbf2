//! Where a message's content ends (RFC 9112 §6.3), and whether the connection outlives it (§9.3).
//!
//! Whatever a front and a backend could read differently is an error here and never guessed at (§11.2).

use std::fmt;

use crate::number::{self, Decimal};
use crate::token::trim_ows;
use crate::{Fields, Method, RequestHead, ResponseHead, Version, status};

/// How the content of a message is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no content.
    None,
    /// So many bytes. A `Content-Length: 0` is `Length(0)`.
    Length(u64),
    /// The chunked coding; see [`chunked`](crate::chunked).
    Chunked,
    /// Responses only: all bytes until the connection closes. A close may hide a truncation.
    UntilClose,
}

/// Why the end of a message cannot be known. Answer, then close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// `Transfer-Encoding` beside `Content-Length`.
    LengthAndCoding,
    /// `Transfer-Encoding` in HTTP/1.0 (RFC 9112 §6.1).
    CodingInHttp10,
    /// A coding that this crate does not have, before a final chunked.
    UnknownCoding,
    /// `Transfer-Encoding` that does not end in one plain `chunked`.
    NotChunked,
    /// `Content-Length` that is not `1*DIGIT`, or does not fit into 64 bits.
    InvalidLength,
    /// Several `Content-Length` that differ.
    DifferingLengths,
}

impl FramingError {
    /// The status to answer a request with. For a response from a backend the answer is 502 in every case.
    pub fn status(&self) -> u16 {
        if *self == FramingError::UnknownCoding { 501 } else { 400 }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FramingError::LengthAndCoding => "both content-length and transfer-encoding are given",
            FramingError::CodingInHttp10 => "transfer-encoding in http/1.0",
            FramingError::UnknownCoding => "transfer coding is not implemented",
            FramingError::NotChunked => "transfer-encoding does not end in one chunked",
            FramingError::InvalidLength => "content-length is not a number",
            FramingError::DifferingLengths => "content-length is given with differing values",
        })
    }
}

impl std::error::Error for FramingError {}

/// The framing of a request's content.
///
/// Equal values in a repeated `Content-Length` count as one (RFC 9110 §8.6): a request that is forwarded gets
/// a single one written from the result, never the received lines.
pub fn request_framing(head: &RequestHead) -> Result<Framing, FramingError> {
    let framing = declared(head.version, &head.fields)?;
    Ok(framing.unwrap_or(Framing::None))
}

/// The framing of the content of a response to a request with `request_method`.
pub fn response_framing(request_method: Method, head: &ResponseHead) -> Result<Framing, FramingError> {
    if request_method == Method::Head || status::is_bodyless(head.status) {
        return Ok(Framing::None);
    }
    let framing = declared(head.version, &head.fields)?;
    Ok(framing.unwrap_or(Framing::UntilClose))
}

/// Whether the connection may carry another message after this one (RFC 9112 §9.3).
pub fn keep_alive(version: Version, fields: &Fields) -> bool {
    let (mut close, mut keep) = (false, false);
    for option in fields.list("connection") {
        close |= option.eq_ignore_ascii_case(b"close");
        keep |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    !close && (version == Version::Http11 || keep)
}

/// What the fields say; `None` if they say nothing.
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

/// Lets through one line with `chunked` alone, in any case. Not even the empty list members that RFC 9110
/// §5.6.1 allows pass: readers differ over them, and no sender needs them.
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

/// The one value of `Content-Length`; `None` where there is no such line.
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
