//! The head of a message: start line and field section (RFC 9112 §2 to §5).
//!
//! Parsing is strict where two readers could disagree and so be played off against each other (RFC 9112 §11):
//! obs-fold, bare CR, space before a colon, a second `Host`, two spaces in the request line are refused. A bare
//! LF as line end, which §2.2 lets a recipient accept, is refused in requests and read in responses: a backend
//! is chosen by the operator and its head is written anew.

mod error;
mod request;
mod response;

pub use error::HeadError;
pub use request::{METHOD_BYTES_MAX, RequestHead, parse_request};
pub use response::{ResponseHead, parse_response};

/// The bytes of a head, all lines and the empty one at its end.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The bytes of a request target.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// The field lines of a head.
pub const FIELDS_MAX: usize = 100;
/// The most that `Limits::fields_max` may ask for: the parser's spans lie on the stack.
pub const FIELDS_CAPACITY: usize = 128;
/// Empty lines before a request line; RFC 9112 §2.2 asks to tolerate one, sent by old clients after a POST.
pub const EMPTY_LINES_MAX: usize = 4;

const _: () = assert!(FIELDS_MAX <= FIELDS_CAPACITY);
const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);

/// What a head may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole head; default [`HEAD_BYTES_MAX`]. A reader's buffer must hold as many.
    pub head_bytes_max: usize,
    /// Bytes of the request target; default [`TARGET_BYTES_MAX`].
    pub target_bytes_max: usize,
    /// Field lines; default [`FIELDS_MAX`], held to [`FIELDS_CAPACITY`].
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes_max: HEAD_BYTES_MAX, target_bytes_max: TARGET_BYTES_MAX, fields_max: FIELDS_MAX }
    }
}

/// Whether parsing `buf` can tell more than it did when only the first `seen` bytes were there: a line has
/// ended since, or the limit is reached. Asking first keeps the cost of a head that trickles in linear.
pub fn is_worth_parsing(buf: &[u8], seen: usize, limits: &Limits) -> bool {
    buf.len() >= limits.head_bytes_max || buf.get(seen..).is_some_and(|new| new.contains(&b'\n'))
}

/// Whether a line ends in LF without CR. Looks at every byte: without an early way out the loop is vectorised.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    pairs.fold(false, |found, (before, byte)| found | ((*byte == b'\n') & (*before != b'\r')))
}
