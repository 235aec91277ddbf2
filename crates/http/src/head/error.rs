//! What can be wrong with a head, and the status that says so.

use std::fmt;

use crate::authority::AuthorityError;
use crate::target::TargetError;

/// Why a head is refused. The connection must be closed: where the next message starts is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// More empty lines before the start line than [`EMPTY_LINES_MAX`](super::EMPTY_LINES_MAX), or any before
    /// a response.
    EmptyLines,
    /// The start line is not one of HTTP.
    StartLine,
    /// The method is longer than any this server has.
    MethodTooLong,
    /// `CONNECT`, or a target in authority-form.
    Connect,
    /// A target `*`.
    Asterisk,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The target is not acceptable.
    Target(TargetError),
    /// A version other than 1.0 and 1.1.
    Version,
    /// A status code outside 100 to 599.
    Status,
    /// A line of a request that ends in LF alone.
    BareLineFeed,
    /// A field line without a valid name: obs-fold and space before the colon end here.
    FieldName,
    /// A control in a field value, bare CR among them.
    FieldValue,
    /// More field lines than the limit.
    TooManyFields,
    /// A head longer than the limit.
    TooLarge,
    /// HTTP/1.1 without `Host`.
    HostMissing,
    /// More than one `Host`.
    HostRepeated,
    /// `Host` or the target's authority is not acceptable.
    Host(AuthorityError),
}

impl HeadError {
    /// The status to answer a request with. For a response from a backend the answer is 502 in every case.
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TargetTooLong => 414,
            HeadError::TooManyFields | HeadError::TooLarge => 431,
            // RFC 9112 §3: a method longer than any implemented.
            HeadError::MethodTooLong | HeadError::Asterisk => 501,
            // RFC 9110 §15.5.6: known, and allowed for no target here.
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
            HeadError::Asterisk => "a target of * is not implemented",
            HeadError::TargetTooLong => "target is too long",
            HeadError::Target(error) => return error.fmt(f),
            HeadError::Version => "version is neither http/1.0 nor http/1.1",
            HeadError::Status => "status code is not between 100 and 599",
            HeadError::BareLineFeed => "line ends without a carriage return",
            HeadError::FieldName => "malformed field line",
            HeadError::FieldValue => "field value has a control character",
            HeadError::TooManyFields => "too many field lines",
            HeadError::TooLarge => "head is too large",
            HeadError::HostMissing => "host is missing",
            HeadError::HostRepeated => "host is given more than once",
            HeadError::Host(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for HeadError {}

/// Faults of a field section; those of a start line are told apart by who parses it.
pub(super) fn from_field_section(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version => HeadError::Version,
        httparse::Error::Status | httparse::Error::Token | httparse::Error::NewLine => HeadError::StartLine,
    }
}
