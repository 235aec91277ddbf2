//! Console queries over the agent's SQLite database: `/api/telemetry/sockets`, `/ttfb` and
//! `/responses`. Each response has the data and the SQL that selected it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::Value;
use thalweg_surface::{Refusal, json as answer};
use thalweg_telemetry::Error;
use thalweg_telemetry::console_queries::{self, Group, QueryHandle, ResponseFilter};
use tokio::sync::Semaphore;

/// Maximum concurrent queries; further queries wait. Each reads the database on its own thread.
const QUERIES_MAX: usize = 2;
/// Maximum time range of a query.
const WINDOW_S_MAX: u64 = 86_400;
/// Maximum time range of a socket query, which returns every sample.
const SOCKETS_WINDOW_S_MAX: u64 = 600;

#[derive(Debug, Clone)]
struct Store {
    path: PathBuf,
    permits: Arc<Semaphore>,
}

/// Query parameters, named like the response's fields.
#[derive(Debug, Deserialize)]
struct Parameters {
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

impl Parameters {
    /// Returns the start of the queried time range, in microseconds since the Unix epoch.
    fn since_us(&self) -> i64 {
        let back = Duration::from_secs(self.window_s.min(WINDOW_S_MAX));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(back);
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn group(&self) -> Result<Option<Group>, String> {
        let Some(word) = &self.by else { return Ok(None) };
        let known = || Group::ALL.map(Group::as_str).join(", ");
        Group::from_word(word).map(Some).ok_or_else(|| format!("by must be one of {}", known()))
    }

    fn wanted(&self) -> Result<ResponseFilter, String> {
        let named = self.name.is_some() || self.name_is_null;
        let name = if self.name_is_null { None } else { self.name.clone() };
        Ok(ResponseFilter {
            group: self.group()?.filter(|_| named).map(|group| (group, name)),
            ttfb_us_min: self.ttfb_min_us,
            ttfb_us_max: self.ttfb_max_us,
        })
    }
}

/// Builds the routes over an agent's database.
pub(super) fn routes(path: PathBuf) -> Router {
    Router::new()
        .route("/api/telemetry/sockets", get(sockets))
        .route("/api/telemetry/ttfb", get(ttfb))
        .route("/api/telemetry/responses", get(responses))
        .with_state(Store { path, permits: Arc::new(Semaphore::new(QUERIES_MAX)) })
}

async fn sockets(
    State(store): State<Store>,
    Query(mut parameters): Query<Parameters>,
) -> Result<Response, Refusal> {
    parameters.window_s = parameters.window_s.min(SOCKETS_WINDOW_S_MAX);
    store.answer(move |query| console_queries::sockets(query, parameters.since_us(), parameters.limit)).await
}

async fn ttfb(State(store): State<Store>, Query(parameters): Query<Parameters>) -> Result<Response, Refusal> {
    let group = parameters.group().map_err(Refusal::bad_request)?.unwrap_or(Group::Cache);
    store.answer(move |query| console_queries::ttfb(query, parameters.since_us(), group)).await
}

async fn responses(
    State(store): State<Store>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, Refusal> {
    let wanted = parameters.wanted().map_err(Refusal::bad_request)?;
    store
        .answer(move |query| {
            console_queries::responses(query, parameters.since_us(), parameters.limit, &wanted)
        })
        .await
}

/// Cancels the query when dropped: if the client disconnects, the handler's future is dropped.
struct CancelOnDrop(QueryHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Store {
    async fn answer(
        self,
        run: impl FnOnce(&QueryHandle) -> Result<Value, Error> + Send + 'static,
    ) -> Result<Response, Refusal> {
        let permit = self.permits.acquire_owned().await.map_err(Refusal::unavailable)?;
        let guard = CancelOnDrop(QueryHandle::new(self.path));
        let query = guard.0.clone();
        // The thread holds the permit until the query returns, even if the client has disconnected.
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            run(&query)
        })
        .await;
        match answered {
            Ok(Ok(found)) => Ok(answer(&found)),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                let error = format!("{error}{}", cause.unwrap_or_default());
                tracing::warn!(error, "console query failed");
                let is_late = guard.0.is_over();
                let status =
                    if is_late { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::INTERNAL_SERVER_ERROR };
                Err(Refusal::new(status, error))
            }
            Err(panic) => Err(Refusal::internal(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn query_is_cancelled_when_the_client_disconnects() {
        let store = Store { path: PathBuf::new(), permits: Arc::new(Semaphore::new(QUERIES_MAX)) };
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (leave, left) = mpsc::channel();
        let asking = tokio::spawn(store.answer(move |query| {
            begin.send(query.clone()).unwrap();
            left.recv().unwrap();
            Ok(Value::Null)
        }));
        let query = begun.await.unwrap();
        assert!(!query.is_over());
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        assert!(query.is_over());
        leave.send(()).unwrap();
    }
}
