//! Captures: sequences of netlink messages, as reported by
//! [`Diag::dump_with_messages`](super::Diag::dump_with_messages) and as saved by `ss -D FILE`. This
//! module does no I/O.

use std::fmt;

use super::dump::SOCK_DIAG_BY_FAMILY;
use super::netlink::{Body, Frames, aligned, done};
use super::{Malformed, Socket};

/// A malformed message in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCapture {
    /// Offset of the malformed message, in bytes from the start of the capture.
    pub offset_bytes: usize,
    /// Why the message is malformed.
    pub cause: Malformed,
}

impl fmt::Display for BadCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message at byte {}", self.offset_bytes)
    }
}

impl std::error::Error for BadCapture {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Calls `each` with every socket in a capture, in order. Skips messages of other types, such as
/// the end-of-dump message.
///
/// # Errors
///
/// Returns an error if the capture is truncated or malformed. Sockets already passed to `each` are
/// valid.
pub fn decode_capture(bytes: &[u8], mut each: impl FnMut(&Socket)) -> Result<(), BadCapture> {
    let mut frames = Frames::new(bytes);
    loop {
        let offset_bytes = bytes.len() - frames.left_bytes();
        let bad = |cause| BadCapture { offset_bytes, cause };
        let Some(frame) = frames.next() else { return Ok(()) };
        if let Body::Message { kind: SOCK_DIAG_BY_FAMILY, payload } = frame.map_err(bad)?.body {
            each(&Socket::decode(payload).map_err(bad)?);
        }
    }
}

/// Appends a message to a capture, padded to netlink's alignment.
pub fn append_to_capture(message: &[u8], capture: &mut Vec<u8>) {
    capture.extend(message);
    capture.resize(aligned(capture.len()), 0);
}

/// Appends the message with which the kernel ends a dump. `ss` cannot read a capture without it.
pub fn end_capture(capture: &mut Vec<u8>) {
    capture.extend(done());
}
