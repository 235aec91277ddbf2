//! Prometheus metrics of an origin.
//!
//! **Invariant:** the number of label values is bounded, and no label contains the name of a
//! channel, presentation or client.

use hyper::StatusCode;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::live::{Live, Usage};

/// All metrics.
#[derive(Debug, Clone, Copy)]
enum Metric {
    Connections,
    Responses,
    WrittenBytes,
    Uploads,
    UploadBytes,
    UploadHeldBytes,
    Channels,
    LiveMemoryBytes,
    LiveMemoryBytesMax,
}

impl Metric {
    /// Returns the metric's name, without the `_total` suffix of counters, and its help text.
    fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("thalweg_origin_connections", "Open connections, by listener"),
            Self::Responses => ("thalweg_origin_responses", "Responses, by listener and status class"),
            Self::WrittenBytes => {
                ("thalweg_origin_written_bytes", "Bytes the kernel accepted for sending, by listener")
            }
            Self::Uploads => ("thalweg_origin_uploads", "Uploads in progress"),
            Self::UploadBytes => ("thalweg_origin_upload_bytes", "Content bytes received in uploads"),
            Self::UploadHeldBytes => ("thalweg_origin_upload_held_bytes", "Memory held by incomplete chunks"),
            Self::Channels => ("thalweg_origin_channels", "Live channels"),
            Self::LiveMemoryBytes => ("thalweg_origin_live_memory_bytes", "Memory in use by live segments"),
            Self::LiveMemoryBytesMax => {
                ("thalweg_origin_live_memory_bytes_max", "Memory limit of live segments")
            }
        }
    }
}

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Metrics updated as events happen.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    connections: Family<Labels<1>, Gauge>,
    responses: Family<Labels<2>, Counter>,
    written_bytes: Family<Labels<1>, Counter>,
    uploads: Gauge,
    pub(crate) upload_bytes: Counter,
}

/// Increments a gauge, and decrements it when dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: Gauge) -> GaugeGuard {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts an open connection on a listener until the guard is dropped.
    pub(crate) fn connection(&self, listener: &'static str) -> GaugeGuard {
        GaugeGuard::new(self.connections.get_or_create_owned(&[("listener", listener)]))
    }

    /// Counts an authorised upload in progress until the guard is dropped.
    pub(crate) fn upload(&self) -> GaugeGuard {
        GaugeGuard::new(self.uploads.clone())
    }

    /// Returns the counter of bytes accepted by the kernel on a listener's connections.
    pub(crate) fn written(&self, listener: &'static str) -> Counter {
        self.written_bytes.get_or_create_owned(&[("listener", listener)])
    }

    /// Counts a response.
    pub(crate) fn count(&self, listener: &'static str, status: StatusCode) {
        let status = match status.as_u16() {
            ..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            500.. => "5xx",
        };
        self.responses.get_or_create(&[("listener", listener), ("status", status)]).inc();
    }

    /// Builds a registry with the current value of every metric.
    pub(crate) fn registry(&self, live: &Live) -> Registry {
        let mut registry = Registry::default();
        let all = &mut registry;
        register(all, Metric::Connections, self.connections.clone());
        register(all, Metric::Responses, self.responses.clone());
        register(all, Metric::WrittenBytes, self.written_bytes.clone());
        register(all, Metric::Uploads, self.uploads.clone());
        register(all, Metric::UploadBytes, self.upload_bytes.clone());
        let Usage { channels, memory_bytes, memory_bytes_max, held_bytes } = live.usage();
        for (metric, value) in [
            (Metric::UploadHeldBytes, held_bytes),
            (Metric::Channels, channels),
            (Metric::LiveMemoryBytes, memory_bytes),
            (Metric::LiveMemoryBytesMax, memory_bytes_max),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(value.cast_signed());
            register(all, metric, gauge);
        }
        registry
    }
}

fn register(
    registry: &mut Registry,
    metric: Metric,
    value: impl EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
) {
    let (name, help) = metric.described();
    registry.register(name, help, value);
}
