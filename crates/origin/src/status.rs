//! `/status` of the admin interface: libraries, and connections to remote storage.

use serde::Serialize;
use std::collections::BTreeMap;

use crate::storage::Storage;
use crate::storage::pool::{FailureKind, Pool, Stats};
use crate::vod::Library;

/// State of an origin, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    libraries: Vec<LibraryStatus>,
    /// Presentations of a library that another one serves.
    duplicates: Vec<Duplicate>,
    /// Absent without remote libraries.
    storage: Option<StorageStatus>,
}

#[derive(Debug, Serialize)]
struct LibraryStatus {
    media: String,
    /// Reason why the library cannot be listed.
    error: Option<String>,
    /// Time to the first byte of a read that 95 % of recent reads stayed below.
    first_byte_p95_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Duplicate {
    name: String,
    media: String,
}

#[derive(Debug, Serialize)]
struct StorageStatus {
    requests: u64,
    read_bytes: u64,
    connections: Connections,
    reuse_races: u64,
    slot_waits: u64,
    slot_wait_s: f64,
    responses_abandoned: u64,
    reads: u64,
    reads_collapsed: u64,
    reads_resumed: u64,
    requests_repeated: u64,
    requests_unrepeated: u64,
    hedges: u64,
    hedges_won: u64,
    /// Failures by kind; kinds without failures are absent.
    failures: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Connections {
    open: i64,
    idle: i64,
    opened: u64,
    reused: u64,
    closed: u64,
    closed_idle: u64,
    expired: u64,
    /// Mean of closed connections.
    requests_mean: Option<f64>,
    /// Mean of closed connections.
    age_s_mean: Option<f64>,
}

impl Status {
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Collects the state of a library, which it lists if its listing is old.
    pub(crate) async fn collect(library: Option<&Library>) -> Status {
        let Some(storage) = library.map(Library::storage) else {
            return Status { libraries: Vec::new(), duplicates: Vec::new(), storage: None };
        };
        let all = storage.all_names().await;
        let fault = |media: &str| {
            let mut faults = all.faults.iter().filter(|(location, _)| location.to_string() == media);
            faults.next().map(|(_, error)| error.to_string())
        };
        let duplicates = all.duplicates.iter();
        Status {
            libraries: libraries(storage, fault),
            duplicates: duplicates
                .map(|(name, location)| Duplicate { name: name.clone(), media: location.to_string() })
                .collect(),
            storage: storage.pool().map(Pool::stats).map(StorageStatus::of),
        }
    }
}

fn libraries(storage: &Storage, fault: impl Fn(&str) -> Option<String>) -> Vec<LibraryStatus> {
    let each = storage.libraries().map(|(location, remote)| {
        let media = location.to_string();
        let p95 = remote.and_then(|remote| remote.fetcher.first_byte_p95());
        LibraryStatus {
            error: fault(&media),
            media,
            first_byte_p95_ms: p95.map(|time| time.as_secs_f64() * 1e3),
        }
    });
    each.collect()
}

impl StorageStatus {
    #[allow(clippy::cast_precision_loss, reason = "no origin has 2^53 connections")]
    fn of(stats: &Stats) -> StorageStatus {
        let closed = stats.closed_connections();
        let mean = |sum: f64| (closed.count > 0).then(|| sum / closed.count as f64);
        let failures = FailureKind::ALL.iter().map(|kind| (kind.name(), stats.failed(*kind)));
        StorageStatus {
            requests: stats.requests.get(),
            read_bytes: stats.read_bytes.get(),
            connections: Connections {
                open: stats.open.get(),
                idle: stats.idle.get(),
                opened: stats.opened.get(),
                reused: stats.reused.get(),
                closed: closed.count,
                closed_idle: stats.closed_idle.get(),
                expired: stats.expired.get(),
                requests_mean: mean(closed.requests as f64),
                age_s_mean: mean(closed.age_s),
            },
            reuse_races: stats.races.get(),
            slot_waits: stats.slot_waits.get(),
            slot_wait_s: stats.slot_wait_s.get(),
            responses_abandoned: stats.abandoned.get(),
            reads: stats.reads.get(),
            reads_collapsed: stats.collapsed.get(),
            reads_resumed: stats.resumed.get(),
            requests_repeated: stats.repeated.get(),
            requests_unrepeated: stats.unrepeated.get(),
            hedges: stats.hedges.get(),
            hedges_won: stats.hedges_won.get(),
            failures: failures.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
