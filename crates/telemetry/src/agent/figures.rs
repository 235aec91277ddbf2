//! The agent's Prometheus metrics, read from the collector, the spool and the sinks at each scrape.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::collect::CollectorFigures;
use crate::runner::SinkState;
use crate::spool::Spool;

/// Handle to a running agent's counters and gauges.
#[derive(Debug, Clone)]
pub struct Figures {
    pub(super) collector: Arc<CollectorFigures>,
    pub(super) sinks: Vec<Arc<SinkState>>,
    pub(super) spool: Arc<Spool>,
}

/// A metric reported for each sink: name, help string, type and value. A counter's name lacks the
/// suffix `_total`, which the encoder adds.
type OfSink = (&'static str, &'static str, MetricType, fn(&SinkState) -> u64);

const OF_SINKS: [OfSink; 7] = [
    ("records", "Records stored by the sink", MetricType::Counter, SinkState::stored),
    (
        "records_lost",
        "Records deleted from the spool before the sink read them",
        MetricType::Counter,
        SinkState::lost,
    ),
    ("retries", "Failed operations that the sink retried", MetricType::Counter, SinkState::retries),
    (
        "batches_unverified",
        "Batches that a crash of the sink's server may have lost and that could not be verified",
        MetricType::Counter,
        SinkState::unverified,
    ),
    ("lag_records", "Records in the spool that the sink has not stored yet", MetricType::Gauge, |sink| {
        sink.lag().records
    }),
    ("lag_bytes", "Bytes of spooled records that the sink has not stored yet", MetricType::Gauge, |sink| {
        sink.lag().bytes
    }),
    ("up", "Whether the sink is storing records", MetricType::Gauge, |sink| {
        u64::from(sink.error().is_none())
    }),
];

impl Figures {
    /// Builds a registry of all agent metrics.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("thalweg_agent");
        registry.register_collector(Box::new(self.clone()));
        registry
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Self { collector, sinks, spool } = self;
        let seconds = |us: u64| Duration::from_micros(us).as_secs_f64();
        for (name, help, value) in [
            ("dumps", "Dumps of all sockets", collector.dumps.load(Relaxed)),
            ("dumps_failed", "Failed dumps", collector.dumps_failed.load(Relaxed)),
            ("sockets_destroyed", "Destroyed sockets recorded", collector.destroyed.load(Relaxed)),
            ("events_lost", "Destroy events lost by the kernel", collector.events_lost.load(Relaxed)),
            ("spool_records", "Records appended to the spool", spool.appended()),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        let cpu = encoder.encode_descriptor(
            "dump_cpu_seconds",
            "CPU time of all dumps",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(seconds(collector.dump_cpu_us.load(Relaxed))).encode(cpu)?;
        for (name, help, value) in [
            ("dump_seconds", "Duration of the last dump", seconds(collector.dump_us.load(Relaxed))),
            ("sockets", "Sockets in the last dump", collector.sockets.load(Relaxed) as f64),
            ("spool_bytes", "Total size of the spool segments", spool.total_bytes() as f64),
            ("spool_bytes_max", "Limit on the total size of the spool segments", spool.limit_bytes() as f64),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        for (name, help, kind, value) in OF_SINKS {
            let name = format!("sink_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
            for sink in sinks {
                let labels = [("sink", sink.name())];
                let member = family.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(value(sink)).encode(member)?,
                    _ => ConstGauge::new(value(sink) as f64).encode(member)?,
                }
            }
        }
        Ok(())
    }
}
