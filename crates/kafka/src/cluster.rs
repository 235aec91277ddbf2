//! Kafka cluster settings: brokers, topic and librdkafka properties. An operator's properties
//! override the built-in properties. Properties on which exactly-once delivery depends cannot be
//! set.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use tokio::runtime::Builder;

use crate::error::Error;
use crate::fault::{self, Faults};

/// Default topic name.
pub const DEFAULT_TOPIC: &str = "thalweg.telemetry";
/// Timeout for listing a broker's topics.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for creating a topic.
const CREATE_TIMEOUT: Duration = Duration::from_secs(20);

/// A Kafka cluster and a topic on it.
#[derive(Clone)]
pub struct Cluster {
    /// Bootstrap brokers: `host:port`, separated by commas.
    pub brokers: String,
    /// Topic name.
    pub topic: String,
    /// The operator's librdkafka properties, for example for SASL. These override the built-in
    /// properties.
    pub properties: Vec<(String, String)>,
}

/// Omits property values, which may contain passwords.
impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self.properties.iter().map(|(key, _)| key).collect();
        let Self { brokers, topic, .. } = self;
        f.debug_struct("Cluster")
            .field("brokers", brokers)
            .field("topic", topic)
            .field("properties", &keys)
            .finish()
    }
}

impl Cluster {
    /// Builds a client configuration from the built-in properties `ours`, overridden by the
    /// operator's.
    pub(crate) fn config(&self, ours: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("client.id", "thalweg");
        let theirs = self.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in ours.iter().copied().chain(theirs) {
            config.set(key, value);
        }
        config
    }

    /// Returns whether the topic exists, without creating it.
    ///
    /// # Errors
    ///
    /// Returns an error if a property is invalid, no broker responds in time, or access is denied.
    pub fn has_topic(&self) -> Result<bool, Error> {
        let what = || format!("cannot list Kafka topics at {}", self.brokers);
        let failed = |cause| Error::new(what(), cause);
        let client: BaseConsumer<Faults> =
            self.config(&[]).create_with_context(Faults::default()).map_err(failed)?;
        let metadata = client.fetch_metadata(Some(&self.topic), LIST_TIMEOUT).map_err(|cause| {
            fault::read_events(&client);
            Error::explained(what(), cause, client.context())
        })?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        match topic.and_then(MetadataTopic::error).map(RDKafkaErrorCode::from) {
            None => Ok(topic.is_some_and(|topic| !topic.partitions().is_empty())),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(false),
            Some(code) => Err(failed(KafkaError::MetadataFetch(code))),
        }
    }

    /// Creates the topic if it does not exist.
    pub(crate) fn create_topic(&self, partitions: u16) -> Result<(), Error> {
        // Check with an ordinary client first, because the administrative client does not report
        // why it cannot connect.
        if self.has_topic()? {
            return Ok(());
        }
        self.try_create_topic(partitions).map_err(|cause| {
            Error::new(format!("cannot create topic {} of Kafka at {}", self.topic, self.brokers), cause)
        })
    }

    fn try_create_topic(&self, partitions: u16) -> Result<(), KafkaError> {
        let admin: AdminClient<DefaultClientContext> = self.config(&[]).create()?;
        let topic = NewTopic::new(&self.topic, partitions.into(), TopicReplication::Fixed(-1));
        let options = AdminOptions::new().request_timeout(Some(CREATE_TIMEOUT));
        let runtime = Builder::new_current_thread()
            .build()
            .map_err(|cause| KafkaError::ClientCreation(cause.to_string()))?;
        let results = runtime.block_on(admin.create_topics([&topic], &options))?;
        use RDKafkaErrorCode as Code;
        match results.into_iter().next() {
            // A client without permission to create topics may still be able to write to an
            // existing one. If the topic is missing, that write reports it.
            Some(Err((
                _,
                Code::TopicAlreadyExists | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed,
            ))) => Ok(()),
            Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
            _ => Ok(()),
        }
    }
}

/// Properties that an operator cannot set, because exactly-once delivery depends on them.
const RESERVED: [&str; 18] = [
    "acks",
    "allow.auto.create.topics",
    "auto.offset.reset",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.timeout.ms",
    "partition.assignment.strategy",
    "partitioner",
    "request.required.acks",
    "retries",
    "transactional.id",
];

/// Parses a property of the form `key=value`.
///
/// # Errors
///
/// Returns an error if the property is malformed or reserved.
pub fn parse_property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, _)) if RESERVED.contains(&key) => {
            Err(format!("{key} cannot be set: exactly-once delivery depends on it"))
        }
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value, where key is a librdkafka property".to_owned()),
    }
}
