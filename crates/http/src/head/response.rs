//! Response heads (RFC 9112 §4), as sent by a backend.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::error::from_field_section;
use super::{FIELDS_CAPACITY, HeadError, Limits, lowered};
use crate::status::unusual_reason;
use crate::{Fields, Version};

/// A response without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 599.
    pub status: u16,
    /// The version in the status line.
    pub version: Version,
    /// The reason phrase, if it differs from the registered one; see [`unusual_reason`].
    pub reason: Option<Arc<str>>,
    /// The field lines.
    pub fields: Fields,
}

impl Default for ResponseHead {
    /// Returns a head with status 200 and no fields.
    fn default() -> ResponseHead {
        ResponseHead { status: 200, version: Version::Http11, reason: None, fields: Fields::new() }
    }
}

/// Parses the response head at the start of `buf` into `into`, reusing its allocations.
///
/// Returns `None` if more bytes are needed, otherwise the length of the head in bytes. An
/// informational response has a head of its own: call again for the next one. After an error or
/// `None`, the contents of `into` are unspecified.
pub fn parse_response(
    buf: &[u8],
    into: &mut ResponseHead,
    limits: &Limits,
) -> Result<Option<usize>, HeadError> {
    // An empty line here means that the previous content was longer than its framing declared.
    if matches!(buf, [b'\r' | b'\n', ..]) {
        return Err(HeadError::EmptyLines);
    }
    parse_head(&buf[..buf.len().min(limits.head_bytes_max)], into, limits)
}

fn parse_head(head: &[u8], into: &mut ResponseHead, limits: &Limits) -> Result<Option<usize>, HeadError> {
    let mut spans = [const { MaybeUninit::uninit() }; FIELDS_CAPACITY];
    let spans = &mut spans[..limits.fields_max.min(FIELDS_CAPACITY)];
    let mut response = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, head, spans) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            copy_head(&response, head_bytes, into)?;
            Ok(Some(head_bytes))
        }
        Ok(httparse::Status::Partial) if head.len() >= limits.head_bytes_max => Err(HeadError::TooLarge),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::Version) => match lowered(head, 0) {
            Some(lowered) => parse_head(&lowered, into, limits),
            None => Err(HeadError::Version),
        },
        Err(error) => Err(from_field_section(error)),
    }
}

fn copy_head(
    response: &httparse::Response<'_, '_>,
    head_bytes: usize,
    into: &mut ResponseHead,
) -> Result<(), HeadError> {
    into.status = response.code.filter(|code| (100..600).contains(code)).ok_or(HeadError::Status)?;
    into.version = if response.version == Some(0) { Version::Http10 } else { Version::Http11 };
    // The parser returns an empty phrase if the phrase is not ASCII.
    into.reason = unusual_reason(into.status, response.reason.unwrap_or_default());
    into.fields.clear();
    into.fields.reserve(response.headers.len(), head_bytes);
    for line in response.headers.iter() {
        into.fields.push_line(line.name.as_bytes(), line.value);
    }
    Ok(())
}
