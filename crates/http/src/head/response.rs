//! Response heads (RFC 9112 §4), as a backend sends them.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::error::from_field_section;
use super::{FIELDS_CAPACITY, HeadError, Limits};
use crate::status::unusual_reason;
use crate::{Fields, Version};

/// A response without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 599.
    pub status: u16,
    /// The version of the status line.
    pub version: Version,
    /// The reason phrase, if it is not that of the status; see [`unusual_reason`].
    pub reason: Option<Arc<str>>,
    /// The field lines.
    pub fields: Fields,
}

impl Default for ResponseHead {
    /// `200` without fields.
    fn default() -> ResponseHead {
        ResponseHead { status: 200, version: Version::Http11, reason: None, fields: Fields::new() }
    }
}

/// Parses one response head at the start of `buf` into `into`, whose allocations are used again.
///
/// `Ok(None)`: more bytes are needed. `Ok(Some(n))`: the head took `n` bytes. Informational responses are
/// heads like any other: after one, parse again. On an error and on `None`, `into` holds nothing of use.
pub fn parse_response(
    buf: &[u8],
    into: &mut ResponseHead,
    limits: &Limits,
) -> Result<Option<usize>, HeadError> {
    // An empty line here is left over from content that was longer than its framing said.
    if matches!(buf, [b'\r' | b'\n', ..]) {
        return Err(HeadError::EmptyLines);
    }
    let head = &buf[..buf.len().min(limits.head_bytes_max)];
    let mut spans = [const { MaybeUninit::uninit() }; FIELDS_CAPACITY];
    let spans = &mut spans[..limits.fields_max.min(FIELDS_CAPACITY)];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, head, spans)
        .map_err(from_field_section)?;
    match parsed {
        httparse::Status::Complete(head_bytes) => {
            take(&response, head_bytes, into)?;
            Ok(Some(head_bytes))
        }
        httparse::Status::Partial if head.len() >= limits.head_bytes_max => Err(HeadError::TooLarge),
        httparse::Status::Partial => Ok(None),
    }
}

fn take(
    response: &httparse::Response<'_, '_>,
    head_bytes: usize,
    into: &mut ResponseHead,
) -> Result<(), HeadError> {
    into.status = response.code.filter(|code| (100..600).contains(code)).ok_or(HeadError::Status)?;
    into.version = if response.version == Some(0) { Version::Http10 } else { Version::Http11 };
    // The parser gives an empty one where it is not ASCII.
    into.reason = unusual_reason(into.status, response.reason.unwrap_or_default());
    into.fields.clear();
    into.fields.reserve(response.headers.len(), head_bytes);
    for line in response.headers.iter() {
        into.fields.push_line(line.name.as_bytes(), line.value);
    }
    Ok(())
}
