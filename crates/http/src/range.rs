//! Byte ranges (RFC 9110 §14): `Range`, `Content-Range` and the arithmetic between them.
//!
//! A resolved range is a [`Range<u64>`](std::ops::Range) of offsets, end exclusive and never empty.

use std::ops::Range;

use crate::fields::members;
use crate::number::{self, Decimal};

/// The ranges in one request; more make the field ignored (RFC 9110 §14.2, against floods of tiny ranges).
pub const RANGES_MAX: usize = 16;

/// One range as asked for; numbers beyond 64 bits are held to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-last`, both included.
    FromTo(u64, u64),
    /// `first-`: to the end.
    From(u64),
    /// `-n`: the last `n` bytes.
    Suffix(u64),
}

/// The ranges of one `Range` field, at least one, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSet {
    ranges: [ByteRange; RANGES_MAX],
    len: usize,
}

impl RangeSet {
    /// The ranges.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.len]
    }

    /// The only range; `None` if there are several.
    pub fn single(&self) -> Option<ByteRange> {
        match self.as_slice() {
            [range] => Some(*range),
            _ => None,
        }
    }
}

/// Reads the value of `Range`; `None` means that the field is to be ignored: another unit, a malformed or
/// reversed range, more than [`RANGES_MAX`].
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

/// The bytes that `range` selects of `length`; `None` if it cannot be satisfied (416).
///
/// A suffix of empty content is not satisfied either: no `Content-Range` could describe the answer.
pub fn resolve(range: ByteRange, length: u64) -> Option<Range<u64>> {
    let selected = match range {
        ByteRange::FromTo(first, last) => first..last.saturating_add(1).min(length),
        ByteRange::From(first) => first..length,
        ByteRange::Suffix(suffix) => length - suffix.min(length)..length,
    };
    (!selected.is_empty()).then_some(selected)
}

/// Bytes between two ranges up to which they are answered as one: about what the head of another part costs.
const GAP_BYTES_MAX: u64 = 80;

/// What a set of ranges comes to for content of a known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// None of them can be satisfied (416).
    Unsatisfiable,
    /// One stretch.
    One(Range<u64>),
    /// Two stretches or more, apart from each other, in the order asked for.
    Several(Vec<Range<u64>>),
}

/// The bytes that `ranges` select of `length`. Those that cannot be satisfied are left out; those that overlap or
/// nearly touch become one (RFC 9110 §15.3.7.2), so nobody gets more than the content and some heads.
pub fn select(ranges: &RangeSet, length: u64) -> Selected {
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in ranges.as_slice() {
        let Some(mut selected) = resolve(*range, length) else { continue };
        let touches = |one: &Range<u64>, other: &Range<u64>| {
            one.start <= other.end.saturating_add(GAP_BYTES_MAX)
                && other.start <= one.end.saturating_add(GAP_BYTES_MAX)
        };
        // What it grows to may touch others in turn.
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

/// Whether a range can be answered while its content still arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With these bytes.
    Range(Range<u64>),
    /// Never (416).
    Unsatisfiable,
    /// Not known before more content or its end has arrived.
    Undecided,
}

/// [`resolve`] for content of which `arrived` bytes are there and the complete length may not be known.
///
/// With a known length every range is decided at once, whatever has arrived. Without it only `first-last` is,
/// once `last` has arrived: before, the content could end inside the range and the `Content-Range` already
/// sent would be wrong; `first-` has no last position to name, a suffix counts from an end that is not there.
pub fn resolve_arriving(range: ByteRange, arrived: u64, length: Option<u64>) -> Answer {
    match (range, length) {
        (_, Some(length)) => resolve(range, length).map_or(Answer::Unsatisfiable, Answer::Range),
        (ByteRange::FromTo(first, last), None) if last < arrived => Answer::Range(first..last + 1),
        // RFC 9110 §14.1.2: a suffix of no bytes is unsatisfiable, however long the content is.
        (ByteRange::Suffix(0), None) => Answer::Unsatisfiable,
        _ => Answer::Undecided,
    }
}

/// What a `Content-Range` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes enclosed; `None` in a 416.
    pub range: Option<Range<u64>>,
    /// The complete length; `None` for `*`.
    pub length: Option<u64>,
}

/// The value of `Content-Range` for a 206 with `range`, which is not empty.
pub fn content_range(range: &Range<u64>, length: Option<u64>) -> String {
    debug_assert!(!range.is_empty());
    let last = range.end.saturating_sub(1);
    match length {
        Some(length) => format!("bytes {}-{last}/{length}", range.start),
        None => format!("bytes {}-{last}/*", range.start),
    }
}

/// The value of `Content-Range` for a 416.
pub fn unsatisfied_range(length: u64) -> String {
    format!("bytes */{length}")
}

/// Reads the value of `Content-Range`; `None` if it is malformed, contradicts itself or has another unit.
pub fn parse_content_range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = split_once(value, b' ')?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let (range, length) = split_once(rest, b'/')?;
    let length = if length == b"*" { None } else { Some(exact(length)?) };
    if range == b"*" {
        // `*/*` says nothing and is not in the grammar.
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
