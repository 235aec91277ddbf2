//! The head of a message: start line and field section (RFC 9112 §2 to §5).
//!
//! Parsing is strict wherever two parsers could disagree and be exploited (RFC 9112 §11): obs-fold,
//! bare CR, space before a colon, a second `Host` and two spaces in the request line are refused. A
//! bare LF as line terminator, which §2.2 allows recipients to accept, is refused in requests. In
//! responses it is accepted: the operator chooses the backend, and the head is rewritten.

mod error;
mod request;
mod response;

pub use error::HeadError;
pub use request::{METHOD_BYTES_MAX, RequestHead, parse_request};
pub use response::{ResponseHead, parse_response};

/// Maximum bytes of a head, including the empty line at its end.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum bytes of a request target.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Maximum field lines in a head.
pub const FIELDS_MAX: usize = 100;
/// Upper limit of `Limits::fields_max`: the parser's spans are on the stack.
pub const FIELDS_CAPACITY: usize = 128;
/// Maximum empty lines before a request line; RFC 9112 §2.2 recommends accepting one, which old
/// clients sent after a POST.
pub const EMPTY_LINES_MAX: usize = 4;

const _: () = assert!(FIELDS_MAX <= FIELDS_CAPACITY);
const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);

/// Limits on the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of the whole head; default [`HEAD_BYTES_MAX`]. A reader's buffer must hold
    /// this many.
    pub head_bytes_max: usize,
    /// Maximum bytes of the request target; default [`TARGET_BYTES_MAX`].
    pub target_bytes_max: usize,
    /// Maximum field lines; default [`FIELDS_MAX`], clamped to [`FIELDS_CAPACITY`].
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes_max: HEAD_BYTES_MAX, target_bytes_max: TARGET_BYTES_MAX, fields_max: FIELDS_MAX }
    }
}

/// Returns whether parsing `buf` can give a different result than parsing its first `seen` bytes:
/// another line has ended, or the limit is reached. Checking this first keeps the cost of a slowly
/// arriving head linear.
pub fn is_worth_parsing(buf: &[u8], seen: usize, limits: &Limits) -> bool {
    buf.len() >= limits.head_bytes_max || buf.get(seen..).is_some_and(|new| new.contains(&b'\n'))
}

/// Returns a copy of `head` with the version at `at` lowered to HTTP/1.1; `None` unless it is a
/// later minor version of HTTP/1. Recipients process such a message as the highest minor version
/// that they support (RFC 9110 §2.5).
fn lowered(head: &[u8], at: usize) -> Option<Vec<u8>> {
    let minor = at + b"HTTP/1.".len();
    if head.get(at..minor)? != b"HTTP/1." || !matches!(head.get(minor)?, b'2'..=b'9') {
        return None;
    }
    let mut lowered = head.to_vec();
    lowered[minor] = b'1';
    Some(lowered)
}

/// Returns whether a line ends in LF without CR. Examines every byte: without an early exit, the
/// loop is vectorised.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    pairs.fold(false, |found, (before, byte)| found | ((*byte == b'\n') & (*before != b'\r')))
}
