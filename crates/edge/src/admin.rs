//! The admin interface: the records as they happen, and the edge's figures. Not for clients: loopback by default.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::log::Records;
use crate::worker::Shared;

/// How often a quiet stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The interface, to be run.
pub(crate) fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
) -> io::Result<impl Future<Output = ()> + use<>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let app = Router::new().route("/records", get(records)).route("/stats", get(stats)).with_state(shared);
    Ok(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "the admin interface ended");
        }
    })
}

async fn records(State(shared): State<Arc<Shared>>) -> Response {
    record_stream(&shared.log.records().clone())
}

async fn stats(State(shared): State<Arc<Shared>>) -> Response {
    let arena = shared.cache.arena();
    let stats = json!({
        "connections": shared.connections.load(Relaxed),
        "stored_responses": shared.cache.stored(),
        "memory_slabs": arena.slabs_max(),
        "memory_slabs_free": arena.free_slabs(),
        "records_lost": shared.log.records().lost(),
    });
    ([(CONTENT_TYPE, "application/json")], stats.to_string()).into_response()
}

/// The records from now on as server-sent events: each `data` one JSON record, and an event `lost` with a number
/// where the follower was too slow for some.
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
