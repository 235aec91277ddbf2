//! A capture: netlink messages one after the other, as [`Diag::dump_with_messages`](super::Diag::dump_with_messages)
//! gives them and `ss -D FILE` writes them. Pure.

use std::fmt;

use super::dump::SOCK_DIAG_BY_FAMILY;
use super::netlink::{Body, Frames, aligned, done};
use super::{Malformed, Socket};

/// A capture that goes on with something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCapture {
    /// Where the message begins that is none, in bytes from the start.
    pub offset_bytes: usize,
    /// Why it is none.
    pub cause: Malformed,
}

impl fmt::Display for BadCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no capture of sockets at byte {}", self.offset_bytes)
    }
}

impl std::error::Error for BadCapture {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Calls `each` with every socket of a capture, in its order. Messages that are about something else, such as the ends of
/// dumps, are passed over.
///
/// # Errors
/// Where it is cut short or no capture; what was told before is right.
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

/// A message as a capture has it: with what aligns the next one.
pub fn append_to_capture(message: &[u8], capture: &mut Vec<u8>) {
    capture.extend(message);
    capture.resize(aligned(capture.len()), 0);
}

/// Ends a capture as the kernel ends a dump, which `ss` asks of one that it is to read.
pub fn end_capture(capture: &mut Vec<u8>) {
    capture.extend(done());
}
