//! The web console's server: the embedded pages, where the edge is, the edge's records as they happen, what the agent has
//! kept, and what a controller tells; each where the process has it.
//!
//! It plays no part in delivery: the players in its pages fetch from the edge.

mod pages;
mod telemetry;

use std::future::{Future, ready};
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;
use serde_json::{Value, json};
use thalweg_edge::{Records, record_stream};
use tokio::net::TcpListener;

/// Where the pages find the edge.
#[derive(Debug, Clone)]
pub(crate) enum EdgeAddress {
    /// On the host of the page itself, at this port.
    Port(u16),
    /// Anywhere, as configured.
    Url(String),
}

impl EdgeAddress {
    fn to_json(&self) -> Value {
        match self {
            EdgeAddress::Port(port) => json!({ "port": port }),
            EdgeAddress::Url(url) => json!({ "url": url }),
        }
    }
}

/// What the pages show, where the process has it.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The edge, and its responses as they end.
    pub(crate) edge: Option<(EdgeAddress, Records)>,
    /// The agent's database.
    pub(crate) database: Option<PathBuf>,
    /// What a controller tells.
    pub(crate) controller: Option<Router>,
}

/// Serves browsers on `listener` until `shutdown`. What is under way then is cut: a stream of records has no
/// end.
///
/// # Errors
/// That of the listener.
pub(crate) async fn serve(
    listener: TcpListener,
    shown: Shown,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    pages::warn_if_missing();
    let app = router(shown);
    tokio::select! {
        served = axum::serve(listener, app) => served,
        () = shutdown => Ok(()),
    }
}

fn router(shown: Shown) -> Router {
    let Shown { edge, database, controller } = shown;
    let config = json!({
        "edge": edge.as_ref().map(|(address, _)| address.to_json()),
        "version": env!("CARGO_PKG_VERSION"),
        "telemetry": database.is_some(),
        "control": controller.is_some(),
    });
    let config = ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], config.to_string());
    let followed = edge.map(|(_, records)| {
        let stream = move |fields: HeaderMap| ready(record_stream(&records, &fields));
        Router::new().route("/api/records", get(stream))
    });
    let controlled = controller.map(|looks| Router::new().nest("/api/control", looks));
    Router::new()
        .route("/api/config", get(move || ready(config.clone())))
        .merge(followed.unwrap_or_default())
        .merge(database.map(telemetry::routes).unwrap_or_default())
        .merge(controlled.unwrap_or_default())
        .fallback(pages::page)
}

/// The address a browser on this machine uses for a listener: an unspecified one is reached at loopback.
pub(crate) fn reachable(listening: SocketAddr) -> SocketAddr {
    let mut addr = listening;
    if addr.ip().is_unspecified() {
        addr.set_ip(if addr.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    addr
}
