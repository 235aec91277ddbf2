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
use thalweg_telemetry::look::{self, Asked, Group, Wanted};
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
    store.answer(move |asked| look::sockets(asked, question.since_us(), question.limit)).await
}

async fn ttfb(State(store): State<Store>, Query(question): Query<Question>) -> Response {
    match question.group() {
        Ok(group) => {
            let group = group.unwrap_or(Group::Cache);
            store.answer(move |asked| look::ttfb(asked, question.since_us(), group)).await
        }
        Err(reason) => told(StatusCode::BAD_REQUEST, &json!({ "error": reason })),
    }
}

async fn responses(State(store): State<Store>, Query(question): Query<Question>) -> Response {
    match question.wanted() {
        Ok(wanted) => {
            let ask =
                move |asked: &Asked| look::responses(asked, question.since_us(), question.limit, &wanted);
            store.answer(ask).await
        }
        Err(reason) => told(StatusCode::BAD_REQUEST, &json!({ "error": reason })),
    }
}

/// Gives up what nobody waits for: an answer that is under way when who asked goes away.
struct Waiting(Asked);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Store {
    async fn answer(self, ask: impl FnOnce(&Asked) -> Result<Value, Error> + Send + 'static) -> Response {
        let Ok(permit) = self.asked.acquire_owned().await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let waiting = Waiting(Asked::of(self.path));
        let asked = waiting.0.clone();
        // It counts until it ends, which may be a moment after who asked has gone.
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            ask(&asked)
        })
        .await;
        match answered {
            Ok(Ok(answer)) => told(StatusCode::OK, &answer),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                let error = format!("{error}{}", cause.unwrap_or_default());
                tracing::warn!(error, "the console has no answer");
                let is_late = waiting.0.is_over();
                let status =
                    if is_late { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::INTERNAL_SERVER_ERROR };
                told(status, &json!({ "error": error }))
            }
            Err(panic) => told(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": panic.to_string() })),
        }
    }
}

fn told(status: StatusCode, answer: &Value) -> Response {
    let fields = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, fields, answer.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_given_up_once_who_asked_has_gone() {
        let store = Store { path: PathBuf::new(), asked: Arc::new(Semaphore::new(ASKED_MAX)) };
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (leave, left) = mpsc::channel();
        let asking = tokio::spawn(store.answer(move |asked| {
            begin.send(asked.clone()).unwrap();
            left.recv().unwrap();
            Ok(Value::Null)
        }));
        let asked = begun.await.unwrap();
        assert!(!asked.is_over());
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        assert!(asked.is_over());
        leave.send(()).unwrap();
    }
}
