//! The consumer's own figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use thalweg_telemetry::consumer::Figures;

/// Every figure there is.
#[derive(Debug, Clone, Copy)]
enum Metric {
    Records,
    MessagesRefused,
    MessagesRepeated,
    Blocks,
    BlocksVerified,
    BlocksRestored,
    BlocksUnverified,
    Failures,
    LagMessages,
}

impl Metric {
    const ALL: [Self; 9] = [
        Self::Records,
        Self::MessagesRefused,
        Self::MessagesRepeated,
        Self::Blocks,
        Self::BlocksVerified,
        Self::BlocksRestored,
        Self::BlocksUnverified,
        Self::Failures,
        Self::LagMessages,
    ];

    /// Its name, without the `_total` that counters get, and what it says.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Records => ("thalweg_consumer_records", "Records inserted into ClickHouse"),
            Self::MessagesRefused => {
                ("thalweg_consumer_messages_refused", "Messages that could not be read, kept whole")
            }
            Self::MessagesRepeated => {
                ("thalweg_consumer_messages_repeated", "Messages that were sent again, dropped")
            }
            Self::Blocks => ("thalweg_consumer_blocks", "Blocks inserted"),
            Self::BlocksVerified => (
                "thalweg_consumer_blocks_verified",
                "Looks, by table, for a block of which an insert failed or was given up",
            ),
            Self::BlocksRestored => (
                "thalweg_consumer_blocks_restored",
                "Of those, where a kill of ClickHouse had lost the block",
            ),
            Self::BlocksUnverified => {
                ("thalweg_consumer_blocks_unverified", "Looks that were given up: the block is there or lost")
            }
            Self::Failures => {
                ("thalweg_consumer_failures", "Failed attempts at reading, committing and inserting")
            }
            Self::LagMessages => {
                ("thalweg_consumer_lag_messages", "Messages that wait in the assigned partitions")
            }
        }
    }

    fn of(self, figures: &Figures) -> &AtomicU64 {
        match self {
            Self::Records => &figures.records,
            Self::MessagesRefused => &figures.refused,
            Self::MessagesRepeated => &figures.repeated,
            Self::Blocks => &figures.blocks,
            Self::BlocksVerified => &figures.verified.blocks,
            Self::BlocksRestored => &figures.verified.restored,
            Self::BlocksUnverified => &figures.verified.unverified,
            Self::Failures => &figures.failures,
            Self::LagMessages => &figures.lag_messages,
        }
    }
}

#[derive(Debug)]
pub(super) struct Told(pub(super) Arc<Figures>);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for metric in Metric::ALL {
            let (name, help) = metric.told();
            let value = metric.of(&self.0).load(Relaxed);
            if matches!(metric, Metric::LagMessages) {
                let member = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                ConstGauge::new(value).encode(member)?;
            } else {
                let member = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                ConstCounter::new(value).encode(member)?;
            }
        }
        Ok(())
    }
}
