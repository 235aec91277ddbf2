//! Failures of a fill: why it ended before its content was complete.

use std::fmt;

use crate::arena::NoRoom;

/// Reason why a fill ended before its content was complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The writer was dropped without completing the fill.
    Abandoned,
    /// The backend failed. The message is logged.
    Backend(String),
    /// The backend responded with this status, which is not a valid response to the request.
    Status(u16),
    /// The backend exceeded a time limit. The message is logged.
    BackendTimeout(String),
    /// Too many fetches are in progress. The message is logged.
    Busy(String),
    /// There was no room to store more content.
    NoRoom,
    /// The fill was not needed, because the stored response was validated.
    Superseded,
    /// The content is passed only to the reader that started the fill.
    NotShared,
    /// The backend's response is not a slice of the stored one: it is of a different
    /// representation, or has a different range.
    NotSliced(&'static str),
    /// The operator's policy aborted the fetch for this reason.
    Policy(&'static str),
    /// The content was stored, but can no longer be read from disk.
    Unreadable,
}

impl Failure {
    /// Returns the backend's status, if that caused the failure.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned => f.write_str("fill was abandoned"),
            Self::Backend(reason) | Self::BackendTimeout(reason) | Self::Busy(reason) => f.write_str(reason),
            Self::Status(status) => write!(f, "backend responded with status {status}"),
            Self::NoRoom => NoRoom.fmt(f),
            Self::Superseded => f.write_str("stored response was validated instead"),
            Self::NotSliced(reason) => write!(f, "not a slice of the response: {reason}"),
            Self::Policy(reason) => f.write_str(reason),
            Self::NotShared => f.write_str("content is passed to another client only"),
            Self::Unreadable => f.write_str("cannot read stored content from disk"),
        }
    }
}

impl std::error::Error for Failure {}
