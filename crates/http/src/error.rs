//! The crate's error: what was wrong with a message, by the part that found it.

use std::fmt;

use crate::chunked::ChunkedError;
use crate::framing::FramingError;
use crate::head::HeadError;

/// Why a message is refused. After any of them the connection's next byte has no known meaning: close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The start line or a field line.
    Head(HeadError),
    /// Where the content ends.
    Framing(FramingError),
    /// The chunked coding of the content.
    Chunked(ChunkedError),
}

impl Error {
    /// The status that tells a client of it. For a message from a backend the answer is 502 in every case.
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
