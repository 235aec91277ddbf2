//! The admin interface: the records as they happen, the edge's figures, backends, purges and bans. Not for clients: loopback by
//! default, and closed to web pages, which a browser on this machine would let reach it.
//!
//! **Invariant:** it holds nothing that the edge waits for when it stops.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, RawQuery, State};
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{StreamExt, iter, unfold};
use serde_json::{Value, json};
use thalweg_cache::{Ban, Cache, Expression, TooMany, What};
use thalweg_policy::Report;
use tokio::sync::broadcast::error::RecvError;

use crate::backend::Backends;
use crate::bundle::Bundles;
use crate::log::{Numbered, Records};
use crate::now_ms;
use crate::policy::{self, Policies};
use crate::purge::{self, Order};
use crate::state::Ended;
use crate::steering;
use crate::worker::Shared;

mod backends;

/// How often a quiet stream of records says that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What the interface tells of.
#[derive(Clone)]
struct Told {
    records: Records,
    cache: Arc<Cache>,
    backends: Arc<Backends>,
    connections: Arc<AtomicUsize>,
    policies: Arc<Policies>,
    steering: Arc<steering::Common>,
    bundles: Arc<Bundles>,
}

/// The interface, to be run. Once `stop` resolves it takes no more requests and ends with the last response.
pub(crate) fn serve<S: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    shared: &Shared,
    stop: S,
) -> io::Result<impl Future<Output = ()> + Send + use<S>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let told = Told {
        records: shared.log.records().clone(),
        cache: shared.cache.clone(),
        backends: shared.backends.clone(),
        connections: shared.connections.clone(),
        policies: shared.policies.clone(),
        steering: shared.steering.clone(),
        bundles: shared.bundles.clone(),
    };
    let app = Router::new()
        .route("/records", get(records))
        .route("/stats", get(stats))
        .route("/backends", get(backends::list).post(backends::set_health))
        .route("/purge", post(purge))
        .route("/bans", get(bans).post(ban))
        .route("/policies", get(policies).post(change_policies))
        .route("/policies/{name}", get(policy_sources))
        .with_state(told);
    Ok(async move {
        if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(stop).await {
            tracing::error!(%error, "the admin interface ended");
        }
    })
}

async fn records(State(told): State<Told>, fields: HeaderMap) -> Response {
    record_stream(&told.records, &fields)
}

async fn stats(State(told): State<Told>) -> Response {
    let arena = told.cache.arena();
    let stats = json!({
        "connections": told.connections.load(Relaxed),
        "stored_responses": told.cache.stored(),
        "memory_bytes": arena.live_bytes(),
        "index_bytes": told.cache.index_bytes(),
        "memory_slabs": arena.slabs_max(),
        "memory_slabs_free": arena.free_slabs(),
        "disk": told.cache.disk_stats().map(|disk| json!({
            "bytes": disk.bytes,
            "bytes_max": disk.bytes_max,
            "responses": disk.responses,
            "errors": disk.errors,
            "skipped": disk.skipped,
            "is_scanned": disk.is_scanned,
        })),
        "congestion_control_refused": told.steering.refused(),
        "bundle": told.bundles.told(),
        "records_lost": told.records.lost(),
        "purges_in_force": told.cache.purges_in_force(),
    });
    json_response(StatusCode::OK, stats.to_string())
}

/// `url`, `urls`, `tag`, `tags` and `soft`, in the query or as a JSON object.
async fn purge(
    State(told): State<Told>,
    RawQuery(query): RawQuery,
    fields: HeaderMap,
    content: Bytes,
) -> Response {
    if fields.contains_key(ORIGIN) {
        return refused(StatusCode::FORBIDDEN, FROM_A_PAGE);
    }
    let order = match Order::from_admin(&query.unwrap_or_default(), &content) {
        Ok(order) => order,
        Err(reason) => return refused(StatusCode::BAD_REQUEST, &reason),
    };
    match order.carry_out(&told.cache).await {
        Ok(count) => json_response(StatusCode::OK, purge::done(count)),
        Err(error) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

/// The expression is the content as it stands.
async fn ban(State(told): State<Told>, fields: HeaderMap, content: Bytes) -> Response {
    if fields.contains_key(ORIGIN) {
        return refused(StatusCode::FORBIDDEN, FROM_A_PAGE);
    }
    let expression = match Expression::parse(&String::from_utf8_lossy(&content)) {
        Ok(expression) => expression,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let ban = Ban { expression, made_ms: now_ms() };
    let what = What::Ban(Arc::new(ban));
    match purge::in_background(&told.cache, |cache| cache.purge(what, None)).await {
        Ok(_) => json_response(StatusCode::OK, json!({"status": "ok"}).to_string()),
        Err(error @ TooMany) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn bans(State(told): State<Told>) -> Response {
    let ban = |ban: &Arc<Ban>| json!({"expression": ban.expression.as_str(), "made_unix_ms": ban.made_ms});
    let bans: Vec<Value> = told.cache.bans().iter().map(ban).collect();
    json_response(StatusCode::OK, json!({ "bans": bans }).to_string())
}

async fn policies(State(told): State<Told>) -> Response {
    let policy = |policy: policy::Told| {
        json!({
            "name": policy.name,
            "path": policy.path.display().to_string(),
            "loaded_unix_ms": policy.loaded_ms,
            "active": policy.is_active,
            "in_use": policy.in_use,
        })
    };
    let policies: Vec<Value> = told.policies.list().into_iter().map(policy).collect();
    json_response(StatusCode::OK, json!({ "policies": policies }).to_string())
}

/// The files of a policy, as they were when it was loaded; of what is beyond [`policy::SHOWN_BYTES_MAX`] the length.
async fn policy_sources(State(told): State<Told>, UrlPath(name): UrlPath<String>) -> Response {
    match told.policies.sources(&name) {
        Ok(files) => {
            let file = |file: policy::Source| match file.text {
                Some(text) => json!({"name": file.name, "text": text}),
                None => json!({"name": file.name, "bytes": file.text_bytes}),
            };
            let files: Vec<Value> = files.into_iter().map(file).collect();
            json_response(StatusCode::OK, json!({ "files": files }).to_string())
        }
        Err(error) => refused(StatusCode::NOT_FOUND, &error.to_string()),
    }
}

/// One of `{"load": NAME, "path": FILE}`, with `"use": true` to use it at once, `{"use": NAME}`, `{"discard": NAME}`.
async fn change_policies(State(told): State<Told>, fields: HeaderMap, content: Bytes) -> Response {
    if fields.contains_key(ORIGIN) {
        return refused(StatusCode::FORBIDDEN, FROM_A_PAGE);
    }
    let Ok(order) = serde_json::from_slice::<Value>(&content) else {
        return refused(StatusCode::BAD_REQUEST, "not JSON");
    };
    let word = |name: &str| order[name].as_str().map(str::to_owned);
    let policies = told.policies.clone();
    let changed = match (word("load"), word("path"), word("use"), word("discard")) {
        (Some(name), Some(path), None, None) if order["use"].is_null() || order["use"].is_boolean() => {
            policies.load(&name, Path::new(&path), order["use"] == true).await
        }
        (None, None, Some(name), None) => policies.activate(&name).map(|()| Report::default()),
        (None, None, None, Some(name)) => policies.discard(&name).map(|()| Report::default()),
        _ => {
            let form = r#"give {"load": NAME, "path": FILE}, with "use": true or not, {"use": NAME} or {"discard": NAME}"#;
            return refused(StatusCode::BAD_REQUEST, form);
        }
    };
    match changed {
        Ok(warnings) => {
            let warnings = if warnings.faults.is_empty() { String::new() } else { warnings.to_string() };
            json_response(StatusCode::OK, json!({"status": "ok", "warnings": warnings}).to_string())
        }
        Err(error) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

const FROM_A_PAGE: &str = "a web page may not do this";

fn refused(status: StatusCode, reason: &str) -> Response {
    json_response(status, json!({"status": "error", "reason": reason}).to_string())
}

fn json_response(status: StatusCode, content: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], content).into_response()
}

/// The records as server-sent events: each `data` one JSON record, its `id` the edge's epoch and the record's number there; an
/// event `lost` with a number where the follower was too slow for some; and once the edge has ended an event `end`, with the
/// epoch and the number after the last.
///
/// From now on, or from after the `Last-Event-ID` of a follower that comes back (WHATWG HTML §9.2.3), as far as those records are
/// still there; an epoch alone is from before its first. Who had an earlier start of this edge last is told with `ended`, as with
/// `end`, how far that and each one since went, then this one from its first.
pub fn record_stream(records: &Records, fields: &HeaderMap) -> Response {
    let epoch = records.epoch();
    let last = fields.get(LAST_EVENT_ID).and_then(|id| last_event(id.to_str().ok()?));
    let follower = match last {
        Some((known, next)) if known == epoch => records.follow_from(next),
        Some(_) => records.follow_from(0),
        None => records.follow(),
    };
    let ended = last.map_or_else(Vec::new, |(known, _)| records.ended_from(known).to_vec());
    let ended = iter(ended).map(|Ended { epoch, total }| Ok(how_far("ended", epoch, total)));
    let records = records.clone();
    let events = unfold(Some(follower), move |follower| {
        let records = records.clone();
        async move {
            let mut follower = follower?;
            let event = match follower.recv().await {
                Ok(Numbered { number, record }) => {
                    Event::default().id(format!("{epoch}-{number}")).data(record.to_json())
                }
                Err(RecvError::Lagged(lost)) => Event::default().event("lost").data(lost.to_string()),
                Err(RecvError::Closed) => {
                    return Some((Ok::<_, Infallible>(how_far("end", epoch, records.total())), None));
                }
            };
            Some((Ok(event), Some(follower)))
        }
    });
    Sse::new(ended.chain(events)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// How far the numbers of an epoch went.
fn how_far(event: &str, epoch: u64, total: u64) -> Event {
    Event::default().event(event).data(format!("{epoch}-{total}"))
}

/// The field in which a follower that comes back says what it had last.
const LAST_EVENT_ID: &str = "last-event-id";

/// Epoch and number after an event's `id`.
fn last_event(id: &str) -> Option<(u64, u64)> {
    let Some((epoch, number)) = id.split_once('-') else { return Some((id.parse().ok()?, 0)) };
    Some((epoch.parse().ok()?, number.parse::<u64>().ok()?.saturating_add(1)))
}
