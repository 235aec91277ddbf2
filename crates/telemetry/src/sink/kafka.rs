//! Kafka: a message has the entries of one client prefix in a batch as a `thalweg.Batch`, the prefix as its key (losses have the
//! machine's name), so all of a prefix is in one partition, in order. A batch is kept when every broker that has to has each of
//! its messages.
//!
//! **Invariant:** a batch is begun when the one before is in the topic. One that was not kept is sent again, whole: what of it is
//! there twice has the same [`Place`], and is dropped by who reads.
//! **Invariant:** after any error the producer is dropped, with all that it had not sent: in a partition no message of a batch
//! is followed by a later one while it is missing itself.
//!
//! No transactions: a broker that lost the leader of a partition says that a transaction is committed, and then never commits it
//! there (seen of Kafka 4.4, killed and started again: "likely deleted already and hence can be skipped").

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use thalweg_record::{Batch, Entry, Prefix, Source};

use crate::kafka::{Cluster, Place};
use crate::{Sink, SinkError};

/// How long the brokers may take for a batch, or for making the topic.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// No message is larger, before compression, unless a single record is: the broker's default bound is 1 MiB.
const MESSAGE_BYTES_MAX: usize = 900_000;

/// The properties of the producer. Its queue is bounded; what does not fit waits in the spool. Messages do not time out one by one,
/// and one that is refused stops all: else a later one might be in the topic without it. One request at a time, since a broker
/// takes any first sequence number of a producer that it does not know yet (`ProducerAppendInfo.checkSequence`): the second
/// of two under way, if it is there when the first is refused.
const PRODUCER: [(&str, &str); 10] = [
    ("max.in.flight", "1"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("message.timeout.ms", "0"),
    // A topic that is not there is told as such before the batch is given up.
    ("topic.metadata.propagation.max.ms", "10000"),
    ("compression.type", "zstd"),
    ("linger.ms", "5"),
    ("partitioner", "murmur2_random"),
    ("queue.buffering.max.messages", "100000"),
    ("queue.buffering.max.kbytes", "65536"),
];

/// The sink.
pub struct KafkaSink {
    cluster: Cluster,
    /// With how many partitions the topic is to be made, as long as that was not tried.
    create_partitions: Option<u16>,
    /// Has a thread of its own, which hears of deliveries: to flush a `BaseProducer` takes up to 100 ms longer than they do.
    producer: Option<ThreadedProducer<Deliveries>>,
}

/// What became of the messages of a producer.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    state: Mutex<DeliveryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeliveryState {
    /// Messages of which nothing was heard yet.
    pending: usize,
    /// The first failure.
    failed: Option<KafkaError>,
}

impl Deliveries {
    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something was heard of all messages but so many; gives how many are left.
    fn wait(&self, pending_max: usize, until: Instant) -> usize {
        let timeout = until.saturating_duration_since(Instant::now());
        let is_early = |state: &mut DeliveryState| state.pending > pending_max && state.failed.is_none();
        let waited = self.changed.wait_timeout_while(self.state(), timeout, is_early);
        waited.unwrap_or_else(PoisonError::into_inner).0.pending
    }

    /// A message is about to be queued: the other thread may hear of it at once.
    pub(crate) fn begin(&self) {
        self.state().pending += 1;
    }

    /// It was not; gives how many are left.
    pub(crate) fn take_back(&self) -> usize {
        let mut state = self.state();
        state.pending -= 1;
        state.pending
    }

    /// Waits until all messages are kept.
    pub(crate) fn settle(&self, until: Instant) -> Result<(), KafkaError> {
        let pending = self.wait(0, until);
        match self.state().failed.take() {
            Some(failed) => Err(failed),
            None if pending > 0 => Err(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)),
            None => Ok(()),
        }
    }
}

impl ClientContext for Deliveries {}

impl ProducerContext<NoCustomPartitioner> for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut state = self.state();
        state.pending -= 1;
        if let Err((error, _)) = result {
            state.failed.get_or_insert_with(|| error.clone());
        }
        self.changed.notify_one();
    }
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KafkaSink").field(&self.cluster).finish()
    }
}

impl KafkaSink {
    /// Keeps records in a topic; nothing is sent yet. A topic that is not there is made with `create_partitions`
    /// partitions, if that is given.
    pub fn of(cluster: Cluster, create_partitions: Option<u16>) -> Self {
        Self { cluster, create_partitions, producer: None }
    }

    /// Sends a batch and waits until it is in the topic.
    fn send(&mut self, batch: &Batch, batch_end: u64) -> Result<(), KafkaError> {
        if let Some(partitions) = self.create_partitions {
            self.cluster.create_topic(partitions, &[])?;
            self.create_partitions = None;
        }
        if self.producer.is_none() {
            self.producer = Some(self.cluster.config(&PRODUCER).create_with_context(Deliveries::default())?);
        }
        let producer = self.producer.as_ref().expect("it was made above");
        let mut message = Outgoing { producer, topic: &self.cluster.topic, batch_end, part: 0 };
        for (prefix, entries) in by_prefix(batch) {
            let key = prefix.map_or_else(|| batch.source.host.clone(), |prefix| prefix.to_string());
            message.send(&key, &batch.source, &entries)?;
        }
        producer.context().settle(Instant::now() + STEP_TIMEOUT)
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
        Ok(None)
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        self.send(batch, last.number + 1).map_err(|cause| {
            self.producer = None;
            let Cluster { topic, brokers, .. } = &self.cluster;
            SinkError {
                what: format!("cannot write to topic {topic} of Kafka at {brokers}"),
                is_passing: is_passing(&cause),
                cause: Box::new(cause),
            }
        })
    }
}

/// The next message of a batch.
struct Outgoing<'a> {
    producer: &'a ThreadedProducer<Deliveries>,
    topic: &'a str,
    batch_end: u64,
    part: u32,
}

impl Outgoing<'_> {
    /// Queues one message, or as many as it takes for none to be too large.
    fn send(&mut self, key: &str, source: &Source, entries: &[&Entry]) -> Result<(), KafkaError> {
        let mut content = Vec::new();
        Batch::encode_some(source, entries.iter().copied(), &mut content);
        if content.len() > MESSAGE_BYTES_MAX && entries.len() > 1 {
            let (first, rest) = entries.split_at(entries.len() / 2);
            self.send(key, source, first)?;
            return self.send(key, source, rest);
        }
        let place = Place { batch_end: self.batch_end, part: self.part };
        self.part += 1;
        let until = Instant::now() + STEP_TIMEOUT;
        let mut message = BaseRecord::to(self.topic).key(key).payload(&content).headers(place.headers());
        let deliveries = self.producer.context();
        loop {
            deliveries.begin();
            let Err((cause, unsent)) = self.producer.send(message) else { return Ok(()) };
            let pending = deliveries.take_back();
            let is_full = matches!(cause, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            if !is_full || deliveries.wait(pending / 2, until) > pending / 2 {
                return Err(cause);
            }
            message = unsent;
        }
    }
}

/// The entries of a batch by prefix, in order.
fn by_prefix(batch: &Batch) -> BTreeMap<Option<Prefix>, Vec<&Entry>> {
    let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
    for entry in &batch.entries {
        groups.entry(entry.prefix()).or_default().push(entry);
    }
    groups
}

/// Whether an error may pass by itself; not so what an operator has to set right: rights, sizes, names, properties.
fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    if matches!(error, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_)) {
        return false;
    }
    !matches!(
        error.rdkafka_error_code(),
        Some(
            Code::Authentication
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::MessageSizeTooLarge
                | Code::InvalidTopic
                | Code::InvalidReplicationFactor
                | Code::InvalidPartitions
        )
    )
}
