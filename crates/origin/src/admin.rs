//! Admin interface for operators: Prometheus metrics, liveness, readiness, and the state of
//! storage. It listens on loopback by default.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use thalweg_surface::{json, vitals};

use crate::server::Shared;
use crate::status::Status;
use crate::storage::pool::Pool;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let (of, of_status) = (shared.clone(), shared.clone());
    let registry = move || {
        let pool = of.library.as_ref().and_then(|library| library.storage().pool());
        of.metrics.registry(&of.live, pool.map(Pool::stats))
    };
    let status = move || async move { json(&Status::collect(of_status.library.as_ref()).await.to_json()) };
    vitals(registry, move || ready(shared.clone())).route("/status", get(status))
}

/// Reports ready once the media can be listed, so that a server that cannot reach its storage
/// receives no requests.
async fn ready(shared: Arc<Shared>) -> Result<(), String> {
    match &shared.library {
        Some(library) => {
            library.names().await.map(drop).map_err(|error| format!("cannot list the media: {error}"))
        }
        None => Ok(()),
    }
}
