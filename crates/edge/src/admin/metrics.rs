//! Prometheus metrics of the edge: each scrape is a snapshot of counters that the edge maintains
//! anyway.
//!
//! **Invariant:** labels are bounded by the configuration and the loaded policies, never by what
//! clients send.

use std::sync::atomic::Ordering::Relaxed;

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
    let mut add = Figures(&mut registry);
    add.0.register(
        "responses",
        "Responses that have ended, by cache result and class of status",
        responses(state),
    );
    add.counter("responses_begun", "Responses started", records.started());
    add.counter(
        "content_bytes",
        "Content bytes of ended responses that were written to the kernel",
        records.bytes(),
    );
    add.counter("records_lost", "Records lost because a ring was full", records.lost());
    add.gauge("connections", "Open client connections", state.connections.load(Relaxed) as u64);
    add.gauge("connections_max", "Maximum open client connections", state.connections_max as u64);
    let arena = cache.arena();
    add.gauge("stored_responses", "Stored responses", cache.stored() as u64);
    add.gauge("memory_bytes", "Memory in use by stored content", arena.live_bytes() as u64);
    add.gauge("memory_bytes_max", "Memory for stored content", state.memory_bytes_max);
    add.gauge("memory_slabs_free", "Free memory slabs", arena.free_slabs() as u64);
    add.gauge("index_bytes", "Memory in use by the index", cache.index_bytes() as u64);
    if let Some(disk) = cache.disk_stats() {
        add.gauge("disk_bytes", "Content on disk", disk.bytes);
        add.gauge("disk_bytes_max", "Disk for stored content", disk.bytes_max);
        add.gauge("disk_responses", "Stored responses on disk", disk.responses as u64);
        add.gauge("disk_scanned", "1 once the disk has been scanned", u64::from(disk.is_scanned));
        add.counter("disk_errors", "Failed reads and writes of the disk tier", disk.errors);
        add.counter("disk_skipped", "Responses not written to disk because it was too slow", disk.skipped);
    }
    add.0.register("backend_healthy", "1 if the backend is healthy, 0 if it is sick", backends(state));
    add.gauge(
        "purges_in_force",
        "Purges that stored responses are still tested against",
        cache.purges_in_force() as u64,
    );
    add.gauge(
        "bans_in_force",
        "Bans that stored responses are still tested against",
        cache.bans().len() as u64,
    );
    let refused = steering.refused();
    add.counter("congestion_control_refused", "Congestion control changes refused by the kernel", refused);
    if let Some(number) = state.bundles.number() {
        add.gauge("bundle_number", "Number of the active bundle", number);
    }
    registry
}

fn responses(state: &AdminState) -> Family<[(&'static str, String); 2], Counter> {
    let family = Family::<[(&str, String); 2], Counter>::default();
    for (cache, class, count) in state.records.ended() {
        // Hits and misses are always present, so that their rates have a starting value.
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
struct Figures<'a>(&'a mut Registry);

impl Figures<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, ConstCounter::new(value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, ConstGauge::new(value));
    }
}
