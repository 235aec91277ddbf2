//! Kafka: for each batch a transaction with its messages and the position after it. A message has the entries of one client
//! prefix as a `thalweg.Batch`, the prefix as its key (losses have the machine's name), so all of a prefix is in one partition,
//! in order.
//!
//! **Invariant:** the position is a committed offset of a group of the agent's own, `thalweg-agent-HOST-EPOCH`, on partition 0
//! of the topic: it is committed with the messages or not at all, so a batch is in the topic once for who reads committed.
//! **Invariant:** after any error the producer is dropped. The next one, of the same transactional id, has the broker end what
//! is left of the transaction (KIP-98), and asks for the position: what was committed after all is not sent again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use thalweg_record::{Batch, Entry, Source};
use tokio::runtime::Builder;

use crate::kafka::Cluster;
use crate::{Sink, SinkError};

/// How long the broker may take for a step of a transaction.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// No message is larger, before compression, unless a single record is: the broker's default bound is 1 MiB.
const MESSAGE_BYTES_MAX: usize = 900_000;
/// Pause while the queue to the broker is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);

/// The properties of the producer. Its queue is bounded; what does not fit waits in the spool.
const PRODUCER: [(&str, &str); 7] = [
    ("enable.idempotence", "true"),
    ("compression.type", "zstd"),
    ("linger.ms", "5"),
    ("partitioner", "murmur2_random"),
    ("queue.buffering.max.messages", "100000"),
    ("queue.buffering.max.kbytes", "65536"),
    ("transaction.timeout.ms", "60000"),
];

/// The sink.
pub struct KafkaSink {
    cluster: Cluster,
    create_partitions: Option<u16>,
    session: Option<Session>,
}

/// A producer that is ready for transactions, and what is committed.
struct Session {
    producer: BaseProducer,
    /// A client of the group that is never a member of it: it names the group and asks for the position.
    group: BaseConsumer,
    position: Option<u64>,
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
        Self { cluster, create_partitions, session: None }
    }

    fn session(&mut self, source: &Source) -> Result<&mut Session, KafkaError> {
        if self.session.is_none() {
            if let Some(partitions) = self.create_partitions {
                self.create_topic(partitions)?;
            }
            self.session = Some(Session::start(&self.cluster, source)?);
        }
        Ok(self.session.as_mut().expect("it was made above"))
    }

    fn create_topic(&self, partitions: u16) -> Result<(), KafkaError> {
        let admin: AdminClient<DefaultClientContext> = self.cluster.config(&[]).create()?;
        let topic = NewTopic::new(&self.cluster.topic, partitions.into(), TopicReplication::Fixed(-1));
        let options = AdminOptions::new().request_timeout(Some(STEP_TIMEOUT));
        let runtime = Builder::new_current_thread()
            .build()
            .map_err(|cause| KafkaError::ClientCreation(cause.to_string()))?;
        let results = runtime.block_on(admin.create_topics([&topic], &options))?;
        match results.into_iter().next() {
            Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => {
                Err(KafkaError::AdminOp(code))
            }
            _ => Ok(()),
        }
    }

    /// What of a session fails: it is given up, and the next call begins another.
    fn failed(&mut self, what: &str, cause: KafkaError) -> SinkError {
        self.session = None;
        SinkError {
            what: format!("cannot {what} topic {} of Kafka at {}", self.cluster.topic, self.cluster.brokers),
            is_passing: is_passing(&cause),
            cause: Box::new(cause),
        }
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        match self.session(source) {
            Ok(session) => Ok(session.position),
            Err(cause) => Err(self.failed("ask for the position in", cause)),
        }
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let Some(last) = batch.entries.last().map(|entry| entry.number) else { return Ok(()) };
        let topic = self.cluster.topic.clone();
        let kept = self.session(&batch.source).and_then(|session| {
            if session.position.is_some_and(|position| position > last) {
                return Ok(());
            }
            session.transact(&topic, batch, last + 1)
        });
        kept.map_err(|cause| self.failed("write to", cause))
    }
}

impl Session {
    fn start(cluster: &Cluster, source: &Source) -> Result<Self, KafkaError> {
        let Source { host, epoch, .. } = source;
        let producer: BaseProducer =
            cluster.config(&PRODUCER).set("transactional.id", format!("thalweg-{host}-{epoch}")).create()?;
        // From here on no producer before this one can commit anything: the position stands.
        producer.init_transactions(STEP_TIMEOUT)?;
        let group: BaseConsumer = cluster
            .config(&[("enable.auto.commit", "false"), ("isolation.level", "read_committed")])
            .set("group.id", format!("thalweg-agent-{host}-{epoch}"))
            .create()?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&cluster.topic, 0);
        let committed = group.committed_offsets(asked, STEP_TIMEOUT)?;
        let place = committed.elements().into_iter().next();
        let position = match place {
            Some(place) => {
                place.error()?;
                place.offset().to_raw().and_then(|raw| u64::try_from(raw).ok())
            }
            None => None,
        };
        Ok(Self { producer, group, position })
    }

    /// A batch and the position after it, both or neither.
    fn transact(&mut self, topic: &str, batch: &Batch, position: u64) -> Result<(), KafkaError> {
        self.producer.begin_transaction()?;
        for (key, entries) in by_key(batch) {
            self.send(topic, &key, Batch { source: batch.source.clone(), entries })?;
        }
        let mut offsets = TopicPartitionList::new();
        let raw = i64::try_from(position).expect("no epoch has 2^63 records");
        offsets.add_partition_offset(topic, 0, Offset::Offset(raw))?;
        let group = self.group.group_metadata().expect("a client with a group.id has its metadata");
        self.producer.send_offsets_to_transaction(&offsets, &group, STEP_TIMEOUT)?;
        self.producer.commit_transaction(STEP_TIMEOUT)?;
        self.position = Some(position);
        Ok(())
    }

    /// One message, or as many as it takes for none to be too large.
    fn send(&self, topic: &str, key: &str, mut batch: Batch) -> Result<(), KafkaError> {
        let mut content = Vec::new();
        batch.encode(&mut content);
        if content.len() > MESSAGE_BYTES_MAX && batch.entries.len() > 1 {
            let rest = batch.entries.split_off(batch.entries.len() / 2);
            let rest = Batch { source: batch.source.clone(), entries: rest };
            self.send(topic, key, batch)?;
            return self.send(topic, key, rest);
        }
        let until = Instant::now() + STEP_TIMEOUT;
        let mut message = BaseRecord::to(topic).key(key).payload(&content);
        loop {
            match self.producer.send(message) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent))
                    if Instant::now() < until =>
                {
                    message = unsent;
                    self.producer.poll(QUEUE_PAUSE);
                }
                Err((cause, _)) => return Err(cause),
            }
        }
    }
}

/// The entries of a batch by the key of their message, in order.
fn by_key(batch: &Batch) -> BTreeMap<String, Vec<Entry>> {
    let mut groups: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
    for entry in &batch.entries {
        groups.entry(entry.prefix()).or_default().push(entry.clone());
    }
    let key = |prefix: Option<thalweg_record::Prefix>| {
        prefix.map_or_else(|| batch.source.host.clone(), |prefix| prefix.to_string())
    };
    groups.into_iter().map(|(prefix, entries)| (key(prefix), entries)).collect()
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
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
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
