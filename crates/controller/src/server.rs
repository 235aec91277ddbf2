//! What the controller answers over HTTP: agents that bring records, edges that ask for their bundle, people and the console.
//!
//! A bundle is asked for by long polling: with `Prefer: wait=N` (RFC 7240 §4.3) a request is answered once there is another than
//! those that its `If-None-Match` names, or after that time with 304.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, State as With};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_control::Settings;
use thalweg_record::{Batch, NAME_BYTES_MAX, Prefix, is_name};
use thalweg_telemetry::tail::Tail;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::Config;
use crate::document::Heard;
use crate::engine::{Answer, Handle, Message, View, WeakHandle};
use crate::store::Store;
use crate::{look, topic};

/// Bytes of a batch: what an agent's spool has in one at most, and a bit.
const BATCH_BYTES_MAX: usize = 33 << 20;
/// The longest that a request for a bundle is held.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Rounds that are told at once.
const ROUNDS_TOLD_MAX: u32 = 2_016;
/// Events that are told at once.
const EVENTS_TOLD_MAX: u32 = 100;
/// The request field that says how long an answer may take.
const PREFER: &str = "prefer";
/// Batches that are read at a time; more wait, in their agents.
const BATCHES_READ_MAX: usize = 4;
/// The media type of records.
const PROTOBUF: &str = "application/x-protobuf";
/// The media type of OpenMetrics' text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What answers need.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    handle: Handle,
    settings: Arc<Settings>,
    database: PathBuf,
    /// Reads the ledger; opened at first use.
    reader: Arc<Mutex<Option<Store>>>,
    registry: Arc<Registry>,
    reading: Arc<Semaphore>,
}

/// Why there is no answer.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        told(self.0, &json!({ "error": self.1 }))
    }
}

fn bad(reason: impl Into<String>) -> Refused {
    Refused(StatusCode::BAD_REQUEST, reason.into())
}

/// The engine has ended: so does the process, soon.
fn gone() -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, "the controller ends".to_owned())
}

fn told(status: StatusCode, answer: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], answer.to_string())
        .into_response()
}

/// What may be asked for. The PoP is empty where it has no name, and the tenant where it is about hosts that none has.
#[derive(Debug, Default, Deserialize)]
struct Question {
    #[serde(default)]
    pop: String,
    #[serde(default)]
    tenant: String,
    edge: Option<String>,
    host: Option<String>,
    epoch: Option<u64>,
    prefix: Option<String>,
    #[serde(default)]
    since: u64,
    limit: Option<u32>,
}

impl Question {
    fn check(self) -> Result<Self, Refused> {
        let Self { pop, tenant, edge, host, .. } = &self;
        let is_fit = is_pop(pop)
            && is_host(tenant)
            && edge.as_deref().is_none_or(is_name)
            && host.as_deref().is_none_or(is_host);
        if is_fit { Ok(self) } else { Err(no_name()) }
    }
}

/// A PoP's name, or none: it is told in log lines, and asked for in URLs.
fn is_pop(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// A machine's name, as its agent has it.
fn is_host(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
}

fn no_name() -> Refused {
    bad(format!("a name is of letters, digits, '-', '_' and '.', at most {NAME_BYTES_MAX}"))
}

impl Server {
    pub(crate) fn new(handle: Handle, config: &Config) -> Self {
        Self {
            registry: Arc::new(handle.shared.figures.registry()),
            handle,
            settings: Arc::new(config.settings.clone()),
            database: config.database.clone(),
            reader: Arc::default(),
            reading: Arc::new(Semaphore::new(BATCHES_READ_MAX)),
        }
    }

    /// How the engine is reached by threads of their own.
    pub(crate) fn handle(&self) -> WeakHandle {
        self.handle.downgrade()
    }

    /// What reads Kafka's topic, on a thread of its own.
    pub(crate) fn reads(&self, tail: Tail) -> impl FnOnce() + Send + 'static {
        let (settings, handle) = (self.settings.clone(), self.handle());
        move || topic::read(tail, &settings, &handle)
    }

    /// Everything.
    pub(crate) fn router(&self) -> Router {
        let own = Router::new()
            .route("/records", post(take))
            .route("/position", get(position))
            .route("/bundle", get(bundle))
            .route("/metrics", get(metrics))
            .with_state(self.clone());
        own.merge(self.looks())
    }

    /// What people may ask.
    pub(crate) fn looks(&self) -> Router {
        Router::new()
            .route("/scopes", get(scopes))
            .route("/rounds", get(rounds))
            .route("/prefixes", get(prefixes))
            .route("/explain", get(explain))
            .route("/edges", get(edges))
            .with_state(self.clone())
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Refused> {
        let (tell, answer) = oneshot::channel();
        self.handle.messages.send(message(tell)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    /// What is known of a PoP, where something is of this tenant.
    fn view(&self, pop: &str, tenant: &str) -> Result<Arc<View>, Refused> {
        let view = self.handle.shared.view(pop).filter(|view| view.tenants.states().contains_key(tenant));
        view.ok_or_else(|| {
            let why = match tenant {
                "" if !self.settings.by_tenant => format!("nothing was decided for PoP {pop:?} yet"),
                "" => "each host is a tenant by itself: say which".to_owned(),
                _ if !self.settings.is_tenant(tenant) => {
                    format!(
                        "{tenant:?} is no tenant: it is left alone, or decided with all others that are none"
                    )
                }
                _ => format!("nothing was decided for tenant {tenant:?} of PoP {pop:?} yet"),
            };
            Refused(StatusCode::NOT_FOUND, why)
        })
    }

    /// Reads the ledger on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Refused> {
        let (reader, database) = (self.reader.clone(), self.database.clone());
        let read = tokio::task::spawn_blocking(move || read_with(&reader, &database, read)).await;
        let failed = |why: String| Refused(StatusCode::INTERNAL_SERVER_ERROR, why);
        read.map_err(|panic| failed(panic.to_string()))?.map_err(|error| failed(error.to_string()))
    }
}

fn read_with<T>(
    reader: &Mutex<Option<Store>>,
    database: &Path,
    read: impl FnOnce(&Store) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let store = match &mut *reader {
        Some(store) => store,
        none => none.insert(Store::reader(database)?),
    };
    read(store)
}

/// Takes a batch of an agent.
async fn take(With(server): With<Server>, fields: HeaderMap, content: Body) -> Result<Response, Refused> {
    if fields.contains_key(ORIGIN) || fields.get(CONTENT_TYPE).is_none_or(|form| form != PROTOBUF) {
        return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("records are {PROTOBUF}")));
    }
    let _reading = server.reading.acquire().await.map_err(|_| gone())?;
    let content = to_bytes(content, BATCH_BYTES_MAX).await.map_err(|error| bad(error.to_string()))?;
    let decoded = tokio::task::spawn_blocking(move || Batch::decode(&content)).await.map_err(|_| gone())?;
    let batch = decoded.map_err(|error| bad(error.to_string()))?;
    if !is_pop(&batch.source.pop) || !is_host(&batch.source.host) {
        return Err(no_name());
    }
    let position = server.ask(|tell| Message::Records(batch, tell)).await?;
    Ok(told(StatusCode::OK, &json!({ "position": position })))
}

/// How far a source's records are here.
async fn position(With(server): With<Server>, Query(question): Query<Question>) -> Result<Response, Refused> {
    let Question { host: Some(host), epoch: Some(epoch), .. } = question.check()? else {
        return Err(bad("give host and epoch"));
    };
    let position = server.ask(|tell| Message::Position { host, epoch, tell }).await?;
    Ok(told(StatusCode::OK, &json!({ "position": position })))
}

/// The bundle that an edge is to have.
async fn bundle(
    With(server): With<Server>,
    Query(question): Query<Question>,
    fields: HeaderMap,
) -> Result<Response, Refused> {
    let Question { pop, edge, .. } = question.check()?;
    if fields.contains_key(ORIGIN) {
        return Err(Refused(StatusCode::FORBIDDEN, "a web page may not do this".to_owned()));
    }
    // An edge says how long it would wait: what a page's picture asks for says nothing of the kind, and is not remembered.
    let edge = edge.filter(|_| fields.contains_key(PREFER));
    let heard = Heard::of(&fields);
    let until = Instant::now() + wait(&fields);
    server.handle.shared.figures.polls.inc();
    loop {
        let (pop, edge, heard_now) = (pop.clone(), edge.clone(), Some(heard.clone()));
        let poll = |tell| Message::Poll { pop, edge, heard: heard_now, tell };
        let (document, mut changes) = match server.ask(poll).await? {
            Answer::Document(document, changes) => (document, changes),
            Answer::Unwritten => {
                return Err(Refused(StatusCode::SERVICE_UNAVAILABLE, "not written yet".to_owned()));
            }
        };
        if let Some(document) = document.as_ref().filter(|document| !heard.knows(document)) {
            let fields = [(CONTENT_TYPE, "application/json"), (ETAG, document.etag.as_str())];
            return Ok((fields, document.text.clone()).into_response());
        }
        match timeout_at(until, changes.changed()).await {
            Ok(Err(_)) => return Err(gone()),
            _ if Instant::now() < until => {}
            _ if document.is_some() => return Ok(StatusCode::NOT_MODIFIED.into_response()),
            _ => return Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
}

/// How long a request may be held: `Prefer: wait=10` (RFC 7240 §4.3).
fn wait(fields: &HeaderMap) -> Duration {
    let preferences = fields.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = preferences.flat_map(|value| value.split(',')).map(str::trim);
    let wait = preferences.find_map(|preference| preference.strip_prefix("wait=")?.trim().parse().ok());
    Duration::from_secs(wait.unwrap_or(0)).min(WAIT_MAX)
}

async fn metrics(With(server): With<Server>) -> Response {
    let mut text = String::new();
    encode(&mut text, &server.registry).expect("a String takes every write");
    ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

async fn scopes(With(server): With<Server>) -> Result<Response, Refused> {
    let scopes = look_at(move || {
        let mut scopes = Vec::new();
        for (pop, view) in server.handle.shared.views() {
            scopes.extend(view.tenants.states().iter().map(|(tenant, state)| {
                look::scope(server.settings.of(tenant), &pop, tenant, state, view.bundle)
            }));
        }
        scopes
    });
    Ok(told(StatusCode::OK, &json!({ "scopes": scopes.await? })))
}

async fn rounds(With(server): With<Server>, Query(question): Query<Question>) -> Result<Response, Refused> {
    let Question { pop, tenant, since, limit, .. } = question.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    server.view(&pop, &tenant)?;
    let limit = limit.unwrap_or(ROUNDS_TOLD_MAX).min(ROUNDS_TOLD_MAX);
    let rounds = server.read(move |store| store.rounds((&pop, &tenant), since, limit)).await?;
    Ok(told(StatusCode::OK, &json!({ "rounds": rounds })))
}

async fn prefixes(With(server): With<Server>, Query(question): Query<Question>) -> Result<Response, Refused> {
    let Question { pop, tenant, .. } = question.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    let view = server.view(&pop, &tenant)?;
    let prefixes = look_at(move || {
        let state = view.tenants.states().get(&tenant)?;
        Some(look::prefixes(server.settings.of(&tenant), state))
    });
    Ok(told(StatusCode::OK, &prefixes.await?.unwrap_or_default()))
}

async fn explain(With(server): With<Server>, Query(question): Query<Question>) -> Result<Response, Refused> {
    let Question { pop, tenant, prefix, .. } = question.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    let prefix = client(&prefix.ok_or_else(|| bad("give prefix"))?)?;
    let view = server.view(&pop, &tenant)?;
    let asked = tenant.clone();
    let changes = server.read(move |store| store.changes((&pop, &asked), prefix)).await?;
    let settings = server.settings.of(&tenant);
    let explained = |state| look::explained(settings, state, prefix, &changes);
    Ok(told(StatusCode::OK, &view.tenants.states().get(&tenant).map(explained).unwrap_or_default()))
}

/// Looks at all that is known of many networks, on a thread that may take its time.
async fn look_at<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
    let failed =
        |panic: tokio::task::JoinError| Refused(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string());
    tokio::task::spawn_blocking(look).await.map_err(failed)
}

/// The network of clients that is meant by an address, or by a prefix.
fn client(text: &str) -> Result<Prefix, Refused> {
    let prefix = Prefix::of_text_or_address(text).map_err(|error| bad(format!("{text:?}: {error}")))?;
    let client = Prefix::of_client(prefix.first());
    if prefix.bits() < client.bits() {
        return Err(bad(format!("{prefix} is more than one network of clients: those are /24 and /56")));
    }
    Ok(client)
}

async fn edges(With(server): With<Server>, Query(question): Query<Question>) -> Result<Response, Refused> {
    let pop = question.check()?.pop;
    let asked = pop.clone();
    let mut told_of = server.ask(|tell| Message::Edges { pop: asked, tell }).await?;
    if told_of.is_null() {
        let why = format!("no edge of PoP {pop:?} is known, or what is known could not be written yet");
        return Err(Refused(StatusCode::NOT_FOUND, why));
    }
    let events = server.read(move |store| store.events(&pop, EVENTS_TOLD_MAX)).await?;
    let event = |(unix_s, told): (u64, String)| json!({ "unix_s": unix_s, "told": told });
    told_of["events"] = events.into_iter().map(event).collect();
    Ok(told(StatusCode::OK, &told_of))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let is_fit = |pop: &str, edge: Option<&str>, host: Option<&str>| {
            let [edge, host] = [edge, host].map(|name| name.map(str::to_owned));
            Question { pop: pop.to_owned(), edge, host, ..Question::default() }.check().is_ok()
        };
        let longest = "a".repeat(NAME_BYTES_MAX);
        assert!(is_fit("", None, None) && is_fit(&longest, Some(&longest), Some(&longest)));
        let too_long = format!("{longest}a");
        for name in ["a b", "a/b", "a\nb", "é", &too_long] {
            assert!(!is_fit(name, None, None) && !is_fit("", Some(name), None), "{name}");
        }
        assert!(!is_fit("", Some(""), None) && !is_fit("", None, Some(&too_long)));
    }

    #[test]
    fn a_request_is_held_as_long_as_it_says_and_a_minute_at_most() {
        for (prefer, wait_s) in [
            ("wait=30", 30),
            ("respond-async, wait=10", 10),
            ("wait=60", 60),
            ("wait=61", 60),
            ("wait=18446744073709551615", 60),
            ("wait=18446744073709551616", 0),
            ("wait=-1", 0),
            ("wait", 0),
            ("", 0),
        ] {
            let fields = HeaderMap::from_iter([(PREFER.parse().unwrap(), prefer.parse().unwrap())]);
            assert_eq!(wait(&fields), Duration::from_secs(wait_s), "{prefer:?}");
        }
        assert_eq!(wait(&HeaderMap::new()), Duration::ZERO);
    }
}
