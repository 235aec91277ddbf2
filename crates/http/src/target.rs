//! Request targets: path and query in origin-form (RFC 9112 §3.2.1), validated before use.
//!
//! **Invariant:** a [`Target`] starts with `/`, is visible ASCII without a fragment, and has valid
//! percent-encoding in its path. Even when decoded, the path contains no dot segment, backslash or
//! control character. A backend that decodes the path once and maps it to a file therefore never
//! leaves its root directory, and the cache key contains the same path that the backend receives.

use std::borrow::Cow;
use std::fmt;

/// Path and query of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    text: String,
    path_bytes: usize,
}

impl Target {
    /// Parses a target in origin-form.
    pub fn new(text: &str) -> Result<Target, TargetError> {
        let mut target = Target::default();
        target.set(text)?;
        Ok(target)
    }

    /// Like [`new`](Self::new), but reuses the allocation. On error, `self` is unchanged.
    pub fn set(&mut self, text: &str) -> Result<(), TargetError> {
        let path_bytes = check(text)?;
        self.text.clear();
        self.text.push_str(text);
        self.path_bytes = path_bytes;
        Ok(())
    }

    /// Returns path and query as received.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the path as received, starting with `/`.
    pub fn path(&self) -> &str {
        &self.text[..self.path_bytes]
    }

    /// Returns the query, which follows the first `?`; `Some("")` if it is empty.
    pub fn query(&self) -> Option<&str> {
        self.text[self.path_bytes..].strip_prefix('?')
    }
}

impl Default for Target {
    /// Returns `/`.
    fn default() -> Target {
        Target { text: "/".into(), path_bytes: 1 }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reason for rejecting a target. The response status is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The target does not start with `/`.
    NotOriginForm,
    /// The target contains a control character, a space or a byte outside ASCII.
    Byte,
    /// The target contains `#`, although fragments are never sent (RFC 9110 §7.1).
    Fragment,
    /// The path contains `%` without two hexadecimal digits.
    Escape,
    /// The decoded path contains a control character, such as NUL.
    Control,
    /// The path contains a backslash, plain or encoded, which some servers treat as `/`.
    Backslash,
    /// The path contains a segment `.` or `..`: plain, encoded, delimited by `%2F`, or followed by
    /// `;`.
    DotSegment,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetError::NotOriginForm => "target must start with /",
            TargetError::Byte => "target contains a byte outside visible ASCII",
            TargetError::Fragment => "target must not have a fragment",
            TargetError::Escape => "path contains invalid percent-encoding",
            TargetError::Control => "path contains an encoded control character",
            TargetError::Backslash => "path contains a backslash",
            TargetError::DotSegment => "path contains a dot segment",
        })
    }
}

impl std::error::Error for TargetError {}

/// Checks a target in origin-form and returns the length of its path in bytes.
///
/// `%2F` is accepted as data (RFC 3986 §2.2) unless decoding it would create a dot segment. The
/// query is opaque data for the backend: only its bytes are checked.
pub fn check(text: &str) -> Result<usize, TargetError> {
    if !text.starts_with('/') {
        return Err(TargetError::NotOriginForm);
    }
    // Invalid targets are rare, so check all bytes in one vectorised loop without an early exit.
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

/// Returns whether a segment is `.` or `..`, with or without `;parameters`: servlet containers
/// strip parameters before they resolve the path, so they treat `..;x` as `..`.
fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, b"." | b".." | [b'.', b';', ..] | [b'.', b'.', b';', ..])
}

/// Decodes the percent-encoding of `text` once; `None` if it is malformed.
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

/// Normalises path and query for a cache key (RFC 3986 §6.2.2): writes hexadecimal digits in upper
/// case and decodes unreserved characters. Borrows if nothing changes.
///
/// Does not remove dot segments, since [`check`] refuses them. Leaves a stray `%` in the query
/// unchanged.
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

/// Returns the offset of the first escape that [`normalise`] would change.
fn first_unnormal(text: &str) -> Option<usize> {
    let is_unnormal = |at: usize| {
        let digits = &text.as_bytes()[at + 1..];
        decode_escape(digits)
            .is_some_and(|(byte, _)| is_unreserved(byte) || digits[..2].iter().any(u8::is_ascii_lowercase))
    };
    text.match_indices('%').map(|(at, _)| at).find(|at| is_unnormal(*at))
}

/// Appends the normal form of the escape at the start of `text`. Returns the length of the escape;
/// 1 for a stray `%`.
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

/// Decodes two hexadecimal digits at the start of `text` into a byte; also returns the rest.
fn decode_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = text else { return None };
    let (high, low) = (char::from(*high).to_digit(16)?, char::from(*low).to_digit(16)?);
    let byte = u8::try_from(high * 16 + low).expect("two hexadecimal digits fit in a byte");
    Some((byte, rest))
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
