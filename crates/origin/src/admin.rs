//! Admin interface for operators: Prometheus metrics, liveness and readiness. It listens on
//! loopback by default.

use std::sync::Arc;

use axum::Router;
use thalweg_surface::vitals;

use crate::server::Shared;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let of = shared.clone();
    vitals(move || of.metrics.registry(&of.live), move || ready(shared.clone()))
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
