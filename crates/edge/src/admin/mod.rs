//! Admin interface: streams records, reports metrics and health, and manages backends, policies,
//! purges and bans. It is not meant for clients. By default it listens on loopback, and it is
//! protected against requests from web pages.
//!
//! **Invariant:** a stopping edge never waits for the admin interface.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{StreamExt, iter, unfold};
use serde_json::{Value, json};
use thalweg_cache::{Ban, Cache, PurgeScope};
use thalweg_policy::Report;
use thalweg_surface::{Refusal, json as answer, vitals};
use tokio::sync::watch;

use crate::backend::Backends;
use crate::bundle::Bundles;
use crate::log::{FollowError, NumberedRecord, Records};
use crate::policy::{self, Policies};
use crate::purge::{self, PurgeRequest};
use crate::state::EndedRun;
use crate::steering;
use crate::worker::Shared;

mod backends;
mod metrics;

/// Interval between keep-alive events on an idle record stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Edge state that the interface reads and changes.
#[derive(Clone)]
struct AdminState {
    records: Records,
    cache: Arc<Cache>,
    backends: Arc<Backends>,
    connections: Arc<AtomicUsize>,
    policies: Arc<Policies>,
    steering: Arc<steering::SharedSteering>,
    bundles: Arc<Bundles>,
    memory_bytes_max: u64,
    connections_max: usize,
    /// Whether the edge is stopping.
    stopping: watch::Receiver<bool>,
}

/// Creates the interface's router; the edge is stopping once `stopping` is true.
pub(crate) fn router(shared: &Shared, stopping: watch::Receiver<bool>) -> Router {
    let state = AdminState {
        records: shared.log.records().clone(),
        cache: shared.cache.clone(),
        backends: shared.backends.clone(),
        connections: shared.connections.clone(),
        policies: shared.policies.clone(),
        steering: shared.steering.clone(),
        bundles: shared.bundles.clone(),
        memory_bytes_max: shared.config.memory_bytes,
        connections_max: shared.config.connections_max,
        stopping,
    };
    let (figures, ready) = (state.clone(), state.clone());
    Router::new()
        .route("/records", get(records))
        .route("/stats", get(stats))
        .route("/backends", get(backends::list).post(backends::set_health))
        .route("/purge", post(purge))
        .route("/bans", get(bans).post(ban))
        .route("/policies", get(policies).post(change_policies))
        .route("/policies/{name}", get(policy_sources))
        .with_state(state)
        .merge(vitals(move || metrics::registry(&figures), move || std::future::ready(ready.is_ready())))
}

impl AdminState {
    /// Checks whether this edge is ready to receive requests. Startup needs no check, because the
    /// admin interface starts only once the client listeners are served and the policy is active.
    ///
    /// Backend health is ignored: without a healthy backend, an edge still serves hits and stale
    /// responses, and the other edges have the same backends.
    ///
    /// # Errors
    ///
    /// Returns the reason why this edge is not ready.
    fn is_ready(&self) -> Result<(), String> {
        if *self.stopping.borrow() {
            return Err("the edge is stopping".into());
        }
        Ok(())
    }
}

async fn records(State(state): State<AdminState>, fields: HeaderMap) -> Response {
    record_stream(&state.records, &fields)
}

async fn stats(State(state): State<AdminState>) -> Response {
    let arena = state.cache.arena();
    let stats = json!({
        "connections": state.connections.load(Relaxed),
        "stored_responses": state.cache.stored(),
        "memory_bytes": arena.live_bytes(),
        "index_bytes": state.cache.index_bytes(),
        "memory_slabs": arena.slabs_max(),
        "memory_slabs_free": arena.free_slabs(),
        "disk": state.cache.disk_stats().map(|disk| json!({
            "bytes": disk.bytes,
            "bytes_max": disk.bytes_max,
            "responses": disk.responses,
            "errors": disk.errors,
            "skipped": disk.skipped,
            "is_scanned": disk.is_scanned,
        })),
        "congestion_control_refused": state.steering.refused(),
        "bundle": state.bundles.status_json(),
        "records_lost": state.records.lost(),
        "purges_in_force": state.cache.purges_in_force(),
    });
    answer(&stats)
}

/// Purges the URLs or tags given as `url`, `urls`, `tag` or `tags` in the query or in a JSON
/// object; `soft` requests a soft purge.
async fn purge(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
    content: Bytes,
) -> Result<Response, Refusal> {
    let request =
        PurgeRequest::from_admin(&query.unwrap_or_default(), &content).map_err(Refusal::bad_request)?;
    let count = request.execute(&state.cache).await.map_err(Refusal::unavailable)?;
    Ok(answer(&purge::reply(count)))
}

/// Adds a ban; the request content is its expression.
async fn ban(State(state): State<AdminState>, content: Bytes) -> Result<Response, Refusal> {
    let ban = crate::ban::new(&String::from_utf8_lossy(&content)).map_err(Refusal::bad_request)?;
    let what = PurgeScope::Ban(Arc::new(ban));
    let banned = purge::run_blocking(&state.cache, |cache| cache.purge(what, None)).await;
    banned.map_err(Refusal::unavailable)?;
    Ok(answer(&json!({"status": "ok"})))
}

async fn bans(State(state): State<AdminState>) -> Response {
    let ban = |ban: &Arc<Ban>| json!({"expression": &ban.text, "made_unix_ms": ban.made_ms});
    let bans: Vec<Value> = state.cache.bans().iter().map(ban).collect();
    answer(&json!({ "bans": bans }))
}

async fn policies(State(state): State<AdminState>) -> Response {
    let policy = |policy: policy::PolicyInfo| {
        json!({
            "name": policy.name,
            "path": policy.path.display().to_string(),
            "loaded_unix_ms": policy.loaded_ms,
            "active": policy.is_active,
            "in_use": policy.in_use,
        })
    };
    let policies: Vec<Value> = state.policies.list().into_iter().map(policy).collect();
    answer(&json!({ "policies": policies }))
}

/// Returns a policy's source files as loaded. A file that exceeds what remains of
/// [`policy::SHOWN_BYTES_MAX`] is returned as its length only.
async fn policy_sources(
    State(state): State<AdminState>,
    UrlPath(name): UrlPath<String>,
) -> Result<Response, Refusal> {
    let file = |file: policy::Source| match file.text {
        Some(text) => json!({"name": file.name, "text": text}),
        None => json!({"name": file.name, "bytes": file.text_bytes}),
    };
    let files = state.policies.sources(&name).map_err(Refusal::not_found)?;
    let files: Vec<Value> = files.into_iter().map(file).collect();
    Ok(answer(&json!({ "files": files })))
}

/// Handles `{"load": NAME, "path": FILE}`, with `"use": true` to activate it, `{"use": NAME}` or
/// `{"discard": NAME}`.
async fn change_policies(State(state): State<AdminState>, content: Bytes) -> Result<Response, Refusal> {
    let order: Value =
        serde_json::from_slice(&content).map_err(|_| Refusal::bad_request("content must be JSON"))?;
    let word = |name: &str| order[name].as_str().map(str::to_owned);
    let policies = state.policies.clone();
    let changed = match (word("load"), word("path"), word("use"), word("discard")) {
        (Some(name), Some(path), None, None) if order["use"].is_null() || order["use"].is_boolean() => {
            policies.load(&name, Path::new(&path), order["use"] == true).await
        }
        (None, None, Some(name), None) => policies.activate(&name).map(|()| Report::default()),
        (None, None, None, Some(name)) => policies.discard(&name).map(|()| Report::default()),
        _ => {
            let form = r#"expected {"load": NAME, "path": FILE}, optionally with "use": true, {"use": NAME} or {"discard": NAME}"#;
            return Err(Refusal::bad_request(form));
        }
    };
    let warnings = changed.map_err(Refusal::bad_request)?;
    let warnings = if warnings.faults.is_empty() { String::new() } else { warnings.to_string() };
    Ok(answer(&json!({"status": "ok", "warnings": warnings})))
}

/// Streams records as server-sent events. An event's `data` is one JSON record, and its `id`
/// consists of the edge's epoch and the record number. A `lost` event contains the number of
/// records missed by a slow follower. Once the edge has exited, an `end` event contains the epoch
/// and the number after the last record.
///
/// The stream starts with the next record. For a reconnecting follower, it starts after the record
/// named in `Last-Event-ID` (WHATWG HTML §9.2.3) or, if that is no longer kept, with the oldest
/// record kept. An ID without a record number means the start of its epoch. If the ID is from an
/// earlier run of this edge, the stream first sends an `ended` event, formatted like `end`, for
/// that run and for each later one that has ended. It then continues with the first record of the
/// current run.
pub fn record_stream(records: &Records, fields: &HeaderMap) -> Response {
    let epoch = records.epoch();
    let last = fields.get(LAST_EVENT_ID).and_then(|id| last_event(id.to_str().ok()?));
    let follower = match last {
        Some((known, next)) if known == epoch => records.follow_from(next),
        Some(_) => records.follow_from(0),
        None => records.follow(),
    };
    let ended = last.map_or_else(Vec::new, |(known, _)| records.ended_from(known).to_vec());
    let ended = iter(ended).map(|EndedRun { epoch, total }| Ok(end_event("ended", epoch, total)));
    let records = records.clone();
    let events = unfold(Some(follower), move |follower| {
        let records = records.clone();
        async move {
            let mut follower = follower?;
            let event = match follower.recv().await {
                Ok(NumberedRecord { number, record }) => {
                    Event::default().id(format!("{epoch}-{number}")).data(record.to_json())
                }
                Err(FollowError::Lagged(lost)) => Event::default().event("lost").data(lost.to_string()),
                Err(FollowError::Closed) => {
                    return Some((Ok::<_, Infallible>(end_event("end", epoch, records.total())), None));
                }
            };
            Some((Ok(event), Some(follower)))
        }
    });
    Sse::new(ended.chain(events)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Creates an event that contains `epoch` and `total`, the number after the last record of that
/// epoch.
fn end_event(event: &str, epoch: u64, total: u64) -> Event {
    Event::default().event(event).data(format!("{epoch}-{total}"))
}

/// Request field in which a reconnecting follower names the last event it received.
const LAST_EVENT_ID: &str = "last-event-id";

/// Parses an event's `id` into the epoch and the next record number.
fn last_event(id: &str) -> Option<(u64, u64)> {
    let Some((epoch, number)) = id.split_once('-') else { return Some((id.parse().ok()?, 0)) };
    Some((epoch.parse().ok()?, number.parse::<u64>().ok()?.saturating_add(1)))
}
