//! Backends over the admin interface: how each is, as `backend.list` of varnish-cli(7) tells it, and what an operator says
//! of one, as `backend.set_health`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Of;
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::{FROM_A_PAGE, Told, json_response, refused};
use crate::backend::{Backends, Judgement, NoJudgement, State};

/// All of them, the configured ones first.
pub(super) async fn list(Of(told): Of<Told>) -> Response {
    let backends: Vec<Value> = told.backends.states().iter().map(value).collect();
    json_response(StatusCode::OK, json!({ "backends": backends }).to_string())
}

fn value(state: &State) -> Value {
    json!({
        "name": state.name,
        "address": state.address,
        "set_health": state.judgement.as_str(),
        "is_healthy": state.is_healthy,
        "probe": state.good.map(|good| json!({
            "good": good.good,
            "window": good.window,
            "threshold": good.threshold,
        })),
        "changed_unix_ms": state.changed_ms,
    })
}

/// `name` and `health`, as a JSON object.
pub(super) async fn set_health(Of(told): Of<Told>, fields: HeaderMap, content: Bytes) -> Response {
    if fields.contains_key(ORIGIN) {
        return refused(StatusCode::FORBIDDEN, FROM_A_PAGE);
    }
    match set(&told.backends, &content) {
        Ok(answer) => json_response(StatusCode::OK, answer.to_string()),
        Err((status, reason)) => refused(status, &reason),
    }
}

fn set(backends: &Arc<Backends>, order: &[u8]) -> Result<Value, (StatusCode, String)> {
    let order: Value = serde_json::from_slice(order)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("the content is no JSON: {error}")))?;
    let (Some(name), Some(health)) = (order["name"].as_str(), order["health"].as_str()) else {
        return Err((StatusCode::BAD_REQUEST, r#"what is wanted is {"name": …, "health": …}"#.into()));
    };
    let judgement: Judgement =
        health.parse().map_err(|error: NoJudgement| (StatusCode::BAD_REQUEST, error.to_string()))?;
    match backends.judge(name, judgement) {
        0 => Err((StatusCode::NOT_FOUND, format!("there is no backend {name}"))),
        count => Ok(json!({"status": "ok", "backends": count})),
    }
}
