//! Saved socket totals, which survive an agent restart. They contain each socket's counters, by
//! cookie, as of a record number in the spool. On load, the counts in later records are added. Does
//! no I/O.
//!
//! ```text
//! "TWSOCKS2" | of: 8 bytes | unix us: 8 | namespaces: 8 | counters: 8
//! each namespace: length of its name (0 for the agent's own): 8 | name | sockets: 8
//! each socket: cookie | totals, 8 bytes each
//! ```
//!
//! All numbers are little-endian. The spool adds the record number, the boot ID and a checksum.
//! Another release may have saved fewer or more counters. Counters that were not saved are in no
//! record yet, so they continue from zero. Files of version 1 do not state the number of counters.
//!
//! **Invariant:** totals and records agree: the counts in a socket's records never exceed its
//! totals.

use std::collections::HashMap;

use thalweg_record::{Batch, Cause, Counters, Record};

use super::counters::{COUNTERS, add, read_counters, write_counters};

const MAGIC: u64 = u64::from_le_bytes(*b"TWSOCKS2");
const MAGIC_1: u64 = u64::from_le_bytes(*b"TWSOCKS1");
/// Number of counters in version 1.
const COUNTERS_1: u64 = 16;
/// Maximum number of counters accepted from another release.
const COUNTERS_MAX: u64 = 256;

/// Saved sockets by namespace.
#[derive(Debug, Default)]
pub struct Saved {
    /// Hash of the socket filter and the sampling rate. Totals saved under other settings are not
    /// used.
    pub(super) of: u64,
    /// Sockets by namespace name. The agent's own namespace has an empty name.
    pub(super) namespaces: HashMap<String, HashMap<u64, SavedSocket>>,
}

/// A socket's saved state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedSocket {
    /// Time the socket was last seen, in microseconds since the Unix epoch.
    pub(crate) unix_us: u64,
    /// The socket's counters at that time. All these counts are in records.
    pub(crate) totals: Counters,
}

impl Saved {
    /// Starts the encoding. The caller must then call [`namespace`] exactly `namespaces` times.
    pub(crate) fn begin(of: u64, unix_us: u64, namespaces: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let head = [MAGIC, of, unix_us, namespaces as u64, COUNTERS];
        head.into_iter().for_each(|word| push_word(word, &mut out));
        out
    }

    /// Decodes saved state. Returns `None` if it is malformed.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (magic, of, unix_us, namespaces) = (word(bytes)?, word(bytes)?, word(bytes)?, word(bytes)?);
        let counters = match magic {
            MAGIC => word(bytes)?,
            MAGIC_1 => COUNTERS_1,
            _ => return None,
        };
        if counters > COUNTERS_MAX {
            return None;
        }
        let mut saved = Self { of, namespaces: HashMap::new() };
        for _ in 0..namespaces {
            let name_bytes = usize::try_from(word(bytes)?).ok()?;
            let name = bytes.split_off(..name_bytes)?;
            let mut sockets = HashMap::new();
            for _ in 0..word(bytes)? {
                let cookie = word(bytes)?;
                sockets.insert(cookie, SavedSocket { unix_us, totals: read_totals(counters, bytes)? });
            }
            saved.namespaces.insert(String::from_utf8(name.to_vec()).ok()?, sockets);
        }
        bytes.is_empty().then_some(saved)
    }

    /// Returns the saved totals of a socket in the agent's own namespace.
    #[cfg(test)]
    pub(crate) fn totals(&self, cookie: u64) -> Option<&Counters> {
        self.namespaces.get("")?.get(&cookie).map(|known| &known.totals)
    }

    /// Adds the counts in records written since the state was saved.
    pub fn add(&mut self, batch: &Batch) {
        for entry in &batch.entries {
            let Record::Socket(socket) = &entry.record else { continue };
            let sockets = self.namespaces.entry(socket.namespace.clone().unwrap_or_default()).or_default();
            match (socket.cause, &socket.counters) {
                (Cause::Destroy, _) => _ = sockets.remove(&socket.cookie),
                (Cause::Dump, Some(counters)) => {
                    let totals = Counters::default();
                    let known = sockets.entry(socket.cookie).or_insert(SavedSocket { unix_us: 0, totals });
                    known.unix_us = socket.time_unix_us;
                    add(&mut known.totals, counters);
                }
                (Cause::Dump, None) => {}
            }
        }
    }
}

/// Appends a namespace's sockets to the encoding.
pub(crate) fn namespace<'a>(
    name: &str,
    sockets: impl ExactSizeIterator<Item = (u64, &'a Counters)>,
    out: &mut Vec<u8>,
) {
    push_word(name.len() as u64, out);
    out.extend_from_slice(name.as_bytes());
    push_word(sockets.len() as u64, out);
    for (cookie, totals) in sockets {
        push_word(cookie, out);
        write_counters(totals, |word| push_word(word, out));
    }
}

/// Reads a socket's totals, of which `counters` were saved.
fn read_totals(counters: u64, bytes: &mut &[u8]) -> Option<Counters> {
    let mut left = counters;
    let totals = read_counters(|| match left.checked_sub(1) {
        Some(fewer) => {
            left = fewer;
            word(bytes)
        }
        None => Some(0),
    })?;
    for _ in 0..left {
        word(bytes)?;
    }
    Some(totals)
}

fn push_word(word: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let word = bytes.split_off(..8)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{TIME_US, batch, record};

    fn counters(bytes_acked: u64, timeouts: u32) -> Counters {
        Counters { bytes_acked, timeouts, sndbuf_limited_us: u64::MAX, ..Counters::default() }
    }

    fn encoded() -> Vec<u8> {
        let mut out = Saved::begin(3, TIME_US, 2);
        let (one, other) = (counters(1, 2), counters(u64::MAX, 65_535));
        namespace("", [(7, &one), (9, &other)].into_iter(), &mut out);
        namespace("blue", [].into_iter(), &mut out);
        out
    }

    #[test]
    fn saved_totals_are_decoded_and_advanced_by_records() {
        let mut saved = Saved::decode(&encoded()).unwrap();
        assert_eq!((saved.of, saved.namespaces.len(), saved.namespaces["blue"].len()), (3, 2, 0));
        assert_eq!(saved.namespaces[""][&7], SavedSocket { unix_us: TIME_US, totals: counters(1, 2) });
        assert_eq!(saved.namespaces[""][&9].totals, counters(u64::MAX, 65_535));

        let mut sockets = (0..).map(record).filter_map(|(_, record)| match record {
            Record::Socket(socket) => Some(socket),
            _ => None,
        });
        let mut socket = |cookie, cause, counters| {
            let mut socket = sockets.next().unwrap();
            (socket.cookie, socket.cause, socket.counters) = (cookie, cause, Some(counters));
            (thalweg_record::Network::default(), Record::Socket(socket))
        };
        let more = Counters { bytes_acked: 10, timeouts: 1, ..Counters::default() };
        let records = vec![
            socket(7, Cause::Dump, more.clone()),
            socket(7, Cause::Dump, more.clone()),
            socket(9, Cause::Destroy, more.clone()),
            socket(11, Cause::Dump, more.clone()),
        ];
        saved.add(&batch(0, records));
        let sockets = &saved.namespaces[""];
        assert_eq!(sockets[&7].totals, counters(21, 4));
        assert_eq!((sockets.get(&9), &sockets[&11].totals), (None, &more));
    }

    #[test]
    fn state_of_other_releases_is_read() {
        let decoded = |bytes: &[u8]| Saved::decode(bytes).unwrap().namespaces[""][&7].totals.clone();
        let words = |head: &[u64], counters: u64| {
            let mut out = Vec::new();
            let totals = (0..counters).map(|at| 100 + at);
            head.iter().copied().chain([0, 1, 7]).chain(totals).for_each(|word| push_word(word, &mut out));
            out
        };
        // Version 1 began with these counters and ended with `sndbuf_limited_us`.
        let first = decoded(&words(&[MAGIC_1, 3, TIME_US, 1], COUNTERS_1));
        assert_eq!((first.timeouts, first.bytes_acked, first.sndbuf_limited_us), (100, 101, 115));
        assert_eq!((first.data_segs_in, first.received_ce_bytes), (0, 0));
        let newer = decoded(&words(&[MAGIC, 3, TIME_US, 1, COUNTERS + 2], COUNTERS + 2));
        assert_eq!(newer.received_ce_bytes, u32::try_from(99 + COUNTERS).unwrap());
        assert!(Saved::decode(&words(&[MAGIC, 3, TIME_US, 1, u64::MAX], 16)).is_none());
    }

    proptest! {
        #[test]
        fn truncated_or_extended_input_is_rejected(cut in 0..encoded().len(), more in 1..20_usize) {
            let bytes = encoded();
            prop_assert!(Saved::decode(&bytes[..cut]).is_none());
            prop_assert!(Saved::decode(&[&bytes[..], &vec![0; more]].concat()).is_none());
        }
    }
}
