//! What the sink and the consumer have in common of Kafka: where it is, the topic, and properties of librdkafka that an
//! operator sets beside ours.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use crate::Error;

/// The topic, unless another is named.
pub const TOPIC: &str = "thalweg.telemetry";
/// How long a broker may take to say which topics there are.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// A Kafka cluster and a topic on it.
#[derive(Clone)]
pub struct Cluster {
    /// Brokers to ask first: `host:port`, separated by commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// Further properties of librdkafka, such as those of SASL; they go over ours.
    pub properties: Vec<(String, String)>,
}

/// Values of properties may be passwords.
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
    /// A client's configuration: ours, given as pairs, then the operator's.
    pub(crate) fn config(&self, ours: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("client.id", "thalweg");
        let theirs = self.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in ours.iter().copied().chain(theirs) {
            config.set(key, value);
        }
        config
    }
}

impl Cluster {
    /// Whether the topic is there. It is not made by asking.
    ///
    /// # Errors
    /// When a property is wrong, no broker answers in time, or one may not say.
    pub fn has_topic(&self) -> Result<bool, Error> {
        let failed = |cause| Error::of(format!("cannot ask Kafka at {}", self.brokers), cause);
        let client: BaseConsumer = self.config(&[]).create().map_err(failed)?;
        let metadata = client.fetch_metadata(Some(&self.topic), ASK_TIMEOUT).map_err(failed)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        match topic.and_then(MetadataTopic::error).map(RDKafkaErrorCode::from) {
            None => Ok(topic.is_some_and(|topic| !topic.partitions().is_empty())),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(false),
            Some(code) => Err(failed(KafkaError::MetadataFetch(code))),
        }
    }
}

/// A property as it is written, `key=value`.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value, with a property of librdkafka".to_owned()),
    }
}
