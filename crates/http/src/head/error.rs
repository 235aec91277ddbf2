//! Errors in a message head, and the status of the response to each.

use std::fmt;

use crate::authority::AuthorityError;
use crate::target::TargetError;

/// Reason for refusing a head. The connection must be closed: the start of the next message is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// More empty lines than [`EMPTY_LINES_MAX`](super::EMPTY_LINES_MAX) precede the start line, or
    /// any precede a response.
    EmptyLines,
    /// The start line is not an HTTP start line.
    StartLine,
    /// The method is longer than any this server supports.
    MethodTooLong,
    /// `CONNECT`, or a target in authority-form.
    Connect,
    /// The target `*`.
    Asterisk,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The target is invalid.
    Target(TargetError),
    /// The major version is not 1.
    Version,
    /// The status code is outside 100 to 599.
    Status,
    /// A line of a request ends in LF alone.
    BareLineFeed,
    /// A field line has no valid name; includes obs-fold and space before the colon.
    FieldName,
    /// A field value contains a control character, including a bare CR.
    FieldValue,
    /// More field lines than the limit.
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
    /// Returns the status of the response to an invalid request. For an invalid backend response,
    /// it is always 502.
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TargetTooLong => 414,
            HeadError::TooManyFields | HeadError::TooLarge => 431,
            // RFC 9112 §3: the method is longer than any implemented.
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
            HeadError::Connect => "connect is not allowed",
            HeadError::Asterisk => "target * is not implemented",
            HeadError::TargetTooLong => "target is too long",
            HeadError::Target(error) => return error.fmt(f),
            HeadError::Version => "version is not http/1",
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

/// Maps errors in a field section; the parser of a start line maps its own.
pub(super) fn from_field_section(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version => HeadError::Version,
        httparse::Error::Status | httparse::Error::Token | httparse::Error::NewLine => HeadError::StartLine,
    }
}
