//! What the sink and the consumer have in common of Kafka: where it is, the topic, and properties of librdkafka that an
//! operator sets beside ours.

use rdkafka::ClientConfig;

/// The topic, unless another is named.
pub const TOPIC: &str = "thalweg.telemetry";

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

/// A property as it is written, `key=value`.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value, with a property of librdkafka".to_owned()),
    }
}
