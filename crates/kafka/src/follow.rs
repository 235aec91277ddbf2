//! Follower: reads every partition of a topic from a given time on, without a group, for readers
//! that store no offsets.
//!
//! **Invariant:** a repeated message is returned once, as long as its source's last place in that
//! partition is kept.

mod progress;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use thalweg_record::Batch;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::place::Place;
use progress::Progress;

/// Maximum wait for a message in one poll.
const POLL: Duration = Duration::from_millis(200);
/// Maximum time for a broker's response.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks for new partitions.
const PARTITIONS_PERIOD: Duration = Duration::from_secs(60);
/// Interval between requests for the ends of partitions.
const ENDS_PERIOD: Duration = Duration::from_secs(2);
/// Maximum time for a request for an end; nothing is read meanwhile.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a broker failed to report an end, so that other partitions are read first.
const ENDS_PAUSE: Duration = Duration::from_secs(10);
/// Interval between checks for partitions while the topic has none.
const TOPIC_PERIOD: Duration = Duration::from_secs(1);
/// Maximum sources (host and epoch, per partition) whose last places are kept.
const PLACES_MAX: usize = 1_000_000;

/// The result of one read.
#[derive(Debug)]
pub enum Followed {
    /// Records read for the first time.
    Batch(Batch),
    /// A repeated message.
    Repeated,
    /// A message that is not a batch, with the reason.
    Unreadable(String),
    /// No message for now.
    Nothing,
}

/// Reads all partitions of a topic.
pub struct Follower {
    kafka: BaseConsumer,
    /// Client that requests the ends of partitions; on the connection of `kafka`, the response
    /// would wait behind a fetch.
    ends: BaseConsumer,
    topic: String,
    /// Progress of the assigned partitions.
    partitions: BTreeMap<i32, Progress>,
    /// Whether every partition of the topic is assigned.
    has_all: bool,
    partitions_asked_at: Option<Instant>,
    /// When to request the ends of partitions again.
    ask_ends_at: Instant,
    places: HashMap<(i32, String, u64), Place>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Follower {
    /// Creates a follower of the cluster's topic. Connects later.
    ///
    /// # Errors
    /// When a property is invalid.
    pub fn open(cluster: &Cluster) -> Result<Self, Error> {
        // librdkafka requires a group; with manual assignment and without commits it joins none.
        let ours = [
            ("group.id", "thalweg-tail"),
            ("auto.offset.reset", "latest"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("queued.max.messages.kbytes", "32768"),
        ];
        let failed = |cause| Error::new(format!("cannot read Kafka at {}", cluster.brokers), cause);
        let kafka = cluster.config(&ours).create().map_err(failed)?;
        let ends = cluster.config(&ours).create().map_err(failed)?;
        let topic = cluster.topic.clone();
        Ok(Self {
            kafka,
            ends,
            topic,
            partitions: BTreeMap::new(),
            has_all: false,
            partitions_asked_at: None,
            ask_ends_at: Instant::now(),
            places: HashMap::new(),
        })
    }

    /// Returns the time up to which everything is read, in milliseconds since the Unix epoch;
    /// `None` until all partitions are assigned and their ends are known.
    pub fn read_to_unix_ms(&self) -> Option<i64> {
        let times: Option<Vec<_>> =
            self.partitions.values().map(|progress| progress.read_to_unix_ms).collect();
        times?.into_iter().min().filter(|_| self.has_all)
    }

    /// Returns the next message, waiting briefly for one. Newly found partitions are read from
    /// `since_unix_ms` on.
    ///
    /// # Errors
    /// When the brokers do not respond now.
    pub fn read(&mut self, since_unix_ms: i64) -> Result<Followed, Error> {
        let period = if self.partitions.is_empty() { TOPIC_PERIOD } else { PARTITIONS_PERIOD };
        if self.partitions_asked_at.is_none_or(|at| at.elapsed() >= period) {
            // If this fails, assigned partitions are still read.
            self.partitions_asked_at = Some(Instant::now());
            if let Err(cause) = self.assign(since_unix_ms) {
                self.partitions_asked_at = self.partitions_asked_at.filter(|_| !self.partitions.is_empty());
                return Err(self.failed(cause));
            }
        }
        self.ask_ends();
        let message = match self.kafka.poll(POLL) {
            None => return Ok(Followed::Nothing),
            Some(Err(cause)) => return Err(self.failed(cause)),
            Some(Ok(message)) => message,
        };
        if let Some(progress) = self.partitions.get_mut(&message.partition()) {
            progress.read(message.offset());
        }
        let batch = match Batch::decode(message.payload().unwrap_or_default()) {
            Ok(batch) => batch,
            Err(error) => return Ok(Followed::Unreadable(error.to_string())),
        };
        if let Some(place) = message.headers().and_then(Place::of) {
            let key = (message.partition(), batch.source.host.clone(), batch.source.epoch);
            if self.places.get(&key).is_some_and(|taken| *taken >= place) {
                return Ok(Followed::Repeated);
            }
            if self.places.len() >= PLACES_MAX {
                self.places.clear();
            }
            self.places.insert(key, place);
        }
        Ok(Followed::Batch(batch))
    }

    /// Assigns partitions that are not assigned yet. If a broker does not respond for one, the next
    /// call retries.
    fn assign(&mut self, since_unix_ms: i64) -> Result<(), KafkaError> {
        let metadata = self.kafka.fetch_metadata(Some(&self.topic), ASK_TIMEOUT)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let all = topic.into_iter().flat_map(MetadataTopic::partitions).map(MetadataPartition::id);
        let new: Vec<_> = all.filter(|partition| !self.partitions.contains_key(partition)).collect();
        self.has_all = topic.is_some();
        for partition in new {
            match self.begin(partition, since_unix_ms) {
                Ok(offset) => drop(self.partitions.insert(partition, Progress::from(offset))),
                Err(cause) => {
                    self.has_all = false;
                    tracing::warn!(topic = self.topic, partition, %cause, "cannot assign partition yet");
                }
            }
        }
        Ok(())
    }

    /// Assigns a partition from the given time on, or from its current end if it has no message
    /// since then. Returns the start offset.
    fn begin(&self, partition: i32, since_unix_ms: i64) -> Result<i64, KafkaError> {
        let (_, end) = self.kafka.fetch_watermarks(&self.topic, partition, ASK_TIMEOUT)?;
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(&self.topic, partition, Offset::Offset(since_unix_ms))?;
        let found = self.kafka.offsets_for_times(times, ASK_TIMEOUT)?;
        let found = found.elements();
        let found = found.first().expect("the answer has the requested partition");
        found.error()?;
        let offset = match found.offset() {
            Offset::Offset(offset) if offset >= 0 => offset,
            _ => end,
        };
        let mut assigned = TopicPartitionList::new();
        assigned.add_partition_offset(&self.topic, partition, Offset::Offset(offset))?;
        self.kafka.incremental_assign(&assigned)?;
        Ok(offset)
    }

    /// Requests the new ends of partitions that are read up to their last reported end.
    fn ask_ends(&mut self) {
        if Instant::now() < self.ask_ends_at {
            return;
        }
        let mut pause = ENDS_PERIOD;
        for (partition, progress) in self.partitions.iter_mut().filter(|(_, progress)| progress.is_at_end()) {
            let now_unix_ms = now_unix_ms();
            match self.ends.fetch_watermarks(&self.topic, *partition, END_TIMEOUT) {
                Ok((_, end)) => progress.ended(end, now_unix_ms),
                Err(_) => {
                    pause = ENDS_PAUSE; // polling reports the cause
                    break;
                }
            }
        }
        self.ask_ends_at = Instant::now() + pause;
    }

    fn failed(&self, cause: KafkaError) -> Error {
        Error::new(format!("cannot read topic {}", self.topic), cause)
    }
}

fn now_unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
