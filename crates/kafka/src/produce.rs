//! Producer: sends batches to a topic and waits until each is acknowledged.
//!
//! Each client prefix's records form one message, with the prefix as its key. The key of loss
//! records is the machine's name. Thus, all records of a prefix are in one partition, in order.
//!
//! **Invariant:** a batch is sent only after all required brokers have acknowledged the previous
//! one. A failed batch is resent in full, and each repeated message has the same [`Place`] as
//! before.
//! **Invariant:** after any error, the client is dropped along with its unsent messages. No
//! partition can thus contain a later message of a batch while an earlier one is missing.
//!
//! Transactions are not used, because they can lose messages. When a partition's leader was killed
//! and restarted, a Kafka 4.4 broker reported a transaction as committed but never committed it in
//! that partition (its log: "likely deleted already and hence can be skipped").

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer};
use thalweg_record::{Batch, Entry, Prefix, Source};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::fault::{self, Faults};
use crate::place::Place;

/// Time limit for sending a batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a message before compression, in bytes; a message with a single record may be
/// larger. The brokers' default limit is 1 MiB.
const MESSAGE_BYTES_MAX: usize = 900_000;

/// Client properties. The client's queue is bounded; the rest of a batch waits in the spool.
/// Messages have no timeout of their own, and a refused message stops all later messages. Only one
/// request is in flight, because a broker accepts any first sequence number from an unknown
/// producer (`ProducerAppendInfo.checkSequence`). With two requests in flight, a broker could
/// accept the second after refusing the first.
const PROPERTIES: [(&str, &str); 10] = [
    ("max.in.flight", "1"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("message.timeout.ms", "0"),
    // Report a missing topic before the batch times out.
    ("topic.metadata.propagation.max.ms", "10000"),
    ("compression.type", "zstd"),
    ("linger.ms", "5"),
    ("partitioner", "murmur2_random"),
    ("queue.buffering.max.messages", "100000"),
    ("queue.buffering.max.kbytes", "65536"),
];

/// Sends batches to a topic.
pub struct Producer {
    cluster: Cluster,
    /// Number of partitions to create if the topic is missing; `None` if the topic must not be
    /// created or is known to exist.
    create_partitions: Option<u16>,
    /// Delivery reports arrive on a separate thread, because flushing a `BaseProducer` would take
    /// up to 100 ms longer.
    client: Option<ThreadedProducer<Deliveries>>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Producer").field(&self.cluster).finish()
    }
}

impl Producer {
    /// Creates a producer, which connects when it sends the first batch. If the topic is missing
    /// and `create_partitions` is set, the producer creates the topic with that many partitions.
    pub fn new(cluster: Cluster, create_partitions: Option<u16>) -> Self {
        Self { cluster, create_partitions, client: None }
    }

    /// Sends a batch and waits until all its messages are acknowledged.
    ///
    /// # Errors
    ///
    /// Returns an error if an acknowledgement is missing or late. The caller must then send the
    /// same batch again.
    pub fn produce(&mut self, batch: &Batch) -> Result<(), Error> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        if let Some(partitions) = self.create_partitions {
            self.cluster.create_topic(partitions)?;
            self.create_partitions = None;
        }
        self.try_produce(batch, last.number + 1).map_err(|cause| {
            let Cluster { topic, brokers, .. } = &self.cluster;
            let what = format!("cannot write to topic {topic} of Kafka at {brokers}");
            match self.client.take() {
                Some(client) => Error::explained(what, cause, &client.context().faults),
                None => Error::new(what, cause),
            }
        })
    }

    fn try_produce(&mut self, batch: &Batch, batch_end: u64) -> Result<(), KafkaError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(self.cluster.config(&PROPERTIES).create_with_context(Deliveries::default())?),
        };
        let mut outgoing = Outgoing { client, topic: &self.cluster.topic, batch_end, part: 0 };
        for (prefix, entries) in by_prefix(batch) {
            let key = prefix.map_or_else(|| batch.source.host.clone(), |prefix| prefix.to_string());
            outgoing.queue(&key, &batch.source, &entries)?;
        }
        client.context().settle(Instant::now() + BATCH_TIMEOUT)
    }
}

/// Groups a batch's entries by prefix, keeping their order.
fn by_prefix(batch: &Batch) -> BTreeMap<Option<Prefix>, Vec<&Entry>> {
    let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
    for entry in &batch.entries {
        groups.entry(entry.prefix()).or_default().push(entry);
    }
    groups
}

/// Queues one batch's messages in the client.
struct Outgoing<'a> {
    client: &'a ThreadedProducer<Deliveries>,
    topic: &'a str,
    batch_end: u64,
    /// Index of the next message within the batch.
    part: u32,
}

impl Outgoing<'_> {
    /// Queues entries as one message, or as several if one would exceed the size limit.
    fn queue(&mut self, key: &str, source: &Source, entries: &[&Entry]) -> Result<(), KafkaError> {
        let mut content = Vec::new();
        Batch::encode_some(source, entries.iter().copied(), &mut content);
        if content.len() > MESSAGE_BYTES_MAX && entries.len() > 1 {
            let (first, rest) = entries.split_at(entries.len() / 2);
            self.queue(key, source, first)?;
            return self.queue(key, source, rest);
        }
        let place = Place { batch_end: self.batch_end, part: self.part };
        self.part += 1;
        let deadline = Instant::now() + BATCH_TIMEOUT;
        let mut message = BaseRecord::to(self.topic).key(key).payload(&content).headers(place.headers());
        let deliveries = self.client.context();
        loop {
            deliveries.begin();
            let Err((cause, unsent)) = self.client.send(message) else { return Ok(()) };
            let pending = deliveries.cancel();
            let is_full = matches!(cause, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            if !is_full || deliveries.wait(pending / 2, deadline) > pending / 2 {
                return Err(cause);
            }
            message = unsent;
        }
    }
}

/// Counts messages that are queued but not yet acknowledged, and stores connection faults.
#[derive(Debug, Default)]
struct Deliveries {
    faults: Faults,
    state: Mutex<DeliveryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeliveryState {
    pending: usize,
    first_failure: Option<KafkaError>,
}

impl Deliveries {
    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most `pending_max` messages are pending, a message has failed, or the
    /// deadline has passed. Returns the number of pending messages.
    fn wait(&self, pending_max: usize, deadline: Instant) -> usize {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let must_wait =
            |state: &mut DeliveryState| state.pending > pending_max && state.first_failure.is_none();
        let waited = self.changed.wait_timeout_while(self.state(), timeout, must_wait);
        waited.unwrap_or_else(PoisonError::into_inner).0.pending
    }

    /// Counts a message. Call this before queueing the message, because the client's thread may
    /// report its delivery at once.
    fn begin(&self) {
        self.state().pending += 1;
    }

    /// Reverses the count of a message that was not queued. Returns the number of pending messages.
    fn cancel(&self) -> usize {
        let mut state = self.state();
        state.pending -= 1;
        state.pending
    }

    /// Waits until all messages are acknowledged; returns the first failure.
    fn settle(&self, deadline: Instant) -> Result<(), KafkaError> {
        let pending = self.wait(0, deadline);
        match self.state().first_failure.take() {
            Some(failure) => Err(failure),
            None if pending > 0 => Err(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)),
            None => Ok(()),
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        fault::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.faults.note(&error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut state = self.state();
        state.pending -= 1;
        match result {
            Ok(_) => self.faults.clear(),
            Err((error, _)) => drop(state.first_failure.get_or_insert_with(|| error.clone())),
        }
        self.changed.notify_one();
    }
}
