//! What agents write to Kafka, read as it comes by somebody who keeps none of it: all partitions, from a time on, without a group.
//!
//! **Invariant:** a message that was sent again is given once, as long as its source's last place in its partition is remembered.

mod progress;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use rdkafka::{Message as _, Offset, TopicPartitionList};
use thalweg_record::Batch;

use crate::Error;
use crate::kafka::{Cluster, Place};
use progress::Progress;

/// How long a look for a message may last.
const POLL: Duration = Duration::from_millis(200);
/// How long a broker may take for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is asked whether the topic has more partitions now.
const PARTITIONS_PERIOD: Duration = Duration::from_secs(60);
/// How often it is asked where partitions end.
const ENDS_PERIOD: Duration = Duration::from_secs(2);
/// How long a broker may take to say so: nothing is read meanwhile.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long none is asked after one that could not say it: reading others comes first.
const ENDS_PAUSE: Duration = Duration::from_secs(10);
/// The same as long as it has none: nobody has written to it yet.
const TOPIC_PERIOD: Duration = Duration::from_secs(1);
/// Sources (host and epoch, in each partition) whose places are remembered.
const PLACES_MAX: usize = 1_000_000;

/// What a look has found.
#[derive(Debug)]
pub enum Read {
    /// Records.
    Batch(Batch),
    /// Records that came before.
    Repeated,
    /// A message that holds none, and why.
    Unreadable(String),
    /// Nothing new.
    Nothing,
}

/// A reader of a topic.
pub struct Tail {
    kafka: BaseConsumer,
    /// Asks where partitions end: on the connection above an answer waits for that to a fetch.
    ends: BaseConsumer,
    topic: String,
    /// How far each is read; those that cannot be read yet are not there.
    partitions: BTreeMap<i32, Progress>,
    /// Whether all that the topic has are.
    has_all: bool,
    asked_at: Option<Instant>,
    /// When it is asked again where partitions end.
    ask_ends_at: Instant,
    places: HashMap<(i32, String, u64), Place>,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Tail {
    /// A reader of the topic of a cluster. Nothing is asked yet.
    ///
    /// # Errors
    /// When a property is wrong.
    pub fn open(cluster: &Cluster) -> Result<Self, Error> {
        // A client has to name a group; with partitions assigned by hand, and no commit, none is joined.
        let ours = [
            ("group.id", "thalweg-tail"),
            ("auto.offset.reset", "latest"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("queued.max.messages.kbytes", "32768"),
        ];
        let failed = |cause| Error::of(format!("cannot read Kafka at {}", cluster.brokers), cause);
        let kafka = cluster.config(&ours).create().map_err(failed)?;
        let ends = cluster.config(&ours).create().map_err(failed)?;
        let topic = cluster.topic.clone();
        Ok(Self {
            kafka,
            ends,
            topic,
            partitions: BTreeMap::new(),
            has_all: false,
            asked_at: None,
            ask_ends_at: Instant::now(),
            places: HashMap::new(),
        })
    }

    /// The time up to which everything is read, milliseconds since the Unix epoch; nothing as long as some partition is not read.
    pub fn read_to_unix_ms(&self) -> Option<i64> {
        let times: Option<Vec<_>> =
            self.partitions.values().map(|progress| progress.read_to_unix_ms).collect();
        times?.into_iter().min().filter(|_| self.has_all)
    }

    /// The next message; of partitions that are new to it, those from `since_unix_ms` on. Waits a moment for one.
    ///
    /// # Errors
    /// When the brokers cannot be asked, or cannot be read, now.
    pub fn read(&mut self, since_unix_ms: i64) -> Result<Read, Error> {
        let period = if self.partitions.is_empty() { TOPIC_PERIOD } else { PARTITIONS_PERIOD };
        if self.asked_at.is_none_or(|at| at.elapsed() >= period) {
            // Whatever comes of it: what is assigned already is read on.
            self.asked_at = Some(Instant::now());
            if let Err(cause) = self.assign(since_unix_ms) {
                self.asked_at = self.partitions.keys().next().and(self.asked_at);
                return Err(self.failed(cause));
            }
        }
        self.ask_ends();
        let message = match self.kafka.poll(POLL) {
            None => return Ok(Read::Nothing),
            Some(Err(cause)) => return Err(self.failed(cause)),
            Some(Ok(message)) => message,
        };
        if let Some(progress) = self.partitions.get_mut(&message.partition()) {
            progress.read(message.offset());
        }
        let batch = match Batch::decode(message.payload().unwrap_or_default()) {
            Ok(batch) => batch,
            Err(error) => return Ok(Read::Unreadable(error.to_string())),
        };
        if let Some(place) = message.headers().and_then(Place::of) {
            let key = (message.partition(), batch.source.host.clone(), batch.source.epoch);
            if self.places.get(&key).is_some_and(|taken| *taken >= place) {
                return Ok(Read::Repeated);
            }
            if self.places.len() >= PLACES_MAX {
                self.places.clear();
            }
            self.places.insert(key, place);
        }
        Ok(Read::Batch(batch))
    }

    /// Reads the partitions that are not read yet. One that cannot be asked about now is left for the next time.
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
                    tracing::warn!(topic = self.topic, partition, %cause, "partition not read yet");
                }
            }
        }
        Ok(())
    }

    /// Reads a partition from a time on; from where its end was, asked before, if it has nothing of that time.
    fn begin(&self, partition: i32, since_unix_ms: i64) -> Result<i64, KafkaError> {
        let (_, end) = self.kafka.fetch_watermarks(&self.topic, partition, ASK_TIMEOUT)?;
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(&self.topic, partition, Offset::Offset(since_unix_ms))?;
        let found = self.kafka.offsets_for_times(times, ASK_TIMEOUT)?;
        let found = found.elements();
        let found = found.first().expect("what was asked for is in the answer");
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

    /// Asks where partitions end that are read to where they ended before. What cannot be asked now is asked again.
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
                    pause = ENDS_PAUSE; // whoever polls is told why
                    break;
                }
            }
        }
        self.ask_ends_at = Instant::now() + pause;
    }

    fn failed(&self, cause: KafkaError) -> Error {
        Error::of(format!("cannot read the topic {}", self.topic), cause)
    }
}

fn now_unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
