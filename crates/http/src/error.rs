//! The crate's error: which part of a message is invalid.

use std::fmt;

use crate::chunked::ChunkedError;
use crate::framing::FramingError;
use crate::head::HeadError;

/// Reason for refusing a message. The start of the next message is then unknown, so the connection
/// must be closed.
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
    /// Returns the status of the response to an invalid request. For an invalid backend response,
    /// it is always 502.
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
