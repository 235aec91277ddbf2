//! Backend endpoints of the admin interface: list states, like `backend.list` in varnish-cli(7),
//! and override health, like `backend.set_health`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use thalweg_surface::{Refusal, json as answer};

use super::AdminState;
use crate::backend::{BackendState, Backends, HealthOverride, InvalidHealth};

/// Lists all backends, the configured ones first.
pub(super) async fn list(State(admin): State<AdminState>) -> Response {
    let backends: Vec<Value> = admin.backends.states().iter().map(value).collect();
    answer(&json!({ "backends": backends }))
}

fn value(state: &BackendState) -> Value {
    json!({
        "name": state.name,
        "address": state.address,
        "set_health": state.health_override.as_str(),
        "is_healthy": state.is_healthy,
        "probe": state.good.map(|good| json!({
            "good": good.good,
            "window": good.window,
            "threshold": good.threshold,
        })),
        "changed_unix_ms": state.changed_ms,
    })
}

/// Overrides a backend's health. The request content is a JSON object with `name` and `health`.
pub(super) async fn set_health(State(admin): State<AdminState>, content: Bytes) -> Result<Response, Refusal> {
    set(&admin.backends, &content).map(|done| answer(&done))
}

fn set(backends: &Arc<Backends>, order: &[u8]) -> Result<Value, Refusal> {
    let order: Value = serde_json::from_slice(order)
        .map_err(|error| Refusal::bad_request(format!("content must be JSON: {error}")))?;
    let (Some(name), Some(health)) = (order["name"].as_str(), order["health"].as_str()) else {
        return Err(Refusal::bad_request(r#"expected {"name": …, "health": …}"#));
    };
    let health_override: HealthOverride =
        health.parse().map_err(|error: InvalidHealth| Refusal::bad_request(error))?;
    match backends.set_health(name, health_override) {
        0 => Err(Refusal::not_found(format!("no backend {name}"))),
        count => Ok(json!({"status": "ok", "backends": count})),
    }
}
