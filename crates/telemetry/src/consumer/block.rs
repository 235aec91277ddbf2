//! A block: the messages of a partition from one offset to another, as rows of each table. Pure.
//!
//! **Invariant:** the same messages have the same token, and after the same places make the same block, byte for byte.
//! **Invariant:** a message that is not above the highest place of its source so far was sent again, and gives no row.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use thalweg_record::rows::Table;
use thalweg_record::{Batch, Entry, Source};

use crate::clickhouse::{Rows, rowbinary};
use crate::kafka::Place;

/// No block grows after it has this many bytes of rows.
pub(super) const BLOCK_BYTES_MAX: usize = 16 << 20;

/// The columns of `refused`, in the order in which [`Block::add`] writes them.
pub(super) const REFUSED: [&str; 6] =
    ["time", "topic", "kafka_partition", "kafka_offset", "reason", "message"];

/// The columns of `positions`, in the order in which [`Block::positions`] writes them.
pub(super) const POSITIONS: [&str; 6] = ["topic", "kafka_partition", "host", "epoch", "batch_end", "part"];

/// The highest place of each source (host and epoch) in a partition.
pub(super) type Places = HashMap<(String, u64), Place>;

/// How much is taken into a block that nothing else ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows.
    pub rows_max: u64,
    /// Time since its first message.
    pub wait_max: Duration,
}

/// A message as Kafka has it.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) offset: i64,
    pub(super) time_unix_ms: i64,
    pub(super) place: Option<Place>,
    pub(super) content: &'a [u8],
}

/// A block that is being filled, of one partition.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it begins.
    pub(super) first: i64,
    /// Behind its last message.
    pub(super) end: i64,
    /// Where it has to end: it was begun before, by somebody who may have inserted it.
    pub(super) until: Option<i64>,
    /// Rows by table, in the order of [`Table::ALL`].
    pub(super) rows: [Rows; Table::ALL.len()],
    /// Rows of `refused`: messages that could not be read.
    pub(super) refused: Rows,
    /// Messages that were sent again.
    pub(super) repeated_messages: u64,
    since: Option<Instant>,
    first_record: String,
    places: Places,
    /// The sources that have messages in it.
    moved: BTreeSet<(String, u64)>,
}

impl Block {
    /// An empty block that begins at an offset, behind messages of these places.
    pub(super) fn at(first: i64, until: Option<i64>, places: Places) -> Self {
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

    /// The empty block that follows this one.
    pub(super) fn next(self) -> Self {
        Self::at(self.end, None, self.places)
    }

    /// Whether a message is behind where the block has to end.
    pub(super) fn ends_before(&self, offset: i64) -> bool {
        self.until.is_some_and(|until| offset >= until)
    }

    /// Takes a message.
    pub(super) fn add(&mut self, topic: &str, partition: i32, message: &Message<'_>, now: Instant) {
        self.since.get_or_insert(now);
        self.end = message.offset + 1;
        match Batch::decode(message.content) {
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
                out.extend_from_slice(&partition.to_le_bytes());
                out.extend_from_slice(&message.offset.to_le_bytes());
                rowbinary::append_text(reason.as_bytes(), out);
                rowbinary::append_text(message.content, out);
            }
        }
    }

    /// Whether a message was not taken before; it is now.
    fn is_new(&mut self, source: &Source, message: &Message<'_>) -> bool {
        let Some(place) = message.place else { return true };
        let key = (source.host.clone(), source.epoch);
        if self.places.get(&key).is_some_and(|taken| *taken >= place) {
            return false;
        }
        self.places.insert(key.clone(), place);
        self.moved.insert(key);
        true
    }

    /// The rows of `positions`: how far each source that is in the block has come with it.
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
        let index = Table::ALL.iter().position(|known| *known == table).expect("each table is in ALL");
        rowbinary::append_row(source, entry, &mut self.rows[index].bytes);
        self.rows[index].count += 1;
    }

    /// Records in it.
    pub(super) fn records(&self) -> u64 {
        self.rows.iter().map(|rows| rows.count).sum()
    }

    /// Bytes of rows in it.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().chain([&self.refused]).map(|rows| rows.bytes.len()).sum()
    }

    /// When it is to be inserted, if nothing more comes; `None` while it has to be waited for.
    pub(super) fn due(&self, limits: Limits) -> Option<Instant> {
        let since = self.since?;
        match self.until {
            Some(until) => (self.end >= until).then_some(since),
            None if self.records() >= limits.rows_max || self.bytes() >= BLOCK_BYTES_MAX => Some(since),
            None => Some(since + limits.wait_max),
        }
    }

    /// What names the block. Offsets alone would name another once a topic is made anew under the old name; the first
    /// record tells them apart.
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

    fn filled(until: Option<i64>, offsets: &[i64], now: Instant) -> Block {
        let content = content();
        let mut block = Block::at(10, until, Places::new());
        for &offset in offsets {
            block.add("t", 1, &Message { offset, time_unix_ms: 0, place: None, content: &content }, now);
        }
        block
    }

    #[test]
    fn a_block_ends_by_rows_or_time() {
        let now = Instant::now();
        assert_eq!(filled(None, &[], now).due(LIMITS), None);
        assert_eq!(filled(None, &[11], now).due(LIMITS), Some(now + LIMITS.wait_max));
        let block = filled(None, &[11, 14], now);
        assert_eq!(block.due(LIMITS), Some(now));
        assert_eq!(block.token("t", 1), "t/1/10-15/a/7/5");
    }

    #[test]
    fn a_block_that_was_begun_before_ends_where_it_did() {
        let now = Instant::now();
        let block = filled(Some(17), &[11, 12, 13], now);
        assert_eq!(block.due(LIMITS), None);
        assert!(!block.ends_before(16) && block.ends_before(17));
        assert_eq!(filled(Some(17), &[11, 16], now).due(LIMITS), Some(now));
    }

    #[test]
    fn what_cannot_be_read_is_kept_whole() {
        let mut block = Block::at(0, None, Places::new());
        let message = Message { offset: 0, time_unix_ms: 2, place: None, content: b"\xff\xff" };
        block.add("t", 1, &message, Instant::now());
        assert_eq!((block.records(), block.refused.count), (0, 1));
        assert!(block.refused.bytes.starts_with(&[0xd0, 0x07, 0, 0, 0, 0, 0, 0, 1, b't', 1, 0, 0, 0]));
        assert!(block.refused.bytes.ends_with(b"\x02\xff\xff"));
    }

    #[test]
    fn what_is_sent_again_is_dropped_also_in_later_blocks() {
        let content = content();
        let mut block = Block::at(0, None, Places::new());
        let take = |block: &mut Block, offset, batch_end, part| {
            let place = Some(Place { batch_end, part });
            let before = block.records();
            let message = Message { offset, time_unix_ms: 5, place, content: &content };
            block.add("t", 1, &message, Instant::now());
            block.records() > before
        };
        let taken =
            [(6, 0), (6, 1), (6, 0), (6, 1), (6, 2)].map(|(end, part)| take(&mut block, 3, end, part));
        assert_eq!(taken, [true, true, false, false, true]);
        assert_eq!((block.repeated_messages, block.end), (2, 4));
        let mut next = block.next();
        assert_eq!((next.first, next.positions("t", 1).len()), (4, 0));
        assert!(!take(&mut next, 4, 6, 2));
        assert!(next.rows.iter().all(|rows| rows.bytes.is_empty()), "a message sent again gives no row");
        assert!(take(&mut next, 5, 9, 0));
        assert_eq!(next.token("t", 1), "t/1/4-6/a/7/5", "the token is of the messages, dropped ones too");
        let expected = b"\x01t\x01\0\0\0\x01a\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(next.positions("t", 1), expected);
    }
}
