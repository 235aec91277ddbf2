//! The consumer's Prometheus metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::clickhouse::Verified;

/// The consumer's counters and gauges.
#[derive(Debug, Default)]
pub struct Figures {
    /// Records inserted.
    pub records: Counter,
    /// Messages that could not be decoded, inserted into `refused`.
    pub messages_refused: Counter,
    /// Repeated messages dropped.
    pub messages_repeated: Counter,
    /// Blocks inserted.
    pub blocks: Counter,
    /// Verifications of blocks that a ClickHouse crash may have lost.
    pub verified: Verified,
    /// Failed reads, commits and inserts.
    pub failures: Counter,
    /// Unread messages in the assigned partitions, as last reported.
    pub lag_messages: Gauge,
}

impl Figures {
    /// Builds a registry with all metrics under their names.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("thalweg_consumer");
        let Verified { blocks, restored, unverified } = &self.verified;
        for (name, help, counter) in [
            ("records", "Records inserted into ClickHouse", &self.records),
            (
                "messages_refused",
                "Undecodable messages, stored whole in the table refused",
                &self.messages_refused,
            ),
            ("messages_repeated", "Repeated messages dropped", &self.messages_repeated),
            ("blocks", "Blocks inserted", &self.blocks),
            (
                "blocks_verified",
                "Per-table verifications of blocks whose insert failed or was interrupted",
                blocks,
            ),
            ("blocks_restored", "Verifications that restored a block lost in a ClickHouse crash", restored),
            ("blocks_unverified", "Abandoned verifications of blocks that may be lost", unverified),
            ("failures", "Failed reads, commits and inserts", &self.failures),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "lag_messages",
            "Unread messages in the assigned partitions",
            self.lag_messages.clone(),
        );
        registry
    }
}
