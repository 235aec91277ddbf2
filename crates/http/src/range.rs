//! Byte ranges (RFC 9110 §14): `Range`, `Content-Range` and the arithmetic between them.
//!
//! A resolved range is a [`Range<u64>`](std::ops::Range) of offsets, end exclusive and never empty.

use std::ops::Range;

use crate::fields::members;
use crate::number::{self, Decimal};

/// Maximum number of ranges in one request. A `Range` field with more is ignored, to limit the
/// damage from requests with many tiny ranges (RFC 9110 §14.2).
pub const RANGES_MAX: usize = 16;

/// One requested range; numbers beyond 64 bits are clamped to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-last`, both inclusive.
    FromTo(u64, u64),
    /// `first-`: from `first` to the end.
    From(u64),
    /// `-n`: the last `n` bytes.
    Suffix(u64),
}

/// The ranges of one `Range` field, in order; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSet {
    ranges: [ByteRange; RANGES_MAX],
    len: usize,
}

impl RangeSet {
    /// Returns the ranges.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.len]
    }

    /// Returns the range if there is only one; `None` if there are several.
    pub fn single(&self) -> Option<ByteRange> {
        match self.as_slice() {
            [range] => Some(*range),
            _ => None,
        }
    }
}

/// Parses the value of `Range`. Returns `None` if the field must be ignored because it has another
/// unit, no range, a malformed or reversed range, or more than [`RANGES_MAX`] ranges.
pub fn parse(value: &[u8]) -> Option<RangeSet> {
    let equals = value.iter().position(|byte| *byte == b'=')?;
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut set = RangeSet { ranges: [ByteRange::From(0); RANGES_MAX], len: 0 };
    for member in members(&value[equals + 1..]) {
        *set.ranges.get_mut(set.len)? = parse_one(member)?;
        set.len += 1;
    }
    (set.len > 0).then_some(set)
}

fn parse_one(text: &[u8]) -> Option<ByteRange> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    match (&text[..dash], &text[dash + 1..]) {
        ([], suffix) => Some(ByteRange::Suffix(position(suffix)?)),
        (first, []) => Some(ByteRange::From(position(first)?)),
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            (first <= last).then_some(ByteRange::FromTo(first, last))
        }
    }
}

fn position(digits: &[u8]) -> Option<u64> {
    Some(match number::parse(digits)? {
        Decimal::Value(value) => value,
        Decimal::Overflow => u64::MAX,
    })
}

/// Returns the bytes that `range` selects from content of `length` bytes; `None` if the range
/// cannot be satisfied (416).
///
/// A suffix of empty content cannot be satisfied either: no `Content-Range` could describe the
/// response.
pub fn resolve(range: ByteRange, length: u64) -> Option<Range<u64>> {
    let selected = match range {
        ByteRange::FromTo(first, last) => first..last.saturating_add(1).min(length),
        ByteRange::From(first) => first..length,
        ByteRange::Suffix(suffix) => length - suffix.min(length)..length,
    };
    (!selected.is_empty()).then_some(selected)
}

/// Maximum gap between two merged ranges, in bytes: about the overhead of sending a separate part.
const GAP_BYTES_MAX: u64 = 80;

/// Result of applying a set of ranges to content of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// No range can be satisfied (416).
    Unsatisfiable,
    /// One contiguous range.
    One(Range<u64>),
    /// Two or more separate ranges, in the order requested.
    Several(Vec<Range<u64>>),
}

/// Returns the bytes that `ranges` select from content of `length` bytes. Omits unsatisfiable
/// ranges and merges overlapping or nearly adjacent ones (RFC 9110 §15.3.7.2), so the response is
/// never much longer than the content.
pub fn select(ranges: &RangeSet, length: u64) -> Selected {
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in ranges.as_slice() {
        let Some(mut selected) = resolve(*range, length) else { continue };
        let touches = |one: &Range<u64>, other: &Range<u64>| {
            one.start <= other.end.saturating_add(GAP_BYTES_MAX)
                && other.start <= one.end.saturating_add(GAP_BYTES_MAX)
        };
        // The merged range may touch further ranges.
        while let Some(at) = apart.iter().position(|other| touches(&selected, other)) {
            let other = apart.remove(at);
            selected = selected.start.min(other.start)..selected.end.max(other.end);
        }
        apart.push(selected);
    }
    match apart.len() {
        0 => Selected::Unsatisfiable,
        1 => Selected::One(apart.swap_remove(0)),
        _ => Selected::Several(apart),
    }
}

/// Result of resolving a range while its content is still arriving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The range selects these bytes.
    Range(Range<u64>),
    /// The range can never be satisfied (416).
    Unsatisfiable,
    /// The result is unknown until more content, or the end of the content, has arrived.
    Undecided,
}

/// Like [`resolve`], for content that is still arriving. `arrived` is the number of bytes received
/// so far, and `length` is the complete length, if known.
///
/// If the length is known, every range is resolved immediately, regardless of `arrived`. Otherwise,
/// only `first-last` can be resolved, and only once `last` has arrived: before that, the content
/// could end inside the range and contradict the `Content-Range` already sent. `first-` has no last
/// position, and a suffix is relative to an unknown end.
pub fn resolve_arriving(range: ByteRange, arrived: u64, length: Option<u64>) -> Answer {
    match (range, length) {
        (_, Some(length)) => resolve(range, length).map_or(Answer::Unsatisfiable, Answer::Range),
        (ByteRange::FromTo(first, last), None) if last < arrived => Answer::Range(first..last + 1),
        // RFC 9110 §14.1.2: a suffix of zero bytes is unsatisfiable, however long the content is.
        (ByteRange::Suffix(0), None) => Answer::Unsatisfiable,
        _ => Answer::Undecided,
    }
}

/// The parsed value of `Content-Range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The enclosed bytes; `None` in a 416.
    pub range: Option<Range<u64>>,
    /// The complete length; `None` for `*`.
    pub length: Option<u64>,
}

/// Formats the `Content-Range` value of a 206 that encloses `range`, which must not be empty.
pub fn content_range(range: &Range<u64>, length: Option<u64>) -> String {
    debug_assert!(!range.is_empty());
    let last = range.end.saturating_sub(1);
    match length {
        Some(length) => format!("bytes {}-{last}/{length}", range.start),
        None => format!("bytes {}-{last}/*", range.start),
    }
}

/// Formats the `Content-Range` value of a 416.
pub fn unsatisfied_range(length: u64) -> String {
    format!("bytes */{length}")
}

/// Parses a `Content-Range` value; `None` if it is malformed, inconsistent, or in another unit.
pub fn parse_content_range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = split_once(value, b' ')?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let (range, length) = split_once(rest, b'/')?;
    let length = if length == b"*" { None } else { Some(exact(length)?) };
    if range == b"*" {
        // `*/*` carries no information and is not in the grammar.
        return length.map(|length| ContentRange { range: None, length: Some(length) });
    }
    let (first, last) = split_once(range, b'-')?;
    let range = exact(first)?..exact(last)?.checked_add(1)?;
    let fits = length.is_none_or(|length| range.end <= length);
    (!range.is_empty() && fits).then_some(ContentRange { range: Some(range), length })
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

fn exact(digits: &[u8]) -> Option<u64> {
    match number::parse(digits)? {
        Decimal::Value(value) => Some(value),
        Decimal::Overflow => None,
    }
}
