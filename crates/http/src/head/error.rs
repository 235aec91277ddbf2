//! Message head errors and the response status for each.

use std::fmt;

use crate::authority::AuthorityError;
use crate::target::TargetError;

/// Reason for rejecting a head. The connection must be closed, because the start of the next
/// message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// A request follows more than [`EMPTY_LINES_MAX`](super::EMPTY_LINES_MAX) empty lines, or a
    /// response follows at least one.
    EmptyLines,
    /// The start line is malformed.
    StartLine,
    /// The method is longer than [`METHOD_BYTES_MAX`](super::METHOD_BYTES_MAX).
    MethodTooLong,
    /// The method is `CONNECT`.
    Connect,
    /// The target is `*`.
    Asterisk,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The target is invalid.
    Target(TargetError),
    /// The major version is not 1.
    Version,
    /// The status code is outside 100 to 599.
    Status,
    /// A line in a request ends in LF without CR.
    BareLineFeed,
    /// A field name is missing or invalid. Covers obs-fold and a space before the colon.
    FieldName,
    /// A field value contains a control character, including a bare CR.
    FieldValue,
    /// The head has more field lines than the limit.
    TooManyFields,
    /// The head is longer than the limit.
    TooLarge,
    /// An HTTP/1.1 request has no `Host`.
    HostMissing,
    /// A request has more than one `Host`.
    HostRepeated,
    /// `Host` or the target's authority is invalid.
    Host(AuthorityError),
}

impl HeadError {
    /// Returns the response status for an invalid request. Does not apply to an invalid backend
    /// response, for which the status is always 502.
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TargetTooLong => 414,
            HeadError::TooManyFields | HeadError::TooLarge => 431,
            // RFC 9112 §3: the method is longer than any implemented one.
            HeadError::MethodTooLong | HeadError::Asterisk => 501,
            // RFC 9110 §15.5.6: the method is known, but not allowed for any target here.
            HeadError::Connect => 405,
            HeadError::Version => 505,
            _ => 400,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeadError::EmptyLines => "too many empty lines before the start line",
            HeadError::StartLine => "malformed start line",
            HeadError::MethodTooLong => "method is too long",
            HeadError::Connect => "method CONNECT is not allowed",
            HeadError::Asterisk => "target * is not implemented",
            HeadError::TargetTooLong => "target is too long",
            HeadError::Target(error) => return error.fmt(f),
            HeadError::Version => "version is not HTTP/1",
            HeadError::Status => "status code must be from 100 to 599",
            HeadError::BareLineFeed => "line must end in CRLF",
            HeadError::FieldName => "malformed field line",
            HeadError::FieldValue => "field value contains a control character",
            HeadError::TooManyFields => "too many field lines",
            HeadError::TooLarge => "head is too large",
            HeadError::HostMissing => "host is missing",
            HeadError::HostRepeated => "more than one host field",
            HeadError::Host(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for HeadError {}

/// Maps a parser error to a head error. Callers handle [`httparse::Error::Version`] first if they
/// can retry with a lower version.
pub(super) fn from_field_section(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version => HeadError::Version,
        httparse::Error::Status | httparse::Error::Token | httparse::Error::NewLine => HeadError::StartLine,
    }
}
