//! The chunked coding (RFC 9112 §7.1), decoded incrementally and without copying content.
//!
//! **Invariant:** content is complete only after the last chunk, the trailer section and the final
//! empty line. If the input ends before [`Step::Done`], the message is truncated.

use std::fmt;
use std::ops::Range;

use crate::Fields;

/// Maximum length of one chunk's extensions in bytes, from the end of the size to the end of the
/// line.
pub const EXTENSION_BYTES_MAX: usize = 256;
/// Maximum size of the trailer section in bytes.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of field lines in the trailer section.
pub const TRAILER_FIELDS_MAX: usize = 32;
/// Maximum number of digits in a chunk size, including leading zeros; 16 hexadecimal digits fill 64
/// bits.
pub const SIZE_DIGITS_MAX: u32 = 16;
/// Buffer size required by [`encode_size`], in bytes.
pub const SIZE_LINE_BYTES: usize = SIZE_DIGITS_MAX as usize + 2;
/// Terminator of each chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Last chunk, followed by an empty trailer section.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// [`CHUNK_END`] followed by [`LAST_CHUNK`].
pub const CONTENT_END: &[u8] = b"\r\n0\r\n\r\n";

/// The result of one [`Decoder::decode`] call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `input[data]` is content and never empty. Call again with the input that follows `consumed`.
    Data {
        /// Position of the content in the input.
        data: Range<usize>,
        /// Number of input bytes consumed.
        consumed: usize,
    },
    /// All input was consumed, and more is needed.
    More,
    /// The content is complete; bytes after `consumed` belong to the next message.
    Done {
        /// Number of input bytes consumed.
        consumed: usize,
    },
}

/// Reason for rejecting chunked content. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkedError {
    /// A chunk size is not hexadecimal.
    Size,
    /// A chunk size has more than [`SIZE_DIGITS_MAX`] digits.
    SizeOverflow,
    /// A chunk extension contains a control character or a bare line feed.
    Extension,
    /// The chunk extensions are longer than [`EXTENSION_BYTES_MAX`].
    ExtensionTooLong,
    /// A line or a chunk does not end in CRLF.
    LineEnd,
    /// The trailer section is malformed.
    Trailer,
    /// The trailer section exceeds [`TRAILER_BYTES_MAX`] or [`TRAILER_FIELDS_MAX`].
    TrailerTooLarge,
}

impl ChunkedError {
    /// Returns the response status for an invalid request. Does not apply to an invalid backend
    /// response, for which the status is always 502.
    pub fn status(&self) -> u16 {
        if *self == ChunkedError::TrailerTooLarge { 431 } else { 400 }
    }
}

impl fmt::Display for ChunkedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChunkedError::Size => "chunk size is not hexadecimal",
            ChunkedError::SizeOverflow => "chunk size has too many digits",
            ChunkedError::Extension => "chunk extension contains a control character",
            ChunkedError::ExtensionTooLong => "chunk extension is too long",
            ChunkedError::LineEnd => "chunk does not end in CRLF",
            ChunkedError::Trailer => "malformed trailer section",
            ChunkedError::TrailerTooLarge => "trailer section is too large",
        })
    }
}

impl std::error::Error for ChunkedError {}

/// Decoder for the content of one message.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    state: State,
    trailer_text: Vec<u8>,
    trailer: Fields,
}

/// Syntax element expected at the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u32 },
    Padding { size: u64, bytes: usize },
    Extension { size: u64, bytes: usize },
    SizeLineFeed { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataLineFeed,
    Trailer,
    Done,
}

impl Default for State {
    fn default() -> State {
        State::Size { value: 0, digits: 0 }
    }
}

impl Decoder {
    /// Creates a decoder that expects the first chunk size.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Returns whether the content is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the trailer section, which is empty until the content is complete. It must not be
    /// merged into the header section without inspection (RFC 9110 §6.5.1).
    pub fn trailer(&self) -> &Fields {
        &self.trailer
    }

    /// Decodes `input` up to the next piece of content. `input` must start at the first unconsumed
    /// byte.
    ///
    /// After an error, drop the decoder along with its connection; do not call it again.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, ChunkedError> {
        let mut at = 0;
        while self.state != State::Done {
            if at == input.len() {
                return Ok(Step::More);
            }
            match self.state {
                State::Data { left } => return Ok(self.take_data(left, at, input.len())),
                State::Trailer => at += self.take_trailer(&input[at..])?,
                _ => {
                    self.state = self.state.after(input[at])?;
                    at += 1;
                }
            }
        }
        Ok(Step::Done { consumed: at })
    }

    /// Returns the number of bytes left in the current chunk's data; 0 between chunks.
    pub fn data_left(&self) -> u64 {
        if let State::Data { left } = self.state { left } else { 0 }
    }

    /// Marks `bytes` of the current chunk's data as consumed, for a caller that processed them
    /// without the decoder.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` exceeds [`data_left`](Self::data_left).
    pub fn skip_data(&mut self, bytes: u64) {
        let left = self.data_left().checked_sub(bytes).expect("skipped more bytes than the chunk has left");
        if matches!(self.state, State::Data { .. }) {
            self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
        }
    }

    fn take_data(&mut self, left: u64, start: usize, input_bytes: usize) -> Step {
        let available = input_bytes - start;
        // A value that does not fit into `usize` exceeds the input anyway.
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        let left = left - taken as u64;
        self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
        Step::Data { data: start..start + taken, consumed: start + taken }
    }

    /// Collects lines up to the empty line, then parses them. Returns the number of input bytes
    /// consumed.
    fn take_trailer(&mut self, input: &[u8]) -> Result<usize, ChunkedError> {
        // Nearly all messages have an empty trailer section, for which nothing is allocated.
        if self.trailer_text.is_empty() && input.starts_with(CHUNK_END) {
            self.state = State::Done;
            return Ok(CHUNK_END.len());
        }
        let line = input.iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| at + 1);
        if self.trailer_text.len() + line > TRAILER_BYTES_MAX {
            return Err(ChunkedError::TrailerTooLarge);
        }
        self.trailer_text.extend_from_slice(&input[..line]);
        if self.trailer_text == CHUNK_END || self.trailer_text.ends_with(b"\r\n\r\n") {
            self.read_trailer()?;
            self.state = State::Done;
        } else if self.trailer_text.ends_with(b"\n") && !self.trailer_text.ends_with(b"\r\n") {
            return Err(ChunkedError::LineEnd);
        }
        Ok(line)
    }

    fn read_trailer(&mut self) -> Result<(), ChunkedError> {
        let mut lines = [httparse::EMPTY_HEADER; TRAILER_FIELDS_MAX];
        match httparse::parse_headers(&self.trailer_text, &mut lines) {
            Ok(httparse::Status::Complete((_, lines))) => {
                for line in lines {
                    self.trailer.push_line(line.name.as_bytes(), line.value);
                }
                Ok(())
            }
            Ok(httparse::Status::Partial) => Err(ChunkedError::Trailer),
            Err(httparse::Error::TooManyHeaders) => Err(ChunkedError::TrailerTooLarge),
            Err(_) => Err(ChunkedError::Trailer),
        }
    }
}

impl State {
    /// Returns the state after `byte`, for states that consume one byte at a time.
    fn after(self, byte: u8) -> Result<State, ChunkedError> {
        match (self, byte) {
            (State::Size { value, digits }, _) => after_size(value, digits, byte),
            (State::Padding { size, .. } | State::Extension { size, .. }, b'\r') => {
                Ok(State::SizeLineFeed { size })
            }
            (State::Padding { bytes, .. } | State::Extension { bytes, .. }, _)
                if bytes >= EXTENSION_BYTES_MAX =>
            {
                Err(ChunkedError::ExtensionTooLong)
            }
            (State::Padding { size, bytes }, _) => after_padding(size, bytes, byte),
            (State::Extension { size, bytes }, _) if crate::token::is_value_byte(byte) => {
                Ok(State::Extension { size, bytes: bytes + 1 })
            }
            (State::Extension { .. }, _) => Err(ChunkedError::Extension),
            (State::SizeLineFeed { size: 0 }, b'\n') => Ok(State::Trailer),
            (State::SizeLineFeed { size }, b'\n') => Ok(State::Data { left: size }),
            (State::DataReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => Ok(State::default()),
            _ => Err(ChunkedError::LineEnd),
        }
    }
}

fn after_size(value: u64, digits: u32, byte: u8) -> Result<State, ChunkedError> {
    if let Some(digit) = char::from(byte).to_digit(16) {
        if digits == SIZE_DIGITS_MAX {
            return Err(ChunkedError::SizeOverflow);
        }
        return Ok(State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 });
    }
    match byte {
        _ if digits == 0 => Err(ChunkedError::Size),
        b'\r' => Ok(State::SizeLineFeed { size: value }),
        _ => after_padding(value, 0, byte),
    }
}

/// Handles white space after the size. It may precede `;` (`BWS`), and some servers pad the size
/// with it.
fn after_padding(size: u64, bytes: usize, byte: u8) -> Result<State, ChunkedError> {
    match byte {
        b' ' | b'\t' => Ok(State::Padding { size, bytes: bytes + 1 }),
        b';' => Ok(State::Extension { size, bytes: bytes + 1 }),
        b'\n' => Err(ChunkedError::LineEnd),
        _ => Err(ChunkedError::Size),
    }
}

/// Writes the size line for a chunk of `bytes` bytes (hexadecimal digits and CRLF) and returns it.
///
/// `bytes` must not be 0, because a chunk of size 0 ends the content; see [`LAST_CHUNK`].
pub fn encode_size(bytes: u64, buffer: &mut [u8; SIZE_LINE_BYTES]) -> &[u8] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    debug_assert!(bytes > 0);
    let mut at = SIZE_LINE_BYTES - CHUNK_END.len();
    buffer[at..].copy_from_slice(CHUNK_END);
    let mut rest = bytes;
    loop {
        at -= 1;
        // The cast is lossless: the value is below 16.
        buffer[at] = DIGITS[(rest & 0xf) as usize];
        rest >>= 4;
        if rest == 0 {
            return &buffer[at..];
        }
    }
}
