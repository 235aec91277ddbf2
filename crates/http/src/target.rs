//! Request targets: path and query in origin-form (RFC 9112 §3.2.1), checked before anything acts on them.
//!
//! **Invariant:** a [`Target`] starts with `/`, is visible ASCII without a fragment, and its path has valid
//! percent-encoding and no dot segment, backslash or control, also when decoded. A backend that decodes once
//! and then walks directories cannot be led out of its root, and the cache key is the path that it sees.

use std::borrow::Cow;
use std::fmt;

/// Path and query of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    text: String,
    path_bytes: usize,
}

impl Target {
    /// Takes a target in origin-form, or says what is wrong with it.
    pub fn new(text: &str) -> Result<Target, TargetError> {
        let mut target = Target::default();
        target.set(text)?;
        Ok(target)
    }

    /// [`new`](Self::new) that keeps the allocation; unchanged on error.
    pub fn set(&mut self, text: &str) -> Result<(), TargetError> {
        let path_bytes = check(text)?;
        self.text.clear();
        self.text.push_str(text);
        self.path_bytes = path_bytes;
        Ok(())
    }

    /// Path and query as received.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path as received; starts with `/`.
    pub fn path(&self) -> &str {
        &self.text[..self.path_bytes]
    }

    /// What follows the first `?`; `Some("")` if nothing does.
    pub fn query(&self) -> Option<&str> {
        self.text[self.path_bytes..].strip_prefix('?')
    }
}

impl Default for Target {
    /// `/`
    fn default() -> Target {
        Target { text: "/".into(), path_bytes: 1 }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a target is refused; the answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// It does not start with `/`.
    NotOriginForm,
    /// A control, a space or a byte outside ASCII.
    Byte,
    /// A `#`: fragments are not sent (RFC 9110 §7.1).
    Fragment,
    /// `%` without two hexadecimal digits in the path.
    Escape,
    /// A control in the decoded path, NUL among them.
    Control,
    /// A backslash, plain or encoded, which some servers take for `/`.
    Backslash,
    /// A segment `.` or `..`, plain, encoded, set off by `%2F`, or followed by `;`.
    DotSegment,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetError::NotOriginForm => "target is not an absolute path",
            TargetError::Byte => "target has a byte that is not visible ascii",
            TargetError::Fragment => "target has a fragment",
            TargetError::Escape => "path has an invalid percent-encoding",
            TargetError::Control => "path has an encoded control",
            TargetError::Backslash => "path has a backslash",
            TargetError::DotSegment => "path has a dot segment",
        })
    }
}

impl std::error::Error for TargetError {}

/// Checks path and query in origin-form and returns the length of the path.
///
/// `%2F` is let through as the data that it is (RFC 3986 §2.2), unless decoding it would set off a dot segment.
/// The query is data of the backend's: only its bytes are checked.
pub fn check(text: &str) -> Result<usize, TargetError> {
    if !text.starts_with('/') {
        return Err(TargetError::NotOriginForm);
    }
    // All bytes in one vectorised loop: a refused target is rare.
    if !text.bytes().fold(true, |visible, byte| visible & byte.is_ascii_graphic()) {
        return Err(TargetError::Byte);
    }
    if text.contains('#') {
        return Err(TargetError::Fragment);
    }
    let path = text.split('?').next().unwrap_or_default();
    if path.contains('%') {
        check_decoded(&decode(path).ok_or(TargetError::Escape)?)?;
    } else {
        check_segments(path.as_bytes())?;
    }
    Ok(path.len())
}

fn check_decoded(path: &[u8]) -> Result<(), TargetError> {
    if path.iter().any(u8::is_ascii_control) {
        return Err(TargetError::Control);
    }
    check_segments(path)
}

fn check_segments(path: &[u8]) -> Result<(), TargetError> {
    if path.contains(&b'\\') {
        return Err(TargetError::Backslash);
    }
    if path.split(|byte| *byte == b'/').any(is_dot_segment) {
        return Err(TargetError::DotSegment);
    }
    Ok(())
}

/// Servlet containers cut `;parameters` off a segment before they resolve it, so `..;x` is `..` to them.
fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, b"." | b".." | [b'.', b';', ..] | [b'.', b'.', b';', ..])
}

/// `text` with its percent-encoding undone once; `None` where that is malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let (byte, after) = decode_escape(after)?;
            decoded.push(byte);
            rest = after;
        } else {
            decoded.push(*first);
            rest = after;
        }
    }
    Some(decoded)
}

/// Path and query in the normal form of RFC 3986 §6.2.2 for a cache key: digits of percent-encodings in upper
/// case, encodings of unreserved characters decoded. Borrows when that changes nothing.
///
/// Dot segments are not removed: [`check`] has refused them. A stray `%` in the query stays as it is.
pub fn normalise(text: &str) -> Cow<'_, str> {
    let Some(first) = first_unnormal(text) else { return Cow::Borrowed(text) };
    let mut normal = String::with_capacity(text.len());
    let (same, mut rest) = text.split_at(first);
    normal.push_str(same);
    while let Some(at) = rest.find('%') {
        normal.push_str(&rest[..at]);
        let escape_bytes = push_normal_escape(&rest[at..], &mut normal);
        rest = &rest[at + escape_bytes..];
    }
    normal.push_str(rest);
    Cow::Owned(normal)
}

/// Where the first percent-encoding lies that [`normalise`] writes differently.
fn first_unnormal(text: &str) -> Option<usize> {
    let is_unnormal = |at: usize| {
        let digits = &text.as_bytes()[at + 1..];
        decode_escape(digits)
            .is_some_and(|(byte, _)| is_unreserved(byte) || digits[..2].iter().any(u8::is_ascii_lowercase))
    };
    text.match_indices('%').map(|(at, _)| at).find(|at| is_unnormal(*at))
}

/// Appends the normal form of the escape that `text` starts with; says how many bytes it had, 1 for a stray `%`.
fn push_normal_escape(text: &str, normal: &mut String) -> usize {
    let Some((byte, _)) = decode_escape(&text.as_bytes()[1..]) else {
        normal.push('%');
        return 1;
    };
    if is_unreserved(byte) {
        normal.push(char::from(byte));
    } else {
        normal.extend(text[..3].chars().map(|c| c.to_ascii_uppercase()));
    }
    3
}

/// The byte that two hexadecimal digits at the start of `text` stand for, and what follows them.
fn decode_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = text else { return None };
    let (high, low) = (char::from(*high).to_digit(16)?, char::from(*low).to_digit(16)?);
    let byte = u8::try_from(high * 16 + low).expect("two hexadecimal digits make a byte");
    Some((byte, rest))
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
