//! Producer: sends batches to a topic and waits until each is acknowledged.
//!
//! The records of one client prefix form one message, with the prefix as its key (for losses, the
//! machine's name). So all records of a prefix are in one partition, in order.
//!
//! **Invariant:** a batch starts only after all required brokers have acknowledged the previous
//! one. A failed batch is sent again as a whole; its repeated messages carry the same [`Place`].
//! **Invariant:** after any error, the client is dropped with all its unsent messages. So no
//! partition has a later message of a batch while an earlier one is missing.
//!
//! Transactions are not used: a broker that lost a partition's leader reports a transaction as
//! committed and never commits it there (Kafka 4.4, killed and restarted: "likely deleted already
//! and hence can be skipped").

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer};
use thalweg_record::{Batch, Entry, Prefix, Source};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::place::Place;

/// Maximum time for sending a batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of a message before compression, unless a single record is larger; the brokers'
/// default limit is 1 MiB.
const MESSAGE_BYTES_MAX: usize = 900_000;

/// Properties of the client. Its queue is bounded; the rest of a batch waits in the spool. Messages
/// have no timeout of their own, and a refused message stops all later ones. Only one request is in
/// flight: a broker accepts any first sequence number from an unknown producer
/// (`ProducerAppendInfo.checkSequence`), for example that of the second of two requests when the
/// first was refused.
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
    /// Number of partitions to create the topic with; `None` once that has been tried.
    create_partitions: Option<u16>,
    /// Delivery reports arrive on a separate thread: flushing a `BaseProducer` takes up to 100 ms
    /// longer.
    client: Option<ThreadedProducer<Deliveries>>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Producer").field(&self.cluster).finish()
    }
}

impl Producer {
    /// Creates a producer for a topic. Connects later. If the topic is missing and
    /// `create_partitions` is given, the producer creates it with that many partitions.
    pub fn new(cluster: Cluster, create_partitions: Option<u16>) -> Self {
        Self { cluster, create_partitions, client: None }
    }

    /// Sends a batch and waits until all its messages are acknowledged.
    ///
    /// # Errors
    /// When an acknowledgement is missing or late; send the same batch again.
    pub fn produce(&mut self, batch: &Batch) -> Result<(), Error> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        self.try_produce(batch, last.number + 1).map_err(|cause| {
            self.client = None;
            let Cluster { topic, brokers, .. } = &self.cluster;
            Error::new(format!("cannot write to topic {topic} of Kafka at {brokers}"), cause)
        })
    }

    fn try_produce(&mut self, batch: &Batch, batch_end: u64) -> Result<(), KafkaError> {
        if let Some(partitions) = self.create_partitions {
            self.cluster.create_topic(partitions)?;
            self.create_partitions = None;
        }
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

/// Groups the entries of a batch by prefix, in order.
fn by_prefix(batch: &Batch) -> BTreeMap<Option<Prefix>, Vec<&Entry>> {
    let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
    for entry in &batch.entries {
        groups.entry(entry.prefix()).or_default().push(entry);
    }
    groups
}

/// The messages of one batch while they are being queued in the client.
struct Outgoing<'a> {
    client: &'a ThreadedProducer<Deliveries>,
    topic: &'a str,
    batch_end: u64,
    /// Index of the next message in the batch.
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

/// Counts messages that are queued but not yet acknowledged.
#[derive(Debug, Default)]
struct Deliveries {
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

    /// Waits until at most `pending_max` messages are pending, or one has failed; returns the
    /// number pending.
    fn wait(&self, pending_max: usize, deadline: Instant) -> usize {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let must_wait =
            |state: &mut DeliveryState| state.pending > pending_max && state.first_failure.is_none();
        let waited = self.changed.wait_timeout_while(self.state(), timeout, must_wait);
        waited.unwrap_or_else(PoisonError::into_inner).0.pending
    }

    /// Counts a message. Called before it is queued, because the client's thread may report it at
    /// once.
    fn begin(&self) {
        self.state().pending += 1;
    }

    /// Uncounts a message that was not queued; returns the number pending.
    fn cancel(&self) -> usize {
        let mut state = self.state();
        state.pending -= 1;
        state.pending
    }

    /// Waits until all messages are acknowledged.
    fn settle(&self, deadline: Instant) -> Result<(), KafkaError> {
        let pending = self.wait(0, deadline);
        match self.state().first_failure.take() {
            Some(failure) => Err(failure),
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
            state.first_failure.get_or_insert_with(|| error.clone());
        }
        self.changed.notify_one();
    }
}
