//! Kafka sink: sends each batch to the topic at least once. Each message carries its position, by
//! which readers drop repeats.

use thalweg_kafka::{Cluster, Producer};
use thalweg_record::{Batch, Source};

use crate::error::SinkError;
use crate::sink::Sink;

/// The Kafka sink.
#[derive(Debug)]
pub struct KafkaSink(Producer);

impl KafkaSink {
    /// Creates a sink for a topic, without connecting yet. If the topic does not exist and
    /// `create_partitions` is given, the sink creates the topic with that many partitions.
    pub fn new(cluster: Cluster, create_partitions: Option<u16>) -> Self {
        Self(Producer::new(cluster, create_partitions))
    }
}

impl Sink for KafkaSink {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
        Ok(None)
    }

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.0.produce(batch).map_err(|error| SinkError {
            what: error.to_string(),
            is_passing: error.is_passing,
            cause: error.cause,
        })
    }
}
