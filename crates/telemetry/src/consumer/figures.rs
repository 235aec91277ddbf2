//! The consumer's Prometheus metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::clickhouse::Verified;

/// The consumer's counters and gauges.
#[derive(Debug, Default)]
pub struct Figures {
    /// Records inserted into ClickHouse.
    pub records: Counter,
    /// Undecodable messages inserted into the table `refused`.
    pub messages_refused: Counter,
    /// Repeated messages dropped.
    pub messages_repeated: Counter,
    /// Blocks inserted into ClickHouse.
    pub blocks: Counter,
    /// Verifications of blocks that may have been lost in a ClickHouse crash.
    pub verified: Verified,
    /// Failed Kafka operations and ClickHouse requests.
    pub failures: Counter,
    /// Unread messages in the assigned partitions, as last reported by the Kafka client.
    pub lag_messages: Gauge,
}

impl Figures {
    /// Builds a registry of all consumer metrics.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("thalweg_consumer");
        let Verified { blocks, restored, unverified } = &self.verified;
        for (name, help, counter) in [
            ("records", "Records inserted into ClickHouse", &self.records),
            (
                "messages_refused",
                "Undecodable messages inserted unchanged into the table `refused`",
                &self.messages_refused,
            ),
            ("messages_repeated", "Repeated messages dropped", &self.messages_repeated),
            ("blocks", "Blocks inserted into ClickHouse", &self.blocks),
            (
                "blocks_verified",
                "Completed verifications of blocks after a failed or interrupted insert, one per table",
                blocks,
            ),
            (
                "blocks_restored",
                "Completed verifications that restored rows lost in a ClickHouse crash",
                restored,
            ),
            (
                "blocks_unverified",
                "Abandoned verifications, after which rows of the block may be missing from the table",
                unverified,
            ),
            ("failures", "Failed Kafka operations and ClickHouse requests", &self.failures),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "lag_messages",
            "Unread messages in the assigned partitions, as last reported by the Kafka client",
            self.lag_messages.clone(),
        );
        registry
    }
}
