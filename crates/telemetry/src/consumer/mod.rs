//! Consumer: moves messages from Kafka to ClickHouse in blocks, each inserted exactly once.
//!
//! A block is a range of offsets in one partition. The range is fixed in the group's committed
//! offset before the block is inserted ([`Member`]). The member that takes over the partition after
//! a crash or a rebalance builds the same block and inserts it under the same token, and ClickHouse
//! drops a block whose token it already has.
//!
//! Producers may repeat a batch, so each message carries its position among its source's messages.
//! The highest positions read from a partition are written to the table `positions` after the
//! block's rows, and read back when the partition is assigned.
//!
//! **Invariant:** no offset is committed before the rows up to that offset are in ClickHouse.
//! **Invariant:** an undecodable message does not stop the consumer; its full content is stored in
//! the table `refused`.
//! **Invariant:** while ClickHouse accepts no inserts, partitions are paused and nothing is read.
//! Memory use is bounded: one block per partition, and a size limit on all blocks together.

mod block;
mod figures;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thalweg_kafka::{ASK_TIMEOUT, Cluster, Member, Message, Place, UNREAD_SECONDS_MAX};
use thalweg_record::rows::Table;

use crate::backoff::Backoff;
use crate::clickhouse::{ATTEMPT_SECONDS_MAX, Doubt, Server, Target};
use crate::clock;
use crate::error::SinkError;
use block::{Block, Places};

pub use block::Limits;
pub use figures::Figures;

/// Maximum wait for a message in one poll, and so the maximum delay before a stop request takes
/// effect.
const POLL: Duration = Duration::from_millis(200);
/// Maximum time between the last poll and the start of a ClickHouse statement. A statement
/// started later could outlast the group's poll deadline, and the group would expel this member.
const STEP_AFTER_MAX: Duration = Duration::from_secs(60);
const _: () =
    assert!(STEP_AFTER_MAX.as_secs() + ATTEMPT_SECONDS_MAX + 2 * ASK_TIMEOUT.as_secs() < UNREAD_SECONDS_MAX);

/// Maximum total size of the rows in all open blocks, in bytes. Only blocks started by an earlier
/// member may exceed the limit, because their ends are fixed.
const BLOCKS_BYTES_MAX: usize = 8 * block::BLOCK_BYTES_MAX;

/// A consumer group member, and the blocks that it has read but not yet inserted.
#[derive(Debug)]
pub struct Consumer {
    member: Member,
    server: Server,
    limits: Limits,
    /// Open block of each assigned partition.
    blocks: BTreeMap<i32, Block>,
    polled_at: Cell<Instant>,
    /// Distinct read failures logged since the last message.
    logged_failures: Vec<String>,
    figures: Arc<Figures>,
}

/// The round was abandoned, because its partitions are, or may be, assigned to another member.
struct Abandoned;

impl Consumer {
    /// Joins a consumer group.
    ///
    /// # Errors
    ///
    /// Returns an error if a Kafka property is invalid.
    pub fn join(
        cluster: &Cluster,
        group: &str,
        server: Server,
        limits: Limits,
    ) -> Result<Self, thalweg_kafka::Error> {
        let figures = Arc::new(Figures::default());
        let lag = figures.lag_messages.clone();
        let member = Member::join(cluster, group, move |messages| {
            lag.set(i64::try_from(messages).unwrap_or(i64::MAX));
        })?;
        let polled_at = Cell::new(Instant::now());
        let (blocks, logged_failures) = (BTreeMap::new(), Vec::new());
        Ok(Self { member, server, limits, blocks, polled_at, logged_failures, figures })
    }

    /// Returns the consumer's metrics.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Runs until `stop` is set. Blocks still in memory are then discarded; the next member reads
    /// their messages again.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut backoff = Backoff::default();
        while !stop.load(Relaxed) {
            let blocks = self.figures.blocks.get();
            if self.round(stop).is_ok() {
                if self.figures.blocks.get() > blocks {
                    backoff = Backoff::default();
                }
                continue;
            }
            self.blocks.clear();
            let _ = self.member.resume();
            if let Err(error) = self.member.rejoin(backoff.pause()) {
                self.count_failure(&error);
            }
        }
    }

    /// Polls for a message, and inserts a block if one is due.
    fn round(&mut self, stop: &AtomicBool) -> Result<(), Abandoned> {
        let now = Instant::now();
        let due = self.blocks.values().filter_map(|block| block.due(self.limits)).min();
        let wait = due.map_or(POLL, |due| due.saturating_duration_since(now).min(POLL));
        self.polled_at.set(now);
        let message = self.member.poll(wait).unwrap_or_else(|error| {
            self.log_read_failure(&error);
            None
        });
        if self.member.is_rebalanced() {
            self.blocks.clear();
            self.member.acknowledge_rebalance().map_err(|error| self.abandon(&error))?;
        }
        if let Some(message) = message {
            self.logged_failures.clear();
            self.add(&message, stop)?;
        }
        match self.next_due() {
            Some(partition) => self.insert(partition, stop),
            None => Ok(()),
        }
    }

    /// Returns the partition whose block to insert next: one that is due, or the one with the
    /// largest block if all blocks together exceed their size limit. Returns only one, because the
    /// group expects a poll between inserts.
    fn next_due(&self) -> Option<i32> {
        let now = Instant::now();
        let due =
            self.blocks.iter().filter_map(|(&partition, block)| Some((block.due(self.limits)?, partition)));
        if let Some((_, partition)) = due.filter(|(due, _)| *due <= now).min() {
            return Some(partition);
        }
        let bytes: usize = self.blocks.values().map(Block::bytes).sum();
        let ours = self.blocks.iter().filter(|(_, block)| block.until.is_none());
        let (partition, _) =
            ours.max_by_key(|(_, block)| block.bytes()).filter(|_| bytes > BLOCKS_BYTES_MAX)?;
        Some(*partition)
    }

    /// Adds a message to its partition's block. The first message after an assignment only opens
    /// the block; reading then restarts at the block's first offset.
    fn add(&mut self, message: &Message, stop: &AtomicBool) -> Result<(), Abandoned> {
        let partition = message.partition;
        let Some(block) = self.blocks.get_mut(&partition) else {
            let block = self.open(partition, stop)?;
            self.blocks.insert(partition, block);
            return Ok(());
        };
        // A block with a fixed end may lack messages, even its last messages, because Kafka's
        // retention has deleted them.
        if block.ends_before(message.offset) {
            block.end = block.until.unwrap_or(block.end);
            self.insert(partition, stop)?;
        }
        let block = self.blocks.get_mut(&partition).expect("insert opens the next block");
        block.add(self.member.topic(), message, Instant::now());
        Ok(())
    }

    /// Opens a block for a newly assigned partition: the block started by an earlier member, or a
    /// new block.
    fn open(&self, partition: i32, stop: &AtomicBool) -> Result<Block, Abandoned> {
        let range = self.member.committed(partition).map_err(|error| self.abandon(&error))?;
        // Read the positions after the committed offset, so that they cover at least all messages
        // before it.
        let places = self.until_done(stop, || self.places(partition))?;
        self.member.seek(partition, range).map_err(|error| self.abandon(&error))?;
        Ok(Block::new(range.first.unwrap_or(0), range.end, places))
    }

    /// Reads the highest positions stored in ClickHouse for a partition.
    fn places(&self, partition: i32) -> Result<Places, SinkError> {
        let place = "max((batch_end, part)) AS place";
        let query = format!(
            "SELECT host, epoch, place.1, place.2 FROM (SELECT host, epoch, {place} FROM positions \
             WHERE topic = '{}' AND kafka_partition = {partition} GROUP BY host, epoch)",
            self.member.topic() // Kafka allows only letters, digits, '.', '_' and '-'
        );
        let answer = self.server.query(&query, "JSONCompactEachRow")?;
        let rows = serde_json::Deserializer::from_slice(&answer).into_iter::<(String, u64, u64, u32)>();
        rows.map(|row| row.map(|(host, epoch, batch_end, part)| ((host, epoch), Place { batch_end, part })))
            .collect::<Result<_, _>>()
            .map_err(|cause| SinkError {
                what: "cannot read positions".into(),
                is_passing: false,
                cause: Box::new(cause),
            })
    }

    /// Inserts a block. Its range is committed before the insert, and its completion after it.
    fn insert(&mut self, partition: i32, stop: &AtomicBool) -> Result<(), Abandoned> {
        let block = self.blocks.remove(&partition).expect("a due block is open");
        let begun = self.member.commit_begin(partition, block.first, block.end);
        begun.map_err(|error| self.abandon(&error))?;
        self.insert_rows(partition, &block, stop)?;
        self.member.commit_end(partition, block.end).map_err(|error| self.abandon(&error))?;
        self.figures.records.inc_by(block.records());
        self.figures.messages_refused.inc_by(block.refused.count);
        self.figures.messages_repeated.inc_by(block.repeated_messages);
        self.figures.blocks.inc();
        self.blocks.insert(partition, block.next());
        Ok(())
    }

    /// Inserts a block's rows table by table, retrying each insert until it succeeds.
    fn insert_rows(&self, partition: i32, block: &Block, stop: &AtomicBool) -> Result<(), Abandoned> {
        let topic = self.member.topic();
        let token = block.token(topic, partition);
        let tables = Table::ALL.into_iter().map(Target::of).zip(&block.rows);
        for (target, rows) in tables.chain([(Target::refused(&block::REFUSED), &block.refused)]) {
            if rows.count > 0 {
                // A block with a fixed end may already have been inserted by the member that
                // started it.
                let mut doubt = Doubt::of(block.until.is_some());
                let verified = &self.figures.verified;
                self.until_done(stop, || doubt.insert(&self.server, &target, &token, rows, verified))?;
            }
        }
        // Insert positions last, because they imply that the block's rows are stored. Only the
        // highest position counts, so repeated or late rows are harmless and each attempt may use
        // its own token.
        let positions = block.positions(topic, partition);
        if positions.is_empty() {
            return Ok(());
        }
        self.until_done(stop, || {
            let attempt = format!("{token}/{}", clock::unix_us());
            self.server.insert("positions", &block::POSITIONS, &attempt, positions.clone())
        })
    }

    /// Retries a ClickHouse operation until it succeeds, the partitions are reassigned, or `stop`
    /// is set.
    fn until_done<T>(
        &self,
        stop: &AtomicBool,
        mut attempt: impl FnMut() -> Result<T, SinkError>,
    ) -> Result<T, Abandoned> {
        if self.polled_at.get().elapsed() > STEP_AFTER_MAX {
            self.stay_member(Duration::ZERO, stop)?;
            self.resume()?;
        }
        let mut backoff = Backoff::default();
        loop {
            let error = match attempt() {
                Ok(done) => {
                    if !backoff.is_first() {
                        self.resume()?;
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            if backoff.is_first() {
                tracing::warn!(%error, cause = %error.cause, is_passing = error.is_passing, "ClickHouse request failed, retrying");
            }
            self.figures.failures.inc();
            self.stay_member(backoff.pause(), stop)?;
        }
    }

    /// Pauses reading and polls, so that the group does not expel this member.
    fn stay_member(&self, wait: Duration, stop: &AtomicBool) -> Result<(), Abandoned> {
        self.member.pause().map_err(|error| self.abandon(&error))?;
        // Paused partitions return nothing, so a message or an error means that the assignment has
        // changed.
        let polled = self.member.poll(wait);
        self.polled_at.set(Instant::now());
        let is_ours = matches!(polled, Ok(None)) && !self.member.is_rebalanced();
        if is_ours && !stop.load(Relaxed) { Ok(()) } else { Err(Abandoned) }
    }

    fn resume(&self) -> Result<(), Abandoned> {
        self.member.resume().map_err(|error| self.abandon(&error))
    }

    fn abandon(&self, error: &thalweg_kafka::Error) -> Abandoned {
        self.count_failure(error);
        Abandoned
    }

    fn count_failure(&self, error: &thalweg_kafka::Error) {
        self.figures.failures.inc();
        tracing::warn!(%error, cause = %error.cause, "Kafka request failed, retrying");
    }

    /// Counts a read failure. Each distinct failure is logged once until a message arrives. The
    /// Kafka client retries reads on its own.
    fn log_read_failure(&mut self, error: &thalweg_kafka::Error) {
        self.figures.failures.inc();
        let cause = error.cause.to_string();
        if !self.logged_failures.contains(&cause) {
            tracing::warn!(%error, cause, "cannot read from Kafka, retrying");
            self.logged_failures.push(cause);
        }
    }
}
