//! Encoding of a stored response's file header, without I/O.
//!
//! ```text
//! 0   "thalweg\0"                        24  sections, in the order of their tags, each once:
//! 8   u16 version                            u16 tag, u32 length, that many bytes
//! 10  u16 0                                  1 content   number, bytes, bytes of a block, status
//! 12  u32 bytes of the header                2 key       text
//! 16  u64 XXH3 of the header,                3 fields    lines of name and value
//!         computed with 0 here               4 selection lines of name and value, or none
//!                                            5 freshness u64 milliseconds, flags
//!                                            6 sums      XXH3 of each block of the content
//!                                            7 surrogate lines of name and value, if any
//!                                            8 purges    number, u64 stale since, if either is set
//!                                            9 sliced    u64 content length, if in slices
//!                                           10 reason    string, if unusual for the status
//! ```
//!
//! Numbers are little-endian. The last section is followed by zeros up to a multiple of
//! [`HEADER_ALIGN`], where the content starts. A new tag does not require a new version: a program
//! that does not know the tag refuses the record, at the cost of a fetch, and a program that knows
//! it also reads records without it.
//!
//! **Invariant:** only headers encoded here decode: a header torn at any byte is refused, and a
//! decoded header encodes to the same bytes.

use std::fmt;
use std::sync::Arc;

use thalweg_http::Fields;
use thalweg_http::status;
use thalweg_http::token::is_token;
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::entry::Head;
use crate::freshness::Freshness;
use crate::purge::Position;
use crate::storage::Selection;

/// Header sizes are multiples of this page size, so that content starts on a page.
pub const HEADER_ALIGN: usize = 4096;
/// Maximum size of a header, in bytes.
pub const HEADER_BYTES_MAX: usize = 2 << 20;
/// Number of content bytes per checksum.
pub const BLOCK_BYTES: usize = 256 * 1024;
/// Maximum length of a reason phrase in the format, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Maximum size of a file's content, in bytes.
pub const CONTENT_BYTES_MAX: u64 = 16 << 30;

const MAGIC: [u8; 8] = *b"thalweg\0";
/// Format version. Version 2 added `Via` to the fields; version 3 changed freshness to
/// milliseconds. Files of any other version are removed at startup.
pub const VERSION: u16 = 3;
const SECTIONS_AT: usize = 24;
const SUM: std::ops::Range<usize> = 16..24;
/// Encoded value length that marks a selecting field as absent from the request.
const ABSENT: u32 = u32::MAX;
/// Encoded stale time that marks a response as not soft-purged.
const NEVER: u64 = u64::MAX;

const _: () = assert!(CONTENT_BYTES_MAX / BLOCK_BYTES as u64 * 8 <= HEADER_BYTES_MAX as u64 / 2);
const _: () = assert!(status::REASON_BYTES_MAX <= REASON_BYTES_MAX);
const _: () = assert!(HEADER_BYTES_MAX.is_multiple_of(HEADER_ALIGN));

/// Description of the response in a file, as encoded in its header.
#[derive(Debug, Clone)]
pub struct Record {
    /// Number of the file, unique in this directory; a later file has a higher number.
    pub number: u64,
    /// Key that the response is stored under.
    pub key: Arc<str>,
    /// Head of the response. Fields withheld from other clients are not stored.
    pub head: Arc<Head>,
    /// Position of the response in the purge sequence.
    pub position: Position,
    /// Content size in bytes; 0 if the content is in slices.
    pub content_bytes: u64,
    /// XXH3 of each [`BLOCK_BYTES`] of content; the last block may be shorter.
    pub sums: Vec<u64>,
}

/// Reason why bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The header has another format or version.
    Foreign,
    /// The header is incomplete, or changed since it was written.
    Torn,
    /// The checksum is valid, but the contents are not.
    Malformed(&'static str),
    /// The header is larger than [`HEADER_BYTES_MAX`].
    TooLarge,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a record of this version"),
            Self::Torn => f.write_str("header checksum mismatch"),
            Self::Malformed(what) => write!(f, "malformed record: {what}"),
            Self::TooLarge => f.write_str("header is too large"),
        }
    }
}

impl std::error::Error for Fault {}

/// Returns the number of blocks in `content_bytes`.
pub fn blocks(content_bytes: u64) -> u64 {
    content_bytes.div_ceil(BLOCK_BYTES as u64)
}

/// Computes the checksum of a block or a header.
pub fn sum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Computes the first part of a file name: a hash that almost always distinguishes the files of one
/// key and selection from all others.
pub fn name_hash(key: &str, selection: &Selection) -> u128 {
    let mut text = key.as_bytes().to_vec();
    for (name, value) in selection.lines() {
        text.push(0);
        text.extend_from_slice(name.as_bytes());
        // Unambiguous, because names and values contain no control characters.
        text.push(if value.is_some() { 0 } else { 1 });
        text.extend_from_slice(value.unwrap_or_default());
    }
    XxHash3_128::oneshot(&text)
}

mod tag {
    pub(super) const CONTENT: u16 = 1;
    pub(super) const KEY: u16 = 2;
    pub(super) const FIELDS: u16 = 3;
    pub(super) const SELECTION: u16 = 4;
    pub(super) const FRESHNESS: u16 = 5;
    pub(super) const SUMS: u16 = 6;
    pub(super) const SURROGATE: u16 = 7;
    pub(super) const PURGES: u16 = 8;
    pub(super) const SLICED: u16 = 9;
    pub(super) const REASON: u16 = 10;
}

impl Record {
    /// Encodes the header, padded to a multiple of [`HEADER_ALIGN`].
    ///
    /// # Errors
    ///
    /// Returns [`Fault::TooLarge`] if the header exceeds [`HEADER_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(HEADER_ALIGN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.resize(SECTIONS_AT, 0);
        section(&mut out, tag::CONTENT, |out| {
            out.extend_from_slice(&self.number.to_le_bytes());
            out.extend_from_slice(&self.content_bytes.to_le_bytes());
            out.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
            out.extend_from_slice(&self.head.status.to_le_bytes());
        });
        section(&mut out, tag::KEY, |out| out.extend_from_slice(self.key.as_bytes()));
        section(&mut out, tag::FIELDS, |out| lines(out, self.head.fields.iter()));
        section(&mut out, tag::SELECTION, |out| {
            self.head.selection.lines().for_each(|(name, value)| line(out, name, value));
        });
        section(&mut out, tag::FRESHNESS, |out| freshness(out, &self.head.freshness));
        section(&mut out, tag::SUMS, |out| {
            out.extend(self.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        });
        if !self.head.surrogate.is_empty() {
            section(&mut out, tag::SURROGATE, |out| lines(out, self.head.surrogate.iter()));
        }
        if self.position != Position::default() {
            section(&mut out, tag::PURGES, |out| {
                out.extend_from_slice(&self.position.number.to_le_bytes());
                out.extend_from_slice(&self.position.stale_ms.unwrap_or(NEVER).to_le_bytes());
            });
        }
        if let Some(length) = self.head.length.filter(|_| self.head.sliced) {
            section(&mut out, tag::SLICED, |out| out.extend_from_slice(&length.to_le_bytes()));
        }
        if let Some(reason) = &self.head.reason {
            section(&mut out, tag::REASON, |out| out.extend_from_slice(reason.as_bytes()));
        }
        out.resize(out.len().next_multiple_of(HEADER_ALIGN), 0);
        if out.len() > HEADER_BYTES_MAX {
            return Err(Fault::TooLarge);
        }
        let bytes = u32::try_from(out.len()).map_err(|_| Fault::TooLarge)?;
        out[12..16].copy_from_slice(&bytes.to_le_bytes());
        let sum = sum(&out);
        out[SUM].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Decodes a complete header; see [`header_bytes`] for its length.
    ///
    /// # Errors
    ///
    /// Returns the reason why the header is invalid.
    pub fn decode(header: &[u8]) -> Result<Self, Fault> {
        if header_bytes(header)? != header.len() {
            return Err(Fault::Torn);
        }
        let mut unsummed = header.to_vec();
        unsummed[SUM].fill(0);
        if header[SUM] != sum(&unsummed).to_le_bytes() {
            return Err(Fault::Torn);
        }
        Parts::read(Cursor(&header[SECTIONS_AT..]))?.into_record()
    }
}

/// Returns the length of the header that starts with `start`, which must have at least 24 bytes.
///
/// # Errors
///
/// Returns an error if `start` does not start a header of this version.
pub fn header_bytes(start: &[u8]) -> Result<usize, Fault> {
    let mut cursor = Cursor(start);
    if cursor.take(MAGIC.len()).is_none_or(|magic| magic != MAGIC) || cursor.u16() != Some(VERSION) {
        return Err(Fault::Foreign);
    }
    let (zero, bytes) = (cursor.u16(), cursor.u32().ok_or(Fault::Torn)? as usize);
    let sound = zero == Some(0) && bytes.is_multiple_of(HEADER_ALIGN) && bytes <= HEADER_BYTES_MAX;
    if sound && bytes > 0 { Ok(bytes) } else { Err(Fault::Torn) }
}

/// Sections read so far.
#[derive(Default)]
struct Parts<'a> {
    content: Option<(u64, u64, u16)>,
    key: Option<&'a str>,
    fields: Fields,
    selection: Vec<(Box<str>, Option<Vec<u8>>)>,
    freshness: Option<Freshness>,
    sums: Vec<u64>,
    surrogate: Fields,
    position: Position,
    sliced: Option<u64>,
    reason: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(mut sections: Cursor<'a>) -> Result<Self, Fault> {
        let mut parts = Self::default();
        let mut last = 0;
        while let Some(tag) = sections.u16().filter(|tag| *tag != 0) {
            let length = sections.u32().ok_or(Fault::Malformed("section"))? as usize;
            let section = sections.take(length).ok_or(Fault::Malformed("section"))?;
            // The sections up to the checksums are mandatory.
            if tag <= last || last < tag::SUMS && tag != last + 1 {
                return Err(Fault::Malformed("order"));
            }
            last = tag;
            parts.read_section(tag, section)?;
        }
        if last < tag::SUMS || sections.0.iter().any(|byte| *byte != 0) || sections.0.len() >= HEADER_ALIGN {
            return Err(Fault::Malformed("end"));
        }
        Ok(parts)
    }

    fn read_section(&mut self, tag: u16, section: &'a [u8]) -> Result<(), Fault> {
        let mut cursor = Cursor(section);
        match tag {
            tag::CONTENT => self.content = Some(cursor.content().ok_or(Fault::Malformed("content"))?),
            tag::KEY => {
                self.key = Some(str::from_utf8(cursor.rest()).map_err(|_| Fault::Malformed("key"))?);
            }
            tag::FIELDS => self.fields = cursor.fields().ok_or(Fault::Malformed("fields"))?,
            tag::SELECTION => {
                while !cursor.0.is_empty() {
                    let (name, value) = cursor.line().ok_or(Fault::Malformed("selection"))?;
                    self.selection.push((name.into(), value.map(<[u8]>::to_vec)));
                }
            }
            tag::FRESHNESS => {
                self.freshness = Some(cursor.freshness().ok_or(Fault::Malformed("freshness"))?);
            }
            tag::SUMS => {
                while let Some(sum) = cursor.u64() {
                    self.sums.push(sum);
                }
            }
            tag::SURROGATE => {
                let surrogate = cursor.fields().filter(|fields| !fields.is_empty());
                self.surrogate = surrogate.ok_or(Fault::Malformed("surrogate"))?;
            }
            tag::PURGES => {
                let position = cursor.position().filter(|position| *position != Position::default());
                self.position = position.ok_or(Fault::Malformed("purges"))?;
            }
            tag::SLICED => self.sliced = Some(cursor.u64().ok_or(Fault::Malformed("sliced"))?),
            tag::REASON => {
                self.reason = Some(cursor.reason().ok_or(Fault::Malformed("reason"))?);
            }
            _ => return Err(Fault::Malformed("unknown section")),
        }
        if cursor.0.is_empty() { Ok(()) } else { Err(Fault::Malformed("section length")) }
    }

    fn into_record(self) -> Result<Record, Fault> {
        let (number, content_bytes, status) = self.content.ok_or(Fault::Malformed("content"))?;
        if content_bytes > CONTENT_BYTES_MAX || blocks(content_bytes) != self.sums.len() as u64 {
            return Err(Fault::Malformed("sums"));
        }
        if self.sliced.is_some() && content_bytes > 0 {
            return Err(Fault::Malformed("sliced"));
        }
        let head = Head {
            status,
            reason: self.reason.map(Into::into),
            fields: self.fields,
            withheld: Fields::new(),
            surrogate: self.surrogate,
            length: self.sliced.or(Some(content_bytes)),
            freshness: self.freshness.ok_or(Fault::Malformed("freshness"))?,
            selection: Selection::from_lines(self.selection),
            private: None,
            sliced: self.sliced.is_some(),
            made: None,
        };
        let key = self.key.ok_or(Fault::Malformed("key"))?.into();
        let (head, position) = (Arc::new(head), self.position);
        Ok(Record { number, key, head, position, content_bytes, sums: self.sums })
    }
}

/// A cursor that takes bytes from the front of a slice. Its methods return `None` if too few bytes
/// are left.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the file number, the content length and the status.
    fn content(&mut self) -> Option<(u64, u64, u16)> {
        let (number, bytes) = (self.u64()?, self.u64()?);
        self.u32().filter(|block| *block as usize == BLOCK_BYTES)?;
        Some((number, bytes, self.u16().filter(|status| (200..600).contains(status))?))
    }

    fn line(&mut self) -> Option<(&'a str, Option<&'a [u8]>)> {
        let name_bytes = self.u16()?.into();
        let name = str::from_utf8(self.take(name_bytes)?).ok()?;
        let value = match self.u32()? {
            ABSENT => None,
            value_bytes => Some(self.take(value_bytes as usize)?),
        };
        Some((name, value))
    }

    /// Reads a phrase valid in a status line. Does not check whether it is the usual one for the
    /// status, because the table of usual phrases grows.
    fn reason(&mut self) -> Option<&'a str> {
        let reason = str::from_utf8(self.rest()).ok()?;
        let is_sound = (1..=REASON_BYTES_MAX).contains(&reason.len())
            && !reason.contains(|c: char| c.is_ascii_control());
        is_sound.then_some(reason)
    }

    fn fields(&mut self) -> Option<Fields> {
        let (section, mut fields) = (self.0, Fields::new());
        while !self.0.is_empty() {
            let (name, value) = self.line()?;
            if !is_token(name.as_bytes()) {
                return None;
            }
            fields.push(name, value?);
        }
        // Refuse a value that `Fields` would change, because it was not encoded here.
        let mut again = Vec::with_capacity(section.len());
        lines(&mut again, fields.iter());
        (again == section).then_some(fields)
    }

    fn position(&mut self) -> Option<Position> {
        let (number, stale_ms) = (self.u64()?, self.u64()?);
        Some(Position { number, stale_ms: Some(stale_ms).filter(|stale_ms| *stale_ms != NEVER) })
    }

    fn freshness(&mut self) -> Option<Freshness> {
        let (lifetime_ms, born_ms) = (self.u64()?, self.u64()?);
        let (while_revalidate_ms, if_error_ms) = (self.u64()?, self.u64()?);
        let [flags] = self.array()?;
        let (must_revalidate, immutable) = (flags & 1 != 0, flags & 2 != 0);
        (flags < 4).then_some(Freshness {
            lifetime_ms,
            born_ms,
            while_revalidate_ms,
            if_error_ms,
            must_revalidate,
            immutable,
        })
    }
}

fn section(out: &mut Vec<u8>, tag: u16, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&tag.to_le_bytes());
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    // If the length does not fit, the header is later refused as too large.
    let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

fn lines<'a>(out: &mut Vec<u8>, lines: impl Iterator<Item = (&'a str, &'a [u8])>) {
    lines.for_each(|(name, value)| line(out, name, Some(value)));
}

fn line(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    let name_bytes = u16::try_from(name.len()).expect("a field name is at most NAME_BYTES_MAX long");
    out.extend_from_slice(&name_bytes.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    let value_bytes =
        value.map_or(ABSENT, |value| u32::try_from(value.len()).expect("field values are below 4 GiB"));
    out.extend_from_slice(&value_bytes.to_le_bytes());
    out.extend_from_slice(value.unwrap_or_default());
}

fn freshness(out: &mut Vec<u8>, freshness: &Freshness) {
    let Freshness { lifetime_ms, born_ms, while_revalidate_ms, if_error_ms, must_revalidate, immutable } =
        *freshness;
    for number in [lifetime_ms, born_ms, while_revalidate_ms, if_error_ms] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(u8::from(must_revalidate) | u8::from(immutable) << 1);
}

#[cfg(test)]
mod tests;
