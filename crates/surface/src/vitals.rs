//! Routes for monitoring and load balancers: `/metrics`, `/healthz` and `/readyz`.

use std::borrow::Borrow;
use std::future::{pending, ready};
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::answer::Refusal;
use crate::guard::Pages;
use crate::serve::serve;

/// Media type of OpenMetrics 1.0 text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Builds the monitoring routes. `/metrics` returns `figures` as OpenMetrics text. `/healthz`
/// returns `ok` as long as the process responds. `/readyz` returns `ready` if the future of the
/// argument `ready` succeeds, otherwise 503 with the reason.
pub fn vitals<M, G, R, F>(figures: M, ready: R) -> Router
where
    M: Fn() -> G + Clone + Send + Sync + 'static,
    G: Borrow<Registry>,
    R: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let (metrics, health) = split_vitals(figures, ready);
    metrics.merge(health)
}

/// Builds the routes of [`vitals`] in two parts: the metrics, and the health checks.
pub fn split_vitals<M, G, R, F>(figures: M, ready: R) -> (Router, Router)
where
    M: Fn() -> G + Clone + Send + Sync + 'static,
    G: Borrow<Registry>,
    R: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let metrics = async move || ([(CONTENT_TYPE, OPEN_METRICS)], text(figures().borrow())).into_response();
    let ready = async move || ready().await.map(|()| "ready\n").map_err(Refusal::unavailable);
    let health = Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(ready));
    (Router::new().route("/metrics", get(metrics)), health)
}

/// Serves the monitoring routes of a role that has no other surface and is ready from the start.
/// Runs until dropped.
pub async fn serve_vitals(listener: TcpListener, figures: Registry) {
    let figures = Arc::new(figures);
    let router = vitals(move || figures.clone(), || ready(Ok(())));
    if let Err(error) = serve(listener, router, Pages::None, pending()).await {
        tracing::error!(%error, "metrics listener failed");
    }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).expect("writing to a String cannot fail");
    text
}
