//! The admin interface: the records as they happen, and the edge's figures. Not for clients: loopback by default.
//!
//! **Invariant:** it holds nothing that the edge waits for when it stops.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::unfold;
use serde_json::json;
use thalweg_cache::Cache;
use tokio::sync::broadcast::error::RecvError;

use crate::log::Records;
use crate::worker::Shared;

/// How often a quiet stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What the interface tells of.
#[derive(Clone)]
struct Told {
    records: Records,
    cache: Arc<Cache>,
    connections: Arc<AtomicUsize>,
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
        connections: shared.connections.clone(),
    };
    let app = Router::new().route("/records", get(records)).route("/stats", get(stats)).with_state(told);
    Ok(async move {
        if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(stop).await {
            tracing::error!(%error, "the admin interface ended");
        }
    })
}

async fn records(State(told): State<Told>) -> Response {
    record_stream(&told.records)
}

async fn stats(State(told): State<Told>) -> Response {
    let arena = told.cache.arena();
    let stats = json!({
        "connections": told.connections.load(Relaxed),
        "stored_responses": told.cache.stored(),
        "memory_slabs": arena.slabs_max(),
        "memory_slabs_free": arena.free_slabs(),
        "records_lost": told.records.lost(),
    });
    ([(CONTENT_TYPE, "application/json")], stats.to_string()).into_response()
}

/// The records from now on as server-sent events: each `data` one JSON record, and an event `lost` with a number
/// where the follower was too slow for some. It ends when the edge has ended.
pub fn record_stream(records: &Records) -> Response {
    let events = unfold(records.follow(), |mut follower| async move {
        let event = match follower.recv().await {
            Ok(record) => Event::default().data(record.to_json()),
            Err(RecvError::Lagged(lost)) => Event::default().event("lost").data(lost.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
