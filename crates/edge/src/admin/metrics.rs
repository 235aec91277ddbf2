//! Prometheus metrics of the edge: each scrape is a snapshot of counters the edge maintains anyway.
//!
//! **Invariant:** the number of label values is bounded by the configuration and the loaded
//! policies; none comes from a client.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use thalweg_record::CacheResult;

use super::AdminState;

/// Registers all metrics with their current values.
pub(super) fn registry(state: &AdminState) -> Registry {
    let AdminState { records, cache, steering, .. } = state;
    let mut registry = Registry::with_prefix("thalweg_edge");
    let mut add = Metrics(&mut registry);
    add.0.register(
        "responses",
        "Responses finished or cut off, by cache result and status class",
        responses(state),
    );
    add.counter("responses_begun", "Responses started, including those in progress", records.started());
    add.counter(
        "content_bytes",
        "Content bytes written to the kernel, added when a response finishes or is cut off",
        records.bytes(),
    );
    add.counter("records_lost", "Response records dropped because the log's queue was full", records.lost());
    add.counter(
        "responses_sampled_out",
        "Responses started that get no record, because their client is not sampled",
        records.sampled_out(),
    );
    let kept = records.kept();
    add.seconds(
        "records_kept_seconds",
        "Age of the oldest response record kept for followers that reconnect",
        kept.time,
    );
    add.gauge(
        "records_kept_bytes",
        "Approximate memory used by the response records kept for followers",
        kept.bytes as u64,
    );
    add.gauge(
        "records_kept_bytes_max",
        "Memory limit for the response records kept for followers",
        kept.bytes_max as u64,
    );
    add.gauge(
        "connections",
        "Open client connections, including idle ones",
        state.connections.load(Relaxed) as u64,
    );
    add.gauge("connections_max", "Limit on open client connections", state.connections_max as u64);
    let arena = cache.arena();
    add.gauge(
        "stored_responses",
        "Stored responses in memory or on disk, including those still arriving",
        cache.stored() as u64,
    );
    add.gauge(
        "memory_bytes",
        "Memory used by stored content, including space reserved for content still arriving",
        arena.live_bytes() as u64,
    );
    add.gauge("memory_bytes_max", "Memory limit for stored content", state.memory_bytes_max);
    add.gauge("memory_slabs_free", "Free 2 MiB memory slabs for content", arena.free_slabs() as u64);
    add.gauge(
        "index_bytes",
        "Memory used by the index: keys, fields and the index structures",
        cache.index_bytes() as u64,
    );
    if let Some(disk) = cache.disk_stats() {
        add.gauge("disk_bytes", "Total size of the stored responses' files", disk.bytes);
        add.gauge("disk_bytes_max", "Limit on the total size of the stored responses' files", disk.bytes_max);
        add.gauge(
            "disk_responses",
            "Stored responses on disk, including those also in memory",
            disk.responses as u64,
        );
        add.gauge(
            "disk_scanned",
            "1 if the startup scan of the disk is complete, 0 if it is in progress",
            u64::from(disk.is_scanned),
        );
        add.counter("disk_errors", "Failed disk operations and damaged files", disk.errors);
        add.counter(
            "disk_skipped",
            "Responses not written to disk because they were too large, the write queue or the \
             disk was full, or writing was paused after errors",
            disk.skipped,
        );
    }
    add.0.register("backend_healthy", "1 if the backend is healthy, 0 if it is sick", backends(state));
    add.gauge(
        "purges_in_force",
        "Purges and bans not yet checked against every stored response",
        cache.purges_in_force() as u64,
    );
    add.gauge(
        "bans_in_force",
        "Bans not yet checked against every stored response",
        cache.bans().len() as u64,
    );
    add.counter(
        "congestion_control_refused",
        "Congestion control changes refused by the kernel",
        steering.refused(),
    );
    if let Some(refusals) = state.bundles.refusals() {
        add.counter("bundles_refused", "Bundles refused, without repetitions of the last one", refusals);
    }
    if let Some(number) = state.bundles.number() {
        add.gauge("bundle_number", "Number of the active steering bundle", number);
    }
    registry
}

fn responses(state: &AdminState) -> Family<[(&'static str, String); 2], Counter> {
    let family = Family::<[(&str, String); 2], Counter>::default();
    for (cache, class, count) in state.records.ended() {
        // Successful hits and misses are always exported, so that their rates have an initial
        // value.
        let is_common = class == 2 && matches!(cache, CacheResult::Hit | CacheResult::Miss);
        if count > 0 || is_common {
            let labels = [("cache", cache.as_str().to_owned()), ("status", format!("{class}xx"))];
            family.get_or_create(&labels).inc_by(count);
        }
    }
    family
}

fn backends(state: &AdminState) -> Family<[(&'static str, String); 2], Gauge> {
    let family = Family::<[(&str, String); 2], Gauge>::default();
    for backend in state.backends.states() {
        let labels = [("backend", backend.name), ("address", backend.address.unwrap_or_default())];
        family.get_or_create(&labels).set(i64::from(backend.is_healthy));
    }
    family
}

/// Registers metrics, one method per type.
struct Metrics<'a>(&'a mut Registry);

impl Metrics<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, ConstCounter::new(value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, ConstGauge::new(value));
    }

    fn seconds(&mut self, name: &str, help: &str, value: Duration) {
        self.0.register(name, help, ConstGauge::new(value.as_secs_f64()));
    }
}
