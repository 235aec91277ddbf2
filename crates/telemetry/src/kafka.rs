//! What the sink and the consumer have in common of Kafka: where it is, the topic, properties of librdkafka that an operator
//! sets beside ours, and what tells a message from the same one sent again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::metadata::MetadataTopic;
use tokio::runtime::Builder;

use crate::Error;

/// The topic, unless another is named.
pub const TOPIC: &str = "thalweg.telemetry";
/// How long a broker may take to say which topics there are.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the brokers may take to make the topic.
const CREATE_TIMEOUT: Duration = Duration::from_secs(20);

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

    /// Makes the topic with these settings, unless it is there.
    pub(crate) fn create_topic(&self, partitions: u16, settings: &[(&str, &str)]) -> Result<(), KafkaError> {
        let admin: AdminClient<DefaultClientContext> = self.config(&[]).create()?;
        let topic = NewTopic::new(&self.topic, partitions.into(), TopicReplication::Fixed(-1));
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let options = AdminOptions::new().request_timeout(Some(CREATE_TIMEOUT));
        let runtime = Builder::new_current_thread()
            .build()
            .map_err(|cause| KafkaError::ClientCreation(cause.to_string()))?;
        let results = runtime.block_on(admin.create_topics([&topic], &options))?;
        use RDKafkaErrorCode as Code;
        match results.into_iter().next() {
            // Who may not make topics may still write to this one; if it is not there, sending says so.
            Some(Err((
                _,
                Code::TopicAlreadyExists | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed,
            ))) => Ok(()),
            Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
            _ => Ok(()),
        }
    }
}

/// Properties that are ours alone: on them rests that nothing is lost and nothing is there twice.
const OURS: [&str; 18] = [
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

/// A property as it is written, `key=value`.
///
/// # Errors
/// When it is written otherwise, or is not an operator's to set.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, _)) if OURS.contains(&key) => {
            Err(format!("{key} is not to be set: that records are kept once rests on it"))
        }
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value, with a property of librdkafka".to_owned()),
    }
}

/// The header of a message that has its [`Place`].
const PLACE: &str = "thalweg-place";

/// Which message of which batch a message is. In a partition the places of a source's messages go up, but where some were sent
/// again: then they begin again further back, and who reads them drops what is not above the highest place so far. As text
/// it is `BATCH_END/PART`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number after the last record of the batch.
    pub(crate) batch_end: u64,
    /// The message in the batch, from 0.
    pub(crate) part: u32,
}

impl Place {
    /// As a header.
    pub(crate) fn headers(self) -> OwnedHeaders {
        OwnedHeaders::new_with_capacity(1).insert(Header { key: PLACE, value: Some(&self.to_string()) })
    }

    /// From the headers of a message; `None` if they have none, as of a message that somebody else made.
    pub(crate) fn of(headers: &impl Headers) -> Option<Self> {
        let header = headers.iter().find(|header| header.key == PLACE)?;
        std::str::from_utf8(header.value?).ok()?.parse().ok()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.batch_end, self.part)
    }
}

impl FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (batch_end, part) = text.split_once('/').unwrap_or((text, ""));
        Ok(Self { batch_end: batch_end.parse()?, part: part.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_a_header() {
        let place = Place { batch_end: u64::MAX, part: 7 };
        assert_eq!(Place::of(&place.headers()), Some(place));
        for wrong in ["", "7", "7/", "/7", "a/7", "7/-1", "7/8/9"] {
            let headers = OwnedHeaders::new().insert(Header { key: PLACE, value: Some(wrong) });
            assert_eq!(Place::of(&headers), None, "{wrong}");
        }
        assert_eq!(Place::of(&OwnedHeaders::new()), None);
        assert!(Place { batch_end: 8, part: 0 } > Place { batch_end: 7, part: 9 });
    }
}
