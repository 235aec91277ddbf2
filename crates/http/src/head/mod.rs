//! Message heads: start line and field section (RFC 9112 §2 to §5).
//!
//! Parsing is strict wherever a disagreement between two parsers could be exploited (RFC 9112 §11):
//! obs-fold, bare CR, a space before a colon, a second `Host` and double spaces in the request line
//! are rejected. §2.2 allows recipients to accept a bare LF as line terminator, but here requests
//! with one are rejected. Responses with one are accepted, because the operator chooses the backend
//! and the head is rewritten before it is forwarded.

mod error;
mod request;
mod response;

pub use error::HeadError;
pub use request::{METHOD_BYTES_MAX, RequestHead, parse_request};
pub use response::{ResponseHead, parse_response};

/// Maximum head size in bytes, including the final empty line.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum request target length in bytes.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of field lines in a head.
pub const FIELDS_MAX: usize = 100;
/// Upper limit of [`Limits::fields_max`], because the parser stores its spans on the stack.
pub const FIELDS_CAPACITY: usize = 128;
/// Maximum number of empty lines before a request line. RFC 9112 §2.2 recommends accepting at least
/// one, because old clients sent one after a POST.
pub const EMPTY_LINES_MAX: usize = 4;

const _: () = assert!(FIELDS_MAX <= FIELDS_CAPACITY);
const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);

/// Limits on the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum head size in bytes; default [`HEAD_BYTES_MAX`]. A reader's buffer must be at least
    /// this large.
    pub head_bytes_max: usize,
    /// Maximum request target length in bytes; default [`TARGET_BYTES_MAX`].
    pub target_bytes_max: usize,
    /// Maximum number of field lines; default [`FIELDS_MAX`], clamped to [`FIELDS_CAPACITY`].
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes_max: HEAD_BYTES_MAX, target_bytes_max: TARGET_BYTES_MAX, fields_max: FIELDS_MAX }
    }
}

/// Returns whether parsing `buf` can give a different result from parsing its first `seen` bytes,
/// because another line is complete or the limit is reached. With this check, a slowly arriving
/// head is parsed once per line rather than once per read.
pub fn is_worth_parsing(buf: &[u8], seen: usize, limits: &Limits) -> bool {
    buf.len() >= limits.head_bytes_max || buf.get(seen..).is_some_and(|new| new.contains(&b'\n'))
}

/// Returns a copy of `head` with the version at offset `at` lowered to HTTP/1.1; `None` unless it
/// is a later minor version of HTTP/1. Recipients process such a message as the highest minor
/// version they support (RFC 9110 §2.5).
fn lowered(head: &[u8], at: usize) -> Option<Vec<u8>> {
    let minor = at + b"HTTP/1.".len();
    if head.get(at..minor)? != b"HTTP/1." || !matches!(head.get(minor)?, b'2'..=b'9') {
        return None;
    }
    let mut lowered = head.to_vec();
    lowered[minor] = b'1';
    Some(lowered)
}

/// Returns whether a line ends in LF without CR. Always examines every byte, so that the compiler
/// can vectorise the loop.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    pairs.fold(false, |found, (before, byte)| found | ((*byte == b'\n') & (*before != b'\r')))
}
