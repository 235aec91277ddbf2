//! From Kafka to ClickHouse: messages of each partition in blocks, each block in the tables once.
//!
//! Before a block [a,b) is inserted, the group's offset is committed as a, with b as its metadata; afterwards as b, without. Who
//! takes the partition over in between, after a crash or a rebalance, reads exactly [a,b) and inserts it under the same token,
//! which ClickHouse drops if it knows it.
//!
//! A sink that is not sure sends a batch again. Each message has its place among those of its source; the highest that were taken
//! from a partition go into `positions`, behind the rows of their block, and are read from there when the partition is taken up.
//!
//! **Invariant:** no message is committed before its rows are in ClickHouse, and a block has every message of its range: reading
//! begins at the committed offset each time that a partition is taken up.
//! **Invariant:** a message that cannot be read holds nothing up: it goes whole into `refused`.
//! **Invariant:** while ClickHouse takes nothing, nothing is read: partitions are paused, and what is in memory is a block for
//! each, all together within a bound.

mod block;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{Message as _, Offset, Statistics, TopicPartitionList};
use thalweg_record::rows::Table;

use crate::clickhouse::{ATTEMPT_SECONDS_MAX, Doubt, Server, Target, Verified};
use crate::kafka::{Cluster, Place};
use crate::{Error, SinkError, clock};
use block::{Block, Message, Places};

pub use block::Limits;

/// How long a look for messages may last: a stop is noticed after it.
const POLL: Duration = Duration::from_millis(200);
/// How long a broker may take for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failure; each one after that doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// No pause is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The group gives up a member that does not read for so long, seconds.
const UNREAD_SECONDS_MAX: u64 = 300;
/// No step with ClickHouse is begun this long after the last read.
const STEP_AFTER_MAX: Duration = Duration::from_secs(60);
const _: () =
    assert!(STEP_AFTER_MAX.as_secs() + ATTEMPT_SECONDS_MAX + 2 * ASK_TIMEOUT.as_secs() < UNREAD_SECONDS_MAX);

/// Blocks of all partitions together have no more bytes of rows than this, but for what is of a block begun before.
const BLOCKS_BYTES_MAX: usize = 8 * block::BLOCK_BYTES_MAX;

/// What the consumer has done, for metrics.
#[derive(Debug, Default)]
pub struct Figures {
    /// Records inserted.
    pub records: AtomicU64,
    /// Messages that could not be read, inserted into `refused`.
    pub refused: AtomicU64,
    /// Messages that were sent again, and dropped.
    pub repeated: AtomicU64,
    /// Blocks inserted.
    pub blocks: AtomicU64,
    /// Looks for blocks that may have been lost to a kill of ClickHouse.
    pub verified: Verified,
    /// Failed attempts: at inserting, committing, reading.
    pub failures: AtomicU64,
    /// Messages that are in the assigned partitions and were not committed, as of a moment ago.
    pub lag_messages: AtomicU64,
}

/// Sees when partitions come and go, and how far behind they are.
struct Watch {
    rebalances: AtomicU64,
    figures: Arc<Figures>,
}

impl ClientContext for Watch {
    fn stats(&self, statistics: Statistics) {
        let partitions = statistics.topics.values().flat_map(|topic| topic.partitions.values());
        let lag = partitions.filter_map(|one| u64::try_from(one.consumer_lag).ok()).sum();
        self.figures.lag_messages.store(lag, Relaxed);
    }
}

impl ConsumerContext for Watch {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.rebalances.fetch_add(1, Relaxed);
    }
}

/// A member of the group, with what it has read and not inserted.
pub struct Consumer {
    kafka: BaseConsumer<Watch>,
    server: Server,
    topic: String,
    limits: Limits,
    /// By partition; as of the rebalance whose number is `seen`.
    blocks: BTreeMap<i32, Block>,
    seen: u64,
    read_at: Cell<Instant>,
    /// Why nothing can be read: what was told since something was.
    told: Vec<KafkaError>,
    figures: Arc<Figures>,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// Why a round ended early: the partitions are no longer ours, or are not known to be.
struct Abandoned;

impl Consumer {
    /// Joins a group.
    ///
    /// # Errors
    /// When a property is wrong.
    pub fn join(cluster: &Cluster, group: &str, server: Server, limits: Limits) -> Result<Self, Error> {
        let figures = Arc::new(Figures::default());
        let watch = Watch { rebalances: AtomicU64::new(0), figures: Arc::clone(&figures) };
        let unread_max_ms = (UNREAD_SECONDS_MAX * 1000).to_string();
        let ours = [
            ("group.id", group),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("max.poll.interval.ms", &unread_max_ms),
            ("partition.assignment.strategy", "range"),
            ("queued.max.messages.kbytes", "32768"),
            ("session.timeout.ms", "10000"),
            ("statistics.interval.ms", "5000"),
        ];
        let failed = |cause| Error::of(format!("cannot read Kafka at {}", cluster.brokers), cause);
        let kafka: BaseConsumer<Watch> = cluster.config(&ours).create_with_context(watch).map_err(failed)?;
        kafka.subscribe(&[&cluster.topic]).map_err(failed)?;
        let topic = cluster.topic.clone();
        let read_at = Cell::new(Instant::now());
        let (blocks, told) = (BTreeMap::new(), Vec::new());
        Ok(Self { kafka, server, topic, limits, blocks, seen: 0, read_at, told, figures })
    }

    /// What it has done.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Runs until it is told to stop. What is in memory then is read again by whoever gets the partitions next.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut backoff = BACKOFF_MIN;
        while !stop.load(Relaxed) {
            let blocks = self.figures.blocks.load(Relaxed);
            if self.round(stop).is_ok() {
                if self.figures.blocks.load(Relaxed) > blocks {
                    backoff = BACKOFF_MIN;
                }
                continue;
            }
            self.blocks.clear();
            let _ = self.pause(false);
            // Joining anew gives the partitions back from where they are committed.
            self.kafka.unsubscribe();
            let _ = self.kafka.poll(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
            if let Err(cause) = self.kafka.subscribe(&[&self.topic]) {
                self.failed("subscribe", &cause);
            }
        }
    }

    /// Reads a message if there is one, and inserts what is due.
    fn round(&mut self, stop: &AtomicBool) -> Result<(), Abandoned> {
        let now = Instant::now();
        let due = self.blocks.values().filter_map(|block| block.due(self.limits)).min();
        let wait = due.map_or(POLL, |due| due.saturating_duration_since(now).min(POLL));
        self.read_at.set(now);
        let read = {
            let message = self.kafka.poll(wait);
            match message {
                Some(Ok(message)) => Some((
                    message.partition(),
                    message.offset(),
                    message.timestamp().to_millis().unwrap_or(0),
                    message.headers().and_then(Place::of),
                    message.payload().unwrap_or_default().to_vec(),
                )),
                Some(Err(cause)) => {
                    // Its library reads on by itself, and tells of a broker that is away.
                    self.figures.failures.fetch_add(1, Relaxed);
                    if !self.told.contains(&cause) {
                        tracing::warn!(topic = self.topic, %cause, "cannot read");
                        self.told.push(cause);
                    }
                    None
                }
                None => None,
            }
        };
        let rebalances = self.kafka.context().rebalances.load(Relaxed);
        if rebalances != self.seen {
            self.seen = rebalances;
            self.blocks.clear();
            // A partition that was paused when it went comes back paused.
            self.pause(false)?;
        }
        if let Some((partition, offset, time_unix_ms, place, content)) = read {
            self.told.clear();
            self.take(partition, &Message { offset, time_unix_ms, place, content: &content }, stop)?;
        }
        match self.next_due() {
            Some(partition) => self.insert(partition, stop),
            None => Ok(()),
        }
    }

    /// The partition whose block is to be inserted now. One at a time, since the group has to see us read in between; the
    /// largest, when all together have outgrown their bound.
    fn next_due(&self) -> Option<i32> {
        let due = |block: &Block| block.due(self.limits);
        let now = Instant::now();
        let (partition, _) = self
            .blocks
            .iter()
            .filter_map(|(&partition, block)| Some((partition, due(block).filter(|due| *due <= now)?)))
            .min_by_key(|&(_, due)| due)
            .or_else(|| {
                let bytes: usize = self.blocks.values().map(Block::bytes).sum();
                let whole = self.blocks.iter().filter(|(_, block)| block.until.is_none());
                let largest = whole.max_by_key(|(_, block)| block.bytes())?;
                (bytes > BLOCKS_BYTES_MAX).then_some((*largest.0, now))
            })?;
        Some(partition)
    }

    fn take(&mut self, partition: i32, message: &Message<'_>, stop: &AtomicBool) -> Result<(), Abandoned> {
        if !self.blocks.contains_key(&partition) {
            let block = self.begin(partition, stop)?;
            self.blocks.insert(partition, block);
            return Ok(());
        }
        // Messages of a block that was begun may be gone by now, those at its end too.
        if self.blocks[&partition].ends_before(message.offset) {
            let block = self.blocks.get_mut(&partition).expect("it was put there above");
            block.end = block.until.unwrap_or(block.end);
            self.insert(partition, stop)?;
        }
        let block = self.blocks.get_mut(&partition).expect("a block follows a block");
        block.add(&self.topic, partition, message, Instant::now());
        Ok(())
    }

    /// The block of a partition that has come to us: the one that was begun before, or a new one. Reading goes back to where it
    /// begins: the message at hand may be of the assignment before, behind others that were dropped with it.
    fn begin(&self, partition: i32, stop: &AtomicBool) -> Result<Block, Abandoned> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&self.topic, partition);
        let failed = |cause| self.abandon("go to the offset", &cause);
        let known = self.kafka.committed_offsets(asked, ASK_TIMEOUT).map_err(failed)?;
        let known = known.elements();
        let known = known.first().expect("what was asked for is in the answer");
        known.error().map_err(failed)?;
        let places = self.until_done(stop, || self.places(partition))?;
        let (block, place) = match known.offset() {
            Offset::Offset(first) => {
                (Block::at(first, known.metadata().parse().ok(), places), known.offset())
            }
            _ => (Block::at(0, None, places), Offset::Beginning),
        };
        self.kafka.seek(&self.topic, partition, place, ASK_TIMEOUT).map_err(failed)?;
        Ok(block)
    }

    /// The highest places of a partition that ClickHouse has.
    fn places(&self, partition: i32) -> Result<Places, SinkError> {
        let place = "max((batch_end, part)) AS place";
        let query = format!(
            "SELECT host, epoch, place.1, place.2 FROM (SELECT host, epoch, {place} FROM positions \
             WHERE topic = '{}' AND kafka_partition = {partition} GROUP BY host, epoch)",
            self.topic // of letters, digits, '.', '_' and '-': Kafka has no others
        );
        let answer = self.server.query(&query, "JSONCompactEachRow")?;
        let rows = serde_json::Deserializer::from_slice(&answer).into_iter::<(String, u64, u64, u32)>();
        rows.map(|row| row.map(|(host, epoch, batch_end, part)| ((host, epoch), Place { batch_end, part })))
            .collect::<Result<_, _>>()
            .map_err(|cause| SinkError {
                what: "cannot read the positions".into(),
                is_passing: false,
                cause: Box::new(cause),
            })
    }

    /// Inserts a block, behind a commit that says what is coming, and before one that says what is done.
    fn insert(&mut self, partition: i32, stop: &AtomicBool) -> Result<(), Abandoned> {
        let block = self.blocks.remove(&partition).expect("what is due is there");
        self.commit(partition, block.first, &block.end.to_string())?;
        self.insert_rows(partition, &block, stop)?;
        self.commit(partition, block.end, "")?;
        self.figures.records.fetch_add(block.records(), Relaxed);
        self.figures.refused.fetch_add(block.refused.count, Relaxed);
        self.figures.repeated.fetch_add(block.repeated_messages, Relaxed);
        self.figures.blocks.fetch_add(1, Relaxed);
        self.blocks.insert(partition, block.next());
        Ok(())
    }

    fn commit(&self, partition: i32, offset: i64, metadata: &str) -> Result<(), Abandoned> {
        let failed = |cause| self.abandon("commit", &cause);
        let mut list = TopicPartitionList::new();
        let mut one = list.add_partition(&self.topic, partition);
        one.set_offset(Offset::Offset(offset)).map_err(failed)?;
        if !metadata.is_empty() {
            one.set_metadata(metadata);
        }
        self.kafka.commit(&list, CommitMode::Sync).map_err(failed)
    }

    /// Has ClickHouse do something, however long it takes, unless the partitions go.
    fn until_done<T>(
        &self,
        stop: &AtomicBool,
        mut attempt: impl FnMut() -> Result<T, SinkError>,
    ) -> Result<T, Abandoned> {
        if self.read_at.get().elapsed() > STEP_AFTER_MAX {
            self.stay(Duration::ZERO, stop)?;
            self.pause(false)?;
        }
        let mut backoff = BACKOFF_MIN;
        loop {
            let error = match attempt() {
                Ok(done) => {
                    if backoff > BACKOFF_MIN {
                        self.pause(false)?;
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            if backoff == BACKOFF_MIN {
                tracing::warn!(%error, cause = %error.cause, is_passing = error.is_passing, "ClickHouse fails, trying again");
            }
            self.figures.failures.fetch_add(1, Relaxed);
            self.stay(backoff, stop)?;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Lets the group hear of us, and nothing be read: partitions are paused then.
    fn stay(&self, wait: Duration, stop: &AtomicBool) -> Result<(), Abandoned> {
        self.pause(true)?;
        // Paused partitions give nothing; what comes is of a new assignment.
        let read = self.kafka.poll(wait);
        self.read_at.set(Instant::now());
        let is_ours = read.is_none() && self.kafka.context().rebalances.load(Relaxed) == self.seen;
        if is_ours && !stop.load(Relaxed) { Ok(()) } else { Err(Abandoned) }
    }

    fn pause(&self, is_paused: bool) -> Result<(), Abandoned> {
        let assignment = self.kafka.assignment().map_err(|cause| self.abandon("pause", &cause))?;
        let done = if is_paused { self.kafka.pause(&assignment) } else { self.kafka.resume(&assignment) };
        done.map_err(|cause| self.abandon("pause", &cause))
    }

    /// One table after the other, each until it has its rows.
    fn insert_rows(&self, partition: i32, block: &Block, stop: &AtomicBool) -> Result<(), Abandoned> {
        let token = block.token(&self.topic, partition);
        let tables = Table::ALL.into_iter().map(Target::of).zip(&block.rows);
        for (target, rows) in tables.chain([(Target::refused(&block::REFUSED), &block.refused)]) {
            if rows.count > 0 {
                // One that was begun before may have been tried before.
                let mut doubt = Doubt::of(block.until.is_some());
                let verified = &self.figures.verified;
                self.until_done(stop, || doubt.insert(&self.server, &target, &token, rows, verified))?;
            }
        }
        // The last, since whoever finds these takes the rows to be there. The highest counts, so they may be there twice, and come
        // late: a new token each time.
        let positions = block.positions(&self.topic, partition);
        if positions.is_empty() {
            return Ok(());
        }
        self.until_done(stop, || {
            let attempt = format!("{token}/{}", clock::unix_us());
            self.server.insert("positions", &block::POSITIONS, &attempt, positions.clone())
        })
    }

    fn abandon(&self, what: &str, cause: &KafkaError) -> Abandoned {
        self.failed(what, cause);
        Abandoned
    }

    fn failed(&self, what: &str, cause: &KafkaError) {
        self.figures.failures.fetch_add(1, Relaxed);
        tracing::warn!(topic = self.topic, %cause, "cannot {what}");
    }
}
