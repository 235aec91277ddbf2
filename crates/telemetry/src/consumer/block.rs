//! Block: the messages of one partition between two offsets, encoded as rows per table. Does no I/O
//! and reads no clock.
//!
//! **Invariant:** the same messages always yield the same token and, given the same preceding
//! positions, the same block, byte for byte.
//! **Invariant:** a message that carries a position is a repeat, and adds no row, unless its
//! position is above the highest position seen from the message's source.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use thalweg_kafka::{Message, Place};
use thalweg_record::rows::Table;
use thalweg_record::{Batch, Entry, Source};

use crate::clickhouse::{Rows, rowbinary};

/// Total size of a block's rows, in bytes, at which the block is full.
pub(super) const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Columns of the table `refused`, in the order in which [`Block::add`] writes them.
pub(super) const REFUSED: [&str; 6] =
    ["time", "topic", "kafka_partition", "kafka_offset", "reason", "message"];

/// Columns of the table `positions`, in the order in which [`Block::positions`] writes them.
pub(super) const POSITIONS: [&str; 6] = ["topic", "kafka_partition", "host", "epoch", "batch_end", "part"];

/// Highest position of each source (host and epoch) in one partition.
pub(super) type Places = HashMap<(String, u64), Place>;

/// Limits at which a block is due for insertion. They do not apply to a block whose end is already
/// fixed by a committed range.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of rows per block.
    pub rows_max: u64,
    /// Maximum time since the block's first message.
    pub wait_max: Duration,
}

/// A block under construction from one partition's messages.
#[derive(Debug)]
pub(super) struct Block {
    /// Offset of the first message.
    pub(super) first: i64,
    /// Offset after the last message.
    pub(super) end: i64,
    /// Offset at which the block must end, if an earlier group member started the block and may
    /// have inserted it.
    pub(super) until: Option<i64>,
    /// Rows by table, in the order of [`Table::ALL`].
    pub(super) rows: [Rows; Table::ALL.len()],
    /// Rows for the table `refused`: messages that could not be decoded.
    pub(super) refused: Rows,
    /// Messages dropped as repeats.
    pub(super) repeated_messages: u64,
    since: Option<Instant>,
    first_record: String,
    places: Places,
    /// Sources that have messages in the block.
    moved: BTreeSet<(String, u64)>,
}

impl Block {
    /// Creates an empty block that starts at offset `first`. `places` are the positions of the
    /// messages before it.
    pub(super) fn new(first: i64, until: Option<i64>, places: Places) -> Self {
        Self {
            first,
            end: first,
            until,
            rows: Default::default(),
            refused: Rows::default(),
            repeated_messages: 0,
            since: None,
            first_record: String::new(),
            places,
            moved: BTreeSet::new(),
        }
    }

    /// Creates the empty block after this one.
    pub(super) fn next(self) -> Self {
        Self::new(self.end, None, self.places)
    }

    /// Returns whether `offset` is at or past the block's fixed end.
    pub(super) fn ends_before(&self, offset: i64) -> bool {
        self.until.is_some_and(|until| offset >= until)
    }

    /// Adds a message to the block.
    pub(super) fn add(&mut self, topic: &str, message: &Message, now: Instant) {
        self.since.get_or_insert(now);
        self.end = message.offset + 1;
        match Batch::decode(&message.content) {
            Ok(batch) => {
                if self.first_record.is_empty()
                    && let Some(first) = batch.entries.first()
                {
                    self.first_record =
                        format!("{}/{}/{}", batch.source.host, batch.source.epoch, first.number);
                }
                if self.is_new(&batch.source, message) {
                    batch.entries.iter().for_each(|entry| self.add_entry(&batch.source, entry));
                } else {
                    self.repeated_messages += 1;
                }
            }
            Err(error) => {
                let mut reason = error.to_string();
                if let Some(cause) = std::error::Error::source(&error) {
                    reason = format!("{reason}: {cause}");
                }
                self.refused.count += 1;
                let out = &mut self.refused.bytes;
                out.extend_from_slice(&message.time_unix_ms.saturating_mul(1000).to_le_bytes());
                rowbinary::append_text(topic.as_bytes(), out);
                out.extend_from_slice(&message.partition.to_le_bytes());
                out.extend_from_slice(&message.offset.to_le_bytes());
                rowbinary::append_text(reason.as_bytes(), out);
                rowbinary::append_text(&message.content, out);
            }
        }
    }

    /// Returns whether a message is new rather than a repeat. If it is new, its position is stored.
    fn is_new(&mut self, source: &Source, message: &Message) -> bool {
        let Some(place) = message.place else { return true };
        let key = (source.host.clone(), source.epoch);
        if self.places.get(&key).is_some_and(|taken| *taken >= place) {
            return false;
        }
        self.places.insert(key.clone(), place);
        self.moved.insert(key);
        true
    }

    /// Encodes the rows for the table `positions`: the highest position of each source in the
    /// block.
    pub(super) fn positions(&self, topic: &str, partition: i32) -> Vec<u8> {
        let mut out = Vec::new();
        for source in &self.moved {
            let Place { batch_end, part } = self.places[source];
            rowbinary::append_text(topic.as_bytes(), &mut out);
            out.extend_from_slice(&partition.to_le_bytes());
            rowbinary::append_text(source.0.as_bytes(), &mut out);
            out.extend_from_slice(&source.1.to_le_bytes());
            out.extend_from_slice(&batch_end.to_le_bytes());
            out.extend_from_slice(&part.to_le_bytes());
        }
        out
    }

    fn add_entry(&mut self, source: &Source, entry: &Entry) {
        let table = Table::of(&entry.record);
        let index = Table::ALL.iter().position(|known| *known == table).expect("ALL contains every table");
        rowbinary::append_row(source, entry, &mut self.rows[index].bytes);
        self.rows[index].count += 1;
    }

    /// Returns the number of records in the block.
    pub(super) fn records(&self) -> u64 {
        self.rows.iter().map(|rows| rows.count).sum()
    }

    /// Returns the size of the block's rows in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().chain([&self.refused]).map(|rows| rows.bytes.len()).sum()
    }

    /// Returns when to insert the block if no more messages arrive, or `None` if it is empty or has
    /// not reached its fixed end.
    pub(super) fn due(&self, limits: Limits) -> Option<Instant> {
        let since = self.since?;
        match self.until {
            Some(until) => (self.end >= until).then_some(since),
            None if self.records() >= limits.rows_max || self.bytes() >= BLOCK_BYTES_MAX => Some(since),
            None => Some(since + limits.wait_max),
        }
    }

    /// Returns the block's deduplication token. The token includes the first record's source and
    /// number, because offsets repeat when a topic is recreated under the same name.
    pub(super) fn token(&self, topic: &str, partition: i32) -> String {
        format!("{topic}/{partition}/{}-{}/{}", self.first, self.end, self.first_record)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_record::{LossRecord, Network, Record, Stage};

    use super::*;

    const LIMITS: Limits = Limits { rows_max: 2, wait_max: Duration::from_secs(1) };

    fn content() -> Vec<u8> {
        let record = Record::Loss(LossRecord { time_unix_us: 1, stage: Stage::Edge, records: 3 });
        let source = Source { host: "a".into(), pop: String::new(), epoch: 7 };
        let entries = vec![Entry { number: 5, network: Network::default(), record }];
        let mut out = Vec::new();
        Batch { source, entries }.encode(&mut out);
        out
    }

    fn message(offset: i64, place: Option<Place>, content: Vec<u8>) -> Message {
        Message { partition: 1, offset, time_unix_ms: 2, place, content }
    }

    fn filled(until: Option<i64>, offsets: &[i64], now: Instant) -> Block {
        let mut block = Block::new(10, until, Places::new());
        for &offset in offsets {
            block.add("t", &message(offset, None, content()), now);
        }
        block
    }

    #[test]
    fn block_is_due_by_rows_or_time() {
        let now = Instant::now();
        assert_eq!(filled(None, &[], now).due(LIMITS), None);
        assert_eq!(filled(None, &[11], now).due(LIMITS), Some(now + LIMITS.wait_max));
        let block = filled(None, &[11, 14], now);
        assert_eq!(block.due(LIMITS), Some(now));
        assert_eq!(block.token("t", 1), "t/1/10-15/a/7/5");
    }

    #[test]
    fn block_started_by_an_earlier_member_ends_at_its_fixed_end() {
        let now = Instant::now();
        let block = filled(Some(17), &[11, 12, 13], now);
        assert_eq!(block.due(LIMITS), None);
        assert!(!block.ends_before(16) && block.ends_before(17));
        assert_eq!(filled(Some(17), &[11, 16], now).due(LIMITS), Some(now));
    }

    #[test]
    fn undecodable_message_is_stored_whole() {
        let mut block = Block::new(0, None, Places::new());
        block.add("t", &message(0, None, b"\xff\xff".to_vec()), Instant::now());
        assert_eq!((block.records(), block.refused.count), (0, 1));
        assert!(block.refused.bytes.starts_with(&[0xd0, 0x07, 0, 0, 0, 0, 0, 0, 1, b't', 1, 0, 0, 0]));
        assert!(block.refused.bytes.ends_with(b"\x02\xff\xff"));
    }

    #[test]
    fn repeats_are_dropped_even_in_later_blocks() {
        let mut block = Block::new(0, None, Places::new());
        let take = |block: &mut Block, offset, batch_end, part| {
            let place = Some(Place { batch_end, part });
            let before = block.records();
            block.add("t", &message(offset, place, content()), Instant::now());
            block.records() > before
        };
        let taken =
            [(6, 0), (6, 1), (6, 0), (6, 1), (6, 2)].map(|(end, part)| take(&mut block, 3, end, part));
        assert_eq!(taken, [true, true, false, false, true]);
        assert_eq!((block.repeated_messages, block.end), (2, 4));
        let mut next = block.next();
        assert_eq!((next.first, next.positions("t", 1).len()), (4, 0));
        assert!(!take(&mut next, 4, 6, 2));
        assert!(next.rows.iter().all(|rows| rows.bytes.is_empty()), "a repeat must add no row");
        assert!(take(&mut next, 5, 9, 0));
        assert_eq!(next.token("t", 1), "t/1/4-6/a/7/5", "the token must cover dropped messages too");
        let expected = b"\x01t\x01\0\0\0\x01a\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(next.positions("t", 1), expected);
    }
}
