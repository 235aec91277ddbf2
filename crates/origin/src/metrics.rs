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
use crate::storage::pool::Stats;

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
    StorageRequests,
    StorageReadBytes,
    StorageConnections,
    StorageIdleConnections,
    StorageConnectionsOpened,
    StorageConnectionsReused,
    StorageConnectionsClosedIdle,
    StorageConnectionsExpired,
    StorageReuseRaces,
    StorageConnectionRequests,
    StorageConnectionAge,
    StorageSlotWaits,
    StorageSlotWaitSeconds,
    StorageResponsesAbandoned,
    StorageReads,
    StorageReadsCollapsed,
    StorageReadsResumed,
    StorageRequestsRepeated,
    StorageRequestsUnrepeated,
    StorageHedges,
    StorageHedgesWon,
    StorageFailures,
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
            other => other.of_storage(),
        }
    }

    /// Returns the name and help text of a metric of remote storage.
    fn of_storage(self) -> (&'static str, &'static str) {
        match self {
            Self::StorageRequests => ("thalweg_origin_storage_requests", "Requests to remote storage"),
            Self::StorageReadBytes => {
                ("thalweg_origin_storage_read_bytes", "Content bytes received from remote storage")
            }
            Self::StorageConnections => {
                ("thalweg_origin_storage_connections", "Open storage connections, idle ones included")
            }
            Self::StorageIdleConnections => {
                ("thalweg_origin_storage_idle_connections", "Idle storage connections")
            }
            Self::StorageConnectionsOpened => {
                ("thalweg_origin_storage_connections_opened", "Storage connections opened")
            }
            Self::StorageConnectionsReused => {
                ("thalweg_origin_storage_connections_reused", "Requests sent on a kept storage connection")
            }
            Self::StorageConnectionsClosedIdle => (
                "thalweg_origin_storage_connections_closed_idle",
                "Idle storage connections closed by the server",
            ),
            Self::StorageConnectionsExpired => (
                "thalweg_origin_storage_connections_expired",
                "Idle storage connections closed at the idle limit",
            ),
            Self::StorageReuseRaces => (
                "thalweg_origin_storage_reuse_races",
                "Kept storage connections closed as a request was sent; the request was repeated",
            ),
            Self::StorageConnectionRequests => {
                ("thalweg_origin_storage_connection_requests", "Requests on each closed storage connection")
            }
            Self::StorageConnectionAge => {
                ("thalweg_origin_storage_connection_age_seconds", "Age of each closed storage connection")
            }
            Self::StorageSlotWaits => {
                ("thalweg_origin_storage_slot_waits", "Requests that waited for a storage connection")
            }
            Self::StorageSlotWaitSeconds => {
                ("thalweg_origin_storage_slot_wait_seconds", "Time spent waiting for a storage connection")
            }
            Self::StorageResponsesAbandoned => {
                ("thalweg_origin_storage_responses_abandoned", "Responses not read to their end")
            }
            Self::StorageReads => ("thalweg_origin_storage_reads", "Ranged reads from remote storage"),
            Self::StorageReadsCollapsed => {
                ("thalweg_origin_storage_reads_collapsed", "Reads that joined an equal one in progress")
            }
            Self::StorageReadsResumed => {
                ("thalweg_origin_storage_reads_resumed", "Reads resumed after their response broke off")
            }
            Self::StorageRequestsRepeated => {
                ("thalweg_origin_storage_requests_repeated", "Requests sent again after a failure")
            }
            Self::StorageRequestsUnrepeated => {
                ("thalweg_origin_storage_requests_unrepeated", "Failed requests beyond the repetition budget")
            }
            Self::StorageHedges => ("thalweg_origin_storage_hedges", "Second requests for late reads"),
            Self::StorageHedgesWon => {
                ("thalweg_origin_storage_hedges_won", "Second requests that responded first")
            }
            Self::StorageFailures => {
                ("thalweg_origin_storage_failures", "Failed requests to remote storage, by kind")
            }
            _ => unreachable!("not a metric of storage"),
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
    pub(crate) fn registry(&self, live: &Live, storage: Option<&Stats>) -> Registry {
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
        if let Some(stats) = storage {
            register_storage(all, stats);
        }
        registry
    }
}

fn register_storage(registry: &mut Registry, stats: &Stats) {
    for (metric, counter) in [
        (Metric::StorageRequests, &stats.requests),
        (Metric::StorageReadBytes, &stats.read_bytes),
        (Metric::StorageConnectionsOpened, &stats.opened),
        (Metric::StorageConnectionsReused, &stats.reused),
        (Metric::StorageConnectionsClosedIdle, &stats.closed_idle),
        (Metric::StorageConnectionsExpired, &stats.expired),
        (Metric::StorageReuseRaces, &stats.races),
        (Metric::StorageSlotWaits, &stats.slot_waits),
        (Metric::StorageResponsesAbandoned, &stats.abandoned),
        (Metric::StorageReads, &stats.reads),
        (Metric::StorageReadsCollapsed, &stats.collapsed),
        (Metric::StorageReadsResumed, &stats.resumed),
        (Metric::StorageRequestsRepeated, &stats.repeated),
        (Metric::StorageRequestsUnrepeated, &stats.unrepeated),
        (Metric::StorageHedges, &stats.hedges),
        (Metric::StorageHedgesWon, &stats.hedges_won),
    ] {
        register(registry, metric, counter.clone());
    }
    register(registry, Metric::StorageConnections, stats.open.clone());
    register(registry, Metric::StorageIdleConnections, stats.idle.clone());
    register(registry, Metric::StorageSlotWaitSeconds, stats.slot_wait_s.clone());
    register(registry, Metric::StorageConnectionRequests, stats.connection_requests.clone());
    register(registry, Metric::StorageConnectionAge, stats.connection_age_s.clone());
    register(registry, Metric::StorageFailures, stats.failures.clone());
}

fn register(
    registry: &mut Registry,
    metric: Metric,
    value: impl EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
) {
    let (name, help) = metric.described();
    registry.register(name, help, value);
}
