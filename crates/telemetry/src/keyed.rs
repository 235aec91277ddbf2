//! A compacted topic of documents: of each key the last one counts, and a message without a value has removed it. All that is of one
//! group of keys is in one partition, in the order in which it was written.
//!
//! **Invariant:** a reader tells of each partition when it has given what was there as it began; before that, what it gives may be old. It
//! begins again where the topic is gone or is another one, and only there ([`Partitions`]).
//! **Invariant:** a topic is made compacted, or not at all: nothing is written to one that was not seen to be there.

mod partitions;

use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer as _, ThreadedProducer};
use rdkafka::{Message as _, Offset, TopicPartitionList};

use crate::Error;
use crate::kafka::Cluster;
use crate::sink::Deliveries;
pub use partitions::Partitions;
use partitions::partition_of;

/// How long a look for a message may last.
const POLL: Duration = Duration::from_millis(200);
/// How long the brokers may take for a document.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is asked whether the topic has another number of partitions, and how long that may take: nothing is read meanwhile.
const PARTITIONS_PERIOD: Duration = Duration::from_secs(10);
const PARTITIONS_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a document that can be written, before compression.
pub const DOCUMENT_BYTES_MAX: usize = 9 << 20;

/// The properties of the producer: one request at a time, each kept by every broker that has to, and nothing that waits for long.
const PRODUCER: [(&str, &str); 7] = [
    ("enable.idempotence", "true"),
    ("max.in.flight", "1"),
    ("message.timeout.ms", "8000"),
    ("compression.type", "zstd"),
    ("linger.ms", "0"),
    ("message.max.bytes", "10000000"),
    ("queue.buffering.max.kbytes", "16384"),
];
const _: () = assert!(DOCUMENT_BYTES_MAX < 10_000_000);
/// The properties of a topic that is made: brokers refuse messages above 1 MiB by default, compressed, and leave up to 1 GiB of a
/// partition as it was written.
const TOPIC: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("max.message.bytes", "10000000"), ("segment.bytes", "67108864")];

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// From now on it is given from the beginning. First, and again after the topic has become another one, or has another number of
    /// partitions: nothing holds any more that was given before.
    Beginning,
    /// A document of a key, or that there is none any more. A message without a key has an empty one.
    Document {
        /// Where it is.
        partition: i32,
        /// Its key.
        key: String,
        /// What it is.
        document: Option<Vec<u8>>,
    },
    /// All that was there of a partition as the reader began has been given.
    End(i32),
    /// Nothing new.
    Nothing,
}

/// What the client library tells beside what it returns.
struct Told;

impl ClientContext for Told {
    fn error(&self, error: KafkaError, reason: &str) {
        // The end of a partition is no failure.
        if !matches!(error, KafkaError::PartitionEOF(_))
            && error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF)
        {
            tracing::error!(%error, reason, "Kafka's client tells of a failure");
        }
    }
}

impl ConsumerContext for Told {}

/// A reader of a topic, from its beginning on.
pub struct Reader {
    kafka: BaseConsumer<Told>,
    topic: String,
    group: Option<String>,
    partitions: Partitions,
    asked_at: Option<Instant>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("topic", &self.topic)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader of all that a topic has, or of the partition of one group alone. Nothing is asked yet.
    ///
    /// # Errors
    /// When a property is wrong.
    pub fn open(cluster: &Cluster, group: Option<&str>) -> Result<Self, Error> {
        // A client has to name a group; with partitions assigned by hand, and no commit, none is joined.
        let ours = [
            ("group.id", "thalweg-keyed"),
            // Else what is read anew, because it is another topic, would look like what is new.
            ("auto.offset.reset", "error"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("enable.partition.eof", "true"),
            ("allow.auto.create.topics", "false"),
            ("queued.max.messages.kbytes", "32768"),
        ];
        let failed = |cause| Error::of(format!("cannot read Kafka at {}", cluster.brokers), cause);
        let kafka = cluster.config(&ours).create_with_context(Told).map_err(failed)?;
        let (topic, group) = (cluster.topic.clone(), group.map(str::to_owned));
        Ok(Self { kafka, topic, group, partitions: Partitions::default(), asked_at: None })
    }

    /// How far it is.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// What is next. Waits a moment for it.
    ///
    /// # Errors
    /// When the topic is not there, or a broker cannot be asked or read, now. What can be read of it is read on.
    pub fn read(&mut self) -> Result<Found, Error> {
        self.try_read().map_err(|cause| {
            self.partitions.failed(cause.rdkafka_error_code());
            Error::of(format!("cannot read the topic {}", self.topic), cause)
        })
    }

    fn try_read(&mut self) -> Result<Found, KafkaError> {
        let is_asked =
            self.partitions.are_there() && self.asked_at.is_some_and(|at| at.elapsed() < PARTITIONS_PERIOD);
        if !is_asked {
            let assigned = self.assign();
            // Whatever has come of it: what was found before is read on.
            self.asked_at = Some(Instant::now());
            if assigned? {
                return Ok(Found::Beginning);
            }
        }
        match self.kafka.poll(POLL) {
            None => Ok(Found::Nothing),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                Ok(if self.partitions.ended(partition) { Found::End(partition) } else { Found::Nothing })
            }
            Some(Err(cause)) => Err(cause),
            Some(Ok(message)) => Ok(Found::Document {
                partition: message.partition(),
                key: String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned(),
                document: message.payload().map(<[u8]>::to_vec),
            }),
        }
    }

    /// Reads the partitions that there are from their beginnings, where their number is another than before. Whether it is.
    fn assign(&mut self) -> Result<bool, KafkaError> {
        let count = partitions(&self.kafka, &self.topic, PARTITIONS_TIMEOUT)?;
        let mut assigned = TopicPartitionList::new();
        let Some(to_read) = self.partitions.found(count, self.group.as_deref()) else { return Ok(false) };
        let added = to_read.iter().try_for_each(|partition| {
            assigned.add_partition_offset(&self.topic, *partition, Offset::Beginning)
        });
        let begun = added.and_then(|()| self.kafka.assign(&assigned));
        begun.inspect_err(|_| self.partitions = Partitions::default())?;
        Ok(true)
    }
}

/// A writer of a topic.
pub struct Writer {
    cluster: Cluster,
    /// With how many partitions the topic is to be made if it is not there.
    create_partitions: Option<u16>,
    producer: Option<(ThreadedProducer<Deliveries>, i32)>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Writer").field(&self.cluster).finish()
    }
}

impl Writer {
    /// A writer to a topic; nothing is asked yet.
    pub fn of(cluster: Cluster, create_partitions: Option<u16>) -> Self {
        Self { cluster, create_partitions, producer: None }
    }

    /// Asks anew whether the topic is there, and how many partitions it has, at the next document.
    pub fn refresh(&mut self) {
        self.producer = None;
    }

    /// Makes the topic, if it is to be made and is not there. Brokers may take a moment until they know of it.
    ///
    /// # Errors
    /// When the brokers cannot be asked, or refuse, now.
    pub fn create(&self) -> Result<(), Error> {
        let Some(partitions) = self.create_partitions else { return Ok(()) };
        self.cluster.create_topic(partitions, &TOPIC).map_err(|cause| self.failed(cause))
    }

    /// Puts a document in the place of the one that the key had, or removes that; waits until it is kept.
    ///
    /// # Errors
    /// When that is not sure. It may be there nevertheless.
    pub fn put(&mut self, group: &str, key: &str, document: Option<&[u8]>) -> Result<(), Error> {
        let put = self.try_put(group, key, document);
        put.map_err(|cause| {
            self.refresh(); // without what it had not sent
            self.failed(cause)
        })
    }

    fn try_put(&mut self, group: &str, key: &str, document: Option<&[u8]>) -> Result<(), KafkaError> {
        if self.producer.is_none() {
            // To be asked by a consumer makes no topic.
            let client: BaseConsumer =
                self.cluster.config(&[("allow.auto.create.topics", "false")]).create()?;
            let partitions = partitions(&client, &self.cluster.topic, STEP_TIMEOUT)?;
            let producer = self.cluster.config(&PRODUCER).create_with_context(Deliveries::default())?;
            self.producer = Some((producer, partitions));
        }
        let (producer, partitions) = self.producer.as_ref().expect("it was made above");
        let message =
            BaseRecord::to(&self.cluster.topic).key(key).partition(partition_of(group, *partitions));
        let message = match document {
            Some(document) => message.payload(document),
            None => message,
        };
        producer.context().begin();
        producer.send(message).map_err(|(cause, _)| {
            producer.context().take_back();
            cause
        })?;
        producer.context().settle(Instant::now() + STEP_TIMEOUT)
    }

    fn failed(&self, cause: KafkaError) -> Error {
        let Cluster { topic, brokers, .. } = &self.cluster;
        Error::of(format!("cannot write to topic {topic} of Kafka at {brokers}"), cause)
    }
}

/// How many partitions a topic has.
fn partitions<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    topic: &str,
    timeout: Duration,
) -> Result<i32, KafkaError> {
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    match found.map(|found| (found.error(), found.partitions().len())) {
        Some((None, count @ 1..)) => Ok(i32::try_from(count).unwrap_or(i32::MAX)),
        Some((Some(error), _)) => Err(KafkaError::MetadataFetch(error.into())),
        _ => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)),
    }
}
