//! Consumer group member: reads its assigned partitions in offset ranges that can be repeated
//! exactly after a crash.
//!
//! Before a member stores the messages in a range [a,b), it commits offset a with b as metadata
//! ([`Member::commit_begin`]); afterwards it commits offset b ([`Member::commit_end`]). After a
//! crash or a rebalance, the partition's next member reads the commit ([`Member::committed`]) and
//! repeats exactly [a,b).
//!
//! **Invariant:** only these calls commit offsets.
//! **Invariant:** after every assignment, a partition is read from its committed offset.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{Message as _, Offset, Statistics, TopicPartitionList};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::fault::{self, Faults};
use crate::place::Place;

/// Time limit for a broker's response.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two polls, in seconds. The group removes a member that exceeds it.
pub const UNREAD_SECONDS_MAX: u64 = 300;

/// A message read from the topic.
#[derive(Debug)]
pub struct Message {
    /// Partition number.
    pub partition: i32,
    /// Offset within the partition.
    pub offset: i64,
    /// Time at which the message was sent, in milliseconds since the Unix epoch; 0 if unknown.
    pub time_unix_ms: i64,
    /// Place among the source's messages; `None` if no [`Producer`](crate::Producer) sent the
    /// message.
    pub place: Option<Place>,
    /// The encoded batch.
    pub content: Vec<u8>,
}

/// Range of offsets to read next from a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First offset; `None` before the first commit, to read from the start of the partition.
    pub first: Option<i64>,
    /// End of the range (exclusive), if an earlier member started the range and may have stored its
    /// messages; otherwise `None`.
    pub end: Option<i64>,
}

/// Counts rebalances, reports the consumer lag and stores connection faults.
struct Watch {
    rebalances: AtomicU64,
    faults: Faults,
    on_lag: Box<dyn Fn(u64) + Send + Sync>,
}

impl ClientContext for Watch {
    fn stats(&self, statistics: Statistics) {
        let partitions = statistics.topics.values().flat_map(|topic| topic.partitions.values());
        let lag = partitions.filter_map(|one| u64::try_from(one.consumer_lag).ok()).sum();
        (self.on_lag)(lag);
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        fault::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.faults.note(&error, reason);
    }
}

impl ConsumerContext for Watch {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.rebalances.fetch_add(1, Relaxed);
    }
}

/// A member of a consumer group.
pub struct Member {
    client: BaseConsumer<Watch>,
    topic: String,
    /// Number of rebalances acknowledged by the caller.
    rebalances_seen: u64,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Member {
    /// Joins a group. Calls `on_lag` every few seconds with the number of unread messages in the
    /// assigned partitions.
    ///
    /// # Errors
    ///
    /// Returns an error if a property is invalid.
    pub fn join(
        cluster: &Cluster,
        group: &str,
        on_lag: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let (rebalances, faults) = (AtomicU64::new(0), Faults::default());
        let watch = Watch { rebalances, faults, on_lag: Box::new(on_lag) };
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
        let failed = |cause| Error::new(format!("cannot read from Kafka at {}", cluster.brokers), cause);
        let client: BaseConsumer<Watch> = cluster.config(&ours).create_with_context(watch).map_err(failed)?;
        client.subscribe(&[&cluster.topic]).map_err(failed)?;
        Ok(Self { client, topic: cluster.topic.clone(), rebalances_seen: 0 })
    }

    /// Returns the topic name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the next message, waiting at most `wait` for it. The message may belong to a new
    /// assignment; see [`Self::is_rebalanced`].
    ///
    /// # Errors
    ///
    /// Returns an error if a read from the brokers fails. The client library retries the read.
    pub fn poll(&self, wait: Duration) -> Result<Option<Message>, Error> {
        let Some(message) = self.client.poll(wait) else { return Ok(None) };
        let message = message.map_err(|cause| self.failed("read", cause))?;
        self.client.context().faults.clear();
        Ok(Some(Message {
            partition: message.partition(),
            offset: message.offset(),
            time_unix_ms: message.timestamp().to_millis().unwrap_or(0),
            place: message.headers().and_then(Place::of),
            content: message.payload().unwrap_or_default().to_vec(),
        }))
    }

    /// Returns whether partitions were assigned or revoked since the caller's last
    /// [acknowledgement](Self::acknowledge_rebalance).
    pub fn is_rebalanced(&self) -> bool {
        self.client.context().rebalances.load(Relaxed) != self.rebalances_seen
    }

    /// Acknowledges a rebalance and resumes reading. The caller must have dropped its state for all
    /// partitions. Without resuming, a partition that was revoked while paused would still be
    /// paused when it is assigned again.
    ///
    /// # Errors
    ///
    /// Returns an error if the assignment is unknown.
    pub fn acknowledge_rebalance(&mut self) -> Result<(), Error> {
        self.rebalances_seen = self.client.context().rebalances.load(Relaxed);
        self.resume()
    }

    /// Pauses reading. The caller must keep polling, or the group removes this member. A message
    /// returned while reading is paused belongs to a new assignment.
    ///
    /// # Errors
    ///
    /// Returns an error if the assignment is unknown.
    pub fn pause(&self) -> Result<(), Error> {
        let assigned = self.client.assignment();
        let paused = assigned.and_then(|assigned| self.client.pause(&assigned));
        paused.map_err(|cause| self.failed("pause", cause))
    }

    /// Resumes reading.
    ///
    /// # Errors
    ///
    /// Returns an error if the assignment is unknown.
    pub fn resume(&self) -> Result<(), Error> {
        let assigned = self.client.assignment();
        let resumed = assigned.and_then(|assigned| self.client.resume(&assigned));
        resumed.map_err(|cause| self.failed("resume", cause))
    }

    /// Returns the committed range of a partition.
    ///
    /// # Errors
    ///
    /// Returns an error if the brokers do not respond.
    pub fn committed(&self, partition: i32) -> Result<Range, Error> {
        self.try_committed(partition).map_err(|cause| self.failed("read the committed offset of", cause))
    }

    fn try_committed(&self, partition: i32) -> Result<Range, KafkaError> {
        let mut request = TopicPartitionList::new();
        request.add_partition(&self.topic, partition);
        let committed = self.client.committed_offsets(request, ASK_TIMEOUT)?;
        let committed = committed.elements();
        let committed = committed.first().expect("the response has the requested partition");
        committed.error()?;
        let Offset::Offset(first) = committed.offset() else { return Ok(Range { first: None, end: None }) };
        Ok(Range { first: Some(first), end: committed.metadata().parse().ok() })
    }

    /// Moves a newly assigned partition to the start of its range. The first message after a
    /// rebalance may still belong to the previous assignment, from which the caller has dropped
    /// earlier messages. Without the seek, those messages would be skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if the brokers do not respond.
    pub fn seek(&self, partition: i32, range: Range) -> Result<(), Error> {
        let offset = range.first.map_or(Offset::Beginning, Offset::Offset);
        let sought = self.client.seek(&self.topic, partition, offset, ASK_TIMEOUT);
        sought.map_err(|cause| self.failed("seek in", cause))
    }

    /// Commits that the range from `first` up to `end` (exclusive) is about to be stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the commit is not acknowledged. Another member may then own the
    /// partition.
    pub fn commit_begin(&self, partition: i32, first: i64, end: i64) -> Result<(), Error> {
        self.commit(partition, first, &end.to_string())
    }

    /// Commits that all messages before `end` are stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the commit is not acknowledged. Another member may then own the
    /// partition.
    pub fn commit_end(&self, partition: i32, end: i64) -> Result<(), Error> {
        self.commit(partition, end, "")
    }

    fn commit(&self, partition: i32, offset: i64, metadata: &str) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        let mut one = list.add_partition(&self.topic, partition);
        let set = one.set_offset(Offset::Offset(offset));
        if !metadata.is_empty() {
            one.set_metadata(metadata);
        }
        let committed = set.and_then(|()| self.client.commit(&list, CommitMode::Sync));
        committed.map_err(|cause| self.failed("commit", cause))
    }

    /// Leaves the group, waits for `after` and rejoins. All partitions are then read from their
    /// committed offsets.
    ///
    /// # Errors
    ///
    /// Returns an error if subscribing to the topic fails.
    pub fn rejoin(&self, after: Duration) -> Result<(), Error> {
        self.client.unsubscribe();
        let _ = self.client.poll(after);
        self.client.subscribe(&[&self.topic]).map_err(|cause| self.failed("subscribe to", cause))
    }

    fn failed(&self, what: &str, cause: KafkaError) -> Error {
        let faults = &self.client.context().faults;
        Error::explained(format!("cannot {what} topic {}", self.topic), cause, faults)
    }
}
