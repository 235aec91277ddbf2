//! Figures of a role for Prometheus, at `/metrics` of a listener of its own (OpenMetrics 1.0 text).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// The media type of OpenMetrics' text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, figures: impl Collector) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(figures));
    let app = Router::new().route("/metrics", get(metrics)).with_state(Arc::new(registry));
    if let Err(error) = axum::serve(listener, app).await {
        tracing::error!(%error, "figures are not told any more");
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes every write");
    ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}
