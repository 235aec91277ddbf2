//! Encoding of the purge journal, which lists purges whose responses may still be on disk. This
//! module performs no I/O.
//!
//! The journal is a sequence of entries, each
//!
//! ```text
//! 0   u32 bytes of the payload          payload:  u8 kind, u64 number, then for
//! 4   u64 XXH3 of the payload             0 sequence  nothing
//!                                         1 unlisted  nothing
//!                                         2 url       u64 soft, text
//!                                         3 tag       u64 soft, bytes
//!                                         4 ban       u64 made, text
//! ```
//!
//! Numbers are little-endian, and times are in Unix milliseconds; `soft` has all bits set for a
//! hard purge. Any bytes after the last entry with a valid checksum are an incomplete write, whose
//! purge was never acknowledged.
//!
//! **Invariant:** decoded entries encode to the same bytes; an unknown entry is treated as a purge
//! that may have removed anything.

use std::sync::Arc;

use super::record::sum;
use crate::purge::{Ban, Purge, PurgeScope};

/// Maximum size of the journal, in bytes. If a purge would exceed it, one [`Entry::Unlisted`]
/// replaces all entries.
pub const JOURNAL_BYTES_MAX: usize = 16 << 20;
/// Exclusive upper bound of purge numbers.
const NUMBER_MAX: u64 = 1 << 62;
const HARD: u64 = u64::MAX;
const START_BYTES: usize = 12;

/// An entry in the journal.
#[derive(Debug, Clone)]
pub enum Entry {
    /// Number of the latest purge so far.
    Sequence(u64),
    /// Purges up to this number are not listed individually, and may have removed anything.
    Unlisted(u64),
    /// A purge.
    Purge(Purge),
    /// A purge with this number in an unknown format, with its complete payload.
    Unknown(u64, Box<[u8]>),
}

/// Position of a purge in this process's journal queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

mod kind {
    pub(super) const SEQUENCE: u8 = 0;
    pub(super) const UNLISTED: u8 = 1;
    pub(super) const URL: u8 = 2;
    pub(super) const TAG: u8 = 3;
    pub(super) const BAN: u8 = 4;
}

impl Entry {
    /// Returns the number of the newest purge that the entry covers.
    pub fn number(&self) -> u64 {
        match self {
            Self::Sequence(number) | Self::Unlisted(number) | Self::Unknown(number, _) => *number,
            Self::Purge(purge) => purge.number,
        }
    }

    /// Returns whether the entry may apply to anything on disk.
    pub(super) fn takes_anything(&self) -> bool {
        matches!(self, Self::Unlisted(_) | Self::Unknown(..))
    }

    /// Appends the encoded entry to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + START_BYTES, 0);
        self.payload(out);
        let payload = &out[start + START_BYTES..];
        let (bytes, sum) = (u32::try_from(payload.len()).expect("purges are below 4 GiB"), sum(payload));
        out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
        out[start + 4..start + START_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    fn payload(&self, out: &mut Vec<u8>) {
        let (kind, time_ms, text) = match self {
            Self::Sequence(_) => (kind::SEQUENCE, None, &b""[..]),
            Self::Unlisted(_) => (kind::UNLISTED, None, &b""[..]),
            Self::Unknown(_, payload) => return out.extend_from_slice(payload),
            Self::Purge(Purge { what, soft_ms, .. }) => {
                let soft_ms = Some(soft_ms.unwrap_or(HARD));
                match what {
                    PurgeScope::Url(key) => (kind::URL, soft_ms, key.as_bytes()),
                    PurgeScope::Tag(tag) => (kind::TAG, soft_ms, &tag[..]),
                    PurgeScope::Ban(ban) => (kind::BAN, Some(ban.made_ms), ban.text.as_bytes()),
                }
            }
        };
        out.push(kind);
        out.extend_from_slice(&self.number().to_le_bytes());
        time_ms.iter().for_each(|time_ms| out.extend_from_slice(&time_ms.to_le_bytes()));
        out.extend_from_slice(text);
    }

    /// Decodes a payload. Returns `None` if it has no valid purge number.
    fn decode(payload: &[u8]) -> Option<Self> {
        let (&kind, rest) = payload.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u64::from_le_bytes(*number);
        if number >= NUMBER_MAX {
            return None;
        }
        let known = match kind {
            kind::SEQUENCE if rest.is_empty() => Some(Self::Sequence(number)),
            kind::UNLISTED if rest.is_empty() => Some(Self::Unlisted(number)),
            _ => purge(kind, number, rest).map(Self::Purge),
        };
        Some(known.unwrap_or_else(|| Self::Unknown(number, payload.into())))
    }
}

fn purge(kind: u8, number: u64, rest: &[u8]) -> Option<Purge> {
    let (time_ms, text) = rest.split_first_chunk()?;
    let time_ms = u64::from_le_bytes(*time_ms);
    let soft_ms = (time_ms != HARD).then_some(time_ms);
    match kind {
        kind::URL => {
            Some(Purge { number, what: PurgeScope::Url(str::from_utf8(text).ok()?.into()), soft_ms })
        }
        kind::TAG => Some(Purge { number, what: PurgeScope::Tag(text.into()), soft_ms }),
        kind::BAN => {
            let ban = Ban::read(str::from_utf8(text).ok()?, time_ms);
            Some(Purge { number, what: PurgeScope::Ban(Arc::new(ban)), soft_ms: None })
        }
        _ => None,
    }
}

/// Decodes the entries in a journal; also returns their length in bytes.
pub fn read(journal: &[u8]) -> (Vec<Entry>, usize) {
    let (mut entries, mut rest) = (Vec::new(), journal);
    while let Some((entry, after)) = read_one(rest) {
        entries.push(entry);
        rest = after;
    }
    (entries, journal.len() - rest.len())
}

fn read_one(journal: &[u8]) -> Option<(Entry, &[u8])> {
    let (start, rest) = journal.split_first_chunk::<START_BYTES>()?;
    let (bytes, expected_sum) = start.split_first_chunk()?;
    let (payload, after) = rest.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
    if sum(payload).to_le_bytes() != expected_sum {
        return None;
    }
    Some((Entry::decode(payload)?, after))
}

#[cfg(test)]
mod tests;
