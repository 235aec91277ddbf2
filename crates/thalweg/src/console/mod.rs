//! Web console server: the embedded pages and, for each role in the same process, its data. An edge
//! contributes its address and live records, an agent its stored telemetry, a controller its state.
//!
//! The console is not part of delivery: the players in its pages fetch from the edge.

mod pages;
mod telemetry;

use std::future::{Future, ready};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use serde_json::{Value, json};
use thalweg_edge::{Records, record_stream};
use thalweg_surface::{Pages, json as answer};

/// The edge's address, as given to the pages.
#[derive(Debug, Clone)]
pub(crate) enum EdgeAddress {
    /// This port on the page's own host.
    Port(u16),
    /// This configured URL.
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

/// Data sources for the pages, each present only if the process has it.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The edge's address and its response records.
    pub(crate) edge: Option<(EdgeAddress, Records)>,
    /// Path of the agent's database.
    pub(crate) database: Option<PathBuf>,
    /// The controller's read-only routes.
    pub(crate) controller: Option<Router>,
}

/// Serves the console on `listener` until `shutdown` resolves. Then cuts the responses in progress,
/// because record streams never end.
///
/// # Errors
///
/// Returns an error if the listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    sources: Sources,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    pages::warn_if_missing();
    thalweg_surface::serve(listener, router(sources), Pages::Own, shutdown).await
}

fn router(sources: Sources) -> Router {
    let Sources { edge, database, controller } = sources;
    let config = json!({
        "edge": edge.as_ref().map(|(address, _)| address.to_json()),
        "version": env!("CARGO_PKG_VERSION"),
        "telemetry": database.is_some(),
        "control": controller.is_some(),
    });
    let followed = edge.map(|(_, records)| {
        let stream = move |fields: HeaderMap| ready(record_stream(&records, &fields));
        Router::new().route("/api/records", get(stream))
    });
    let controlled = controller.map(|routes| Router::new().nest("/api/control", routes));
    Router::new()
        .route("/api/config", get(move || ready(answer(&config))))
        .merge(followed.unwrap_or_default())
        .merge(database.map(telemetry::routes).unwrap_or_default())
        .merge(controlled.unwrap_or_default())
        .fallback(pages::page)
}

/// Returns the address at which clients on this machine reach a listener: loopback instead of an
/// unspecified address.
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
