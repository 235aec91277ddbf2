//! The agent's own figures for Prometheus.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use thalweg_telemetry::agent::Figures;

/// Every figure there is: its name, without the `_total` that counters get, and what it says.
#[derive(Debug, Clone, Copy)]
enum Metric {
    Dumps,
    DumpsFailed,
    DumpSeconds,
    DumpCpuSeconds,
    Sockets,
    SocketsDestroyed,
    EventsLost,
    SpoolRecords,
    SpoolBytes,
    SinkRecords,
    SinkRecordsLost,
    SinkRetries,
    SinkBatchesUnverified,
    SinkLagRecords,
    SinkLagBytes,
    SinkUp,
}

impl Metric {
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Dumps => ("thalweg_agent_dumps", "Dumps of all sockets"),
            Self::DumpsFailed => ("thalweg_agent_dumps_failed", "Dumps that the kernel refused"),
            Self::DumpSeconds => ("thalweg_agent_dump_seconds", "How long the last dump took"),
            Self::DumpCpuSeconds => ("thalweg_agent_dump_cpu_seconds", "CPU time of all dumps"),
            Self::Sockets => ("thalweg_agent_sockets", "Sockets in the last dump"),
            Self::SocketsDestroyed => ("thalweg_agent_sockets_destroyed", "Sockets whose end was heard"),
            Self::EventsLost => {
                ("thalweg_agent_events_lost", "Ends of sockets that the kernel could not tell")
            }
            Self::SpoolRecords => ("thalweg_agent_spool_records", "Records put into the spool"),
            Self::SpoolBytes => ("thalweg_agent_spool_bytes", "Size of the spool"),
            Self::SinkRecords => ("thalweg_agent_sink_records", "Records that the sink has kept"),
            Self::SinkRecordsLost => (
                "thalweg_agent_sink_records_lost",
                "Records that had left the spool before the sink had them",
            ),
            Self::SinkRetries => ("thalweg_agent_sink_retries", "Failures after which the sink tried again"),
            Self::SinkBatchesUnverified => (
                "thalweg_agent_sink_batches_unverified",
                "Batches of which the sink cannot say whether a kill of its server has lost them",
            ),
            Self::SinkLagRecords => {
                ("thalweg_agent_sink_lag_records", "Records in the spool that the sink lacks")
            }
            Self::SinkLagBytes => ("thalweg_agent_sink_lag_bytes", "Bytes of the spool that the sink lacks"),
            Self::SinkUp => ("thalweg_agent_sink_up", "Whether the sink keeps what it is given"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Told(pub(super) Figures);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Figures { collector, sinks, spool } = &self.0;
        let seconds = |us: u64| Duration::from_micros(us).as_secs_f64();
        let encoder = &mut encoder;
        counter(encoder, Metric::Dumps, collector.dumps.load(Relaxed))?;
        counter(encoder, Metric::DumpsFailed, collector.dumps_failed.load(Relaxed))?;
        gauge(encoder, Metric::DumpSeconds, seconds(collector.dump_us.load(Relaxed)))?;
        let cpu = ConstCounter::new(seconds(collector.dump_cpu_us.load(Relaxed)));
        cpu.encode(described(encoder, Metric::DumpCpuSeconds, MetricType::Counter)?)?;
        gauge(encoder, Metric::Sockets, collector.sockets.load(Relaxed) as f64)?;
        counter(encoder, Metric::SocketsDestroyed, collector.destroyed.load(Relaxed))?;
        counter(encoder, Metric::EventsLost, collector.events_lost.load(Relaxed))?;
        counter(encoder, Metric::SpoolRecords, spool.appended())?;
        gauge(encoder, Metric::SpoolBytes, spool.total_bytes() as f64)?;
        for (metric, kind) in [
            (Metric::SinkRecords, MetricType::Counter),
            (Metric::SinkRecordsLost, MetricType::Counter),
            (Metric::SinkRetries, MetricType::Counter),
            (Metric::SinkBatchesUnverified, MetricType::Counter),
            (Metric::SinkLagRecords, MetricType::Gauge),
            (Metric::SinkLagBytes, MetricType::Gauge),
            (Metric::SinkUp, MetricType::Gauge),
        ] {
            let mut family = described(encoder, metric, kind)?;
            for sink in sinks {
                let value = match metric {
                    Metric::SinkRecords => sink.kept(),
                    Metric::SinkRecordsLost => sink.lost(),
                    Metric::SinkRetries => sink.retries(),
                    Metric::SinkBatchesUnverified => sink.unverified(),
                    Metric::SinkLagRecords => sink.lag().records,
                    Metric::SinkLagBytes => sink.lag().bytes,
                    _ => u64::from(sink.error().is_none()),
                };
                let labels = [("sink", sink.name())];
                let member = family.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(value).encode(member)?,
                    _ => ConstGauge::new(value as f64).encode(member)?,
                }
            }
        }
        Ok(())
    }
}

fn described<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    metric: Metric,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, std::fmt::Error> {
    let (name, help) = metric.told();
    encoder.encode_descriptor(name, help, None, kind)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, metric: Metric, value: u64) -> Result<(), std::fmt::Error> {
    ConstCounter::new(value).encode(described(encoder, metric, MetricType::Counter)?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, metric: Metric, value: f64) -> Result<(), std::fmt::Error> {
    ConstGauge::new(value).encode(described(encoder, metric, MetricType::Gauge)?)
}
