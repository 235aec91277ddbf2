//! What the console asks of the agent's SQLite: `/api/telemetry/sockets`, `/ttfb` and `/responses`, each with the query that
//! made its answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_telemetry::Error;
use thalweg_telemetry::look::{self, Group, Wanted};
use tokio::sync::Semaphore;

/// Questions that are answered at a time; more wait. Each reads what the agent writes, on a thread of its own.
const ASKED_MAX: usize = 2;
/// The longest time back that is looked: for responses, and for sockets with all their samples.
const WINDOW_S_MAX: u64 = 86_400;
const SOCKETS_WINDOW_S_MAX: u64 = 600;

#[derive(Debug, Clone)]
struct Store {
    path: PathBuf,
    asked: Arc<Semaphore>,
}

/// What may be said of a question. Names are those of the answer's fields.
#[derive(Debug, Deserialize)]
struct Question {
    #[serde(default = "window_s")]
    window_s: u64,
    #[serde(default = "limit")]
    limit: u32,
    by: Option<String>,
    name: Option<String>,
    #[serde(default)]
    name_is_null: bool,
    ttfb_min_us: Option<i64>,
    ttfb_max_us: Option<i64>,
}

fn window_s() -> u64 {
    900
}

fn limit() -> u32 {
    200
}

impl Question {
    /// The time from which on it looks, microseconds since the Unix epoch.
    fn since_us(&self) -> i64 {
        let back = Duration::from_secs(self.window_s.min(WINDOW_S_MAX));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(back);
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn group(&self) -> Result<Option<Group>, String> {
        let Some(word) = &self.by else { return Ok(None) };
        let known = || Group::ALL.map(Group::as_str).join(", ");
        Group::from_word(word).map(Some).ok_or_else(|| format!("by is none of {}", known()))
    }

    fn wanted(&self) -> Result<Wanted, String> {
        let named = self.name.is_some() || self.name_is_null;
        let name = if self.name_is_null { None } else { self.name.clone() };
        Ok(Wanted {
            group: self.group()?.filter(|_| named).map(|group| (group, name)),
            ttfb_us_min: self.ttfb_min_us,
            ttfb_us_max: self.ttfb_max_us,
        })
    }
}

/// The routes over the database of an agent.
pub(super) fn routes(path: PathBuf) -> Router {
    Router::new()
        .route("/api/telemetry/sockets", get(sockets))
        .route("/api/telemetry/ttfb", get(ttfb))
        .route("/api/telemetry/responses", get(responses))
        .with_state(Store { path, asked: Arc::new(Semaphore::new(ASKED_MAX)) })
}

async fn sockets(State(store): State<Store>, Query(mut question): Query<Question>) -> Response {
    question.window_s = question.window_s.min(SOCKETS_WINDOW_S_MAX);
    store.answer(move |path| look::sockets(&path, question.since_us(), question.limit)).await
}

async fn ttfb(State(store): State<Store>, Query(question): Query<Question>) -> Response {
    match question.group() {
        Ok(group) => {
            let group = group.unwrap_or(Group::Cache);
            store.answer(move |path| look::ttfb(&path, question.since_us(), group)).await
        }
        Err(reason) => told(StatusCode::BAD_REQUEST, &json!({ "error": reason })),
    }
}

async fn responses(State(store): State<Store>, Query(question): Query<Question>) -> Response {
    match question.wanted() {
        Ok(wanted) => {
            let ask =
                move |path: PathBuf| look::responses(&path, question.since_us(), question.limit, &wanted);
            store.answer(ask).await
        }
        Err(reason) => told(StatusCode::BAD_REQUEST, &json!({ "error": reason })),
    }
}

impl Store {
    async fn answer(self, ask: impl FnOnce(PathBuf) -> Result<Value, Error> + Send + 'static) -> Response {
        let Ok(asked) = self.asked.acquire_owned().await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        // Who asked may be gone before there is an answer: what still works on it counts.
        let answered = tokio::task::spawn_blocking(move || {
            let _asked = asked;
            ask(self.path)
        })
        .await;
        match answered {
            Ok(Ok(answer)) => told(StatusCode::OK, &answer),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, cause, "the console has no answer");
                told(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": format!("{error}: {cause}") }))
            }
            Err(panic) => told(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": panic.to_string() })),
        }
    }
}

fn told(status: StatusCode, answer: &Value) -> Response {
    let fields = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, fields, answer.to_string()).into_response()
}
