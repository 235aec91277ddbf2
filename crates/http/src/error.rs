//! The crate's error type, which states the invalid part of a message.

use std::fmt;

use crate::chunked::ChunkedError;
use crate::framing::FramingError;
use crate::head::HeadError;

/// Reason for rejecting a message. The connection must be closed, because the start of the next
/// message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The start line or a field line is invalid.
    Head(HeadError),
    /// The length of the content cannot be determined.
    Framing(FramingError),
    /// The chunked coding of the content is invalid.
    Chunked(ChunkedError),
}

impl Error {
    /// Returns the response status for an invalid request. Does not apply to an invalid backend
    /// response, for which the status is always 502.
    pub fn status(&self) -> u16 {
        match self {
            Error::Head(error) => error.status(),
            Error::Framing(error) => error.status(),
            Error::Chunked(error) => error.status(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Head(_) => "invalid message head",
            Error::Framing(_) => "invalid message framing",
            Error::Chunked(_) => "invalid chunked content",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Head(error) => Some(error),
            Error::Framing(error) => Some(error),
            Error::Chunked(error) => Some(error),
        }
    }
}

impl From<HeadError> for Error {
    fn from(error: HeadError) -> Error {
        Error::Head(error)
    }
}

impl From<FramingError> for Error {
    fn from(error: FramingError) -> Error {
        Error::Framing(error)
    }
}

impl From<ChunkedError> for Error {
    fn from(error: ChunkedError) -> Error {
        Error::Chunked(error)
    }
}
