//! Follower: reads every partition of a topic from a given time, for readers that store no offsets.
//! A follower joins no consumer group.
//!
//! **Invariant:** a repeated message is returned only once, unless its source's last place in that
//! partition was dropped to bound memory.

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
use crate::fault::{self, Faults};
use crate::place::Place;
use progress::Progress;

/// Maximum time for which one poll waits for a message.
const POLL: Duration = Duration::from_millis(200);
/// Time limit for a broker's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks for new partitions.
const PARTITIONS_PERIOD: Duration = Duration::from_secs(60);
/// Interval between requests for partition ends.
const ENDS_PERIOD: Duration = Duration::from_secs(2);
/// Time limit for one request for a partition end. No messages are read during the request.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a broker failed to report a partition end, so that other partitions are read first.
const ENDS_PAUSE: Duration = Duration::from_secs(10);
/// Interval between checks for partitions while the topic does not exist.
const TOPIC_PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of places remembered: the last one of each source (host and epoch) in each
/// partition. At this limit, all places are dropped.
const PLACES_MAX: usize = 1_000_000;

/// The result of one read.
#[derive(Debug)]
pub enum Followed {
    /// A batch that has not been returned before.
    Batch(Batch),
    /// A repeated message.
    Repeated,
    /// A message that does not decode as a batch, with the reason.
    Unreadable(String),
    /// No message arrived in time.
    Nothing,
}

/// Reads all partitions of a topic.
pub struct Follower {
    kafka: BaseConsumer<Faults>,
    /// Separate client that requests partition ends. On the connections of the `kafka` client, a
    /// fetch in progress would delay the response.
    ends: BaseConsumer,
    topic: String,
    /// Progress of the assigned partitions.
    partitions: BTreeMap<i32, Progress>,
    /// Whether every partition of the topic is assigned.
    has_all: bool,
    /// Time at which the partitions were last listed.
    listed_at: Option<Instant>,
    /// Time at which to request partition ends again.
    next_ends_request_at: Instant,
    places: HashMap<(i32, String, u64), Place>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Follower {
    /// Creates a follower of the cluster's topic. The follower connects on its first read.
    ///
    /// # Errors
    ///
    /// Returns an error if a property is invalid.
    pub fn open(cluster: &Cluster) -> Result<Self, Error> {
        // librdkafka requires a group name, but joins no group if partitions are assigned manually
        // and no offsets are committed.
        let ours = [
            ("group.id", "thalweg-tail"),
            ("auto.offset.reset", "latest"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("queued.max.messages.kbytes", "32768"),
        ];
        let failed = |cause| Error::new(format!("cannot read from Kafka at {}", cluster.brokers), cause);
        let kafka = cluster.config(&ours).create_with_context(Faults::default()).map_err(failed)?;
        let ends = cluster.config(&ours).create().map_err(failed)?;
        let topic = cluster.topic.clone();
        Ok(Self {
            kafka,
            ends,
            topic,
            partitions: BTreeMap::new(),
            has_all: false,
            listed_at: None,
            next_ends_request_at: Instant::now(),
            places: HashMap::new(),
        })
    }

    /// Returns the time up to which all messages have been read, in milliseconds since the Unix
    /// epoch. Returns `None` until every partition is assigned and was read up to a reported end.
    pub fn read_to_unix_ms(&self) -> Option<i64> {
        let times: Option<Vec<_>> =
            self.partitions.values().map(|progress| progress.read_to_unix_ms).collect();
        times?.into_iter().min().filter(|_| self.has_all)
    }

    /// Returns the next message, waiting briefly for it. Newly found partitions are read from the
    /// time `since_unix_ms`.
    ///
    /// # Errors
    ///
    /// Returns an error if the brokers do not respond. A later call may succeed.
    pub fn read(&mut self, since_unix_ms: i64) -> Result<Followed, Error> {
        let period = if self.partitions.is_empty() { TOPIC_PERIOD } else { PARTITIONS_PERIOD };
        if self.listed_at.is_none_or(|at| at.elapsed() >= period) {
            // Set before the attempt: if it fails, partitions already assigned are still read.
            self.listed_at = Some(Instant::now());
            if let Err(cause) = self.assign(since_unix_ms) {
                self.listed_at = self.listed_at.filter(|_| !self.partitions.is_empty());
                return Err(self.failed(cause));
            }
        }
        self.request_ends();
        let message = match self.kafka.poll(POLL) {
            None => return Ok(Followed::Nothing),
            Some(Err(cause)) => return Err(self.failed(cause)),
            Some(Ok(message)) => message,
        };
        self.kafka.context().clear();
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

    /// Assigns all partitions that are not yet assigned. If a broker does not respond for a
    /// partition, the next call retries it.
    fn assign(&mut self, since_unix_ms: i64) -> Result<(), KafkaError> {
        let metadata = self.kafka.fetch_metadata(Some(&self.topic), RESPONSE_TIMEOUT)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let all = topic.into_iter().flat_map(MetadataTopic::partitions).map(MetadataPartition::id);
        let new: Vec<_> = all.filter(|partition| !self.partitions.contains_key(partition)).collect();
        self.has_all = topic.is_some();
        for partition in new {
            match self.begin(partition, since_unix_ms) {
                Ok(offset) => drop(self.partitions.insert(partition, Progress::from(offset))),
                Err(cause) => {
                    self.has_all = false;
                    tracing::warn!(topic = self.topic, partition, %cause, "partition not assigned, retrying");
                }
            }
        }
        Ok(())
    }

    /// Assigns a partition from the given time, or from its current end if it has no message since
    /// that time. Returns the start offset.
    fn begin(&self, partition: i32, since_unix_ms: i64) -> Result<i64, KafkaError> {
        let (_, end) = self.kafka.fetch_watermarks(&self.topic, partition, RESPONSE_TIMEOUT)?;
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(&self.topic, partition, Offset::Offset(since_unix_ms))?;
        let found = self.kafka.offsets_for_times(times, RESPONSE_TIMEOUT)?;
        let found = found.elements();
        let found = found.first().expect("the response has the requested partition");
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

    /// Requests the current end of each partition that was read up to its last reported end.
    fn request_ends(&mut self) {
        if Instant::now() < self.next_ends_request_at {
            return;
        }
        let mut pause = ENDS_PERIOD;
        for (partition, progress) in self.partitions.iter_mut().filter(|(_, progress)| progress.is_at_end()) {
            let now_unix_ms = now_unix_ms();
            match self.ends.fetch_watermarks(&self.topic, *partition, END_TIMEOUT) {
                Ok((_, end)) => progress.ended(end, now_unix_ms),
                Err(_) => {
                    pause = ENDS_PAUSE; // the next poll reports the cause
                    break;
                }
            }
        }
        self.next_ends_request_at = Instant::now() + pause;
    }

    fn failed(&self, cause: KafkaError) -> Error {
        if self.partitions.is_empty() {
            fault::read_events(&self.kafka);
        }
        Error::explained(format!("cannot read topic {}", self.topic), cause, self.kafka.context())
    }
}

fn now_unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
