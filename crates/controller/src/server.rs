//! HTTP interface of the controller: agents post records, edges poll for bundles, and operators and
//! the console read the state. [`crate::access`] decides who may send which request.
//!
//! Bundle requests use long polling. With `Prefer: wait=N` (RFC 7240 §4.3), the response is delayed
//! until there is a bundle not listed in `If-None-Match`, or for at most N seconds. In the latter
//! case, the status is 304.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State as With};
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Deserialize;
use serde_json::json;
use thalweg_control::Settings;
use thalweg_kafka::Follower;
use thalweg_record::{Batch, NAME_BYTES_MAX, Prefix, Source, is_name};
use thalweg_surface::{PROTOBUF, Refusal, json as answer, split_vitals};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::access::{Access, Caller, Role, require};
use crate::config::Config;
use crate::document::EdgeReport;
use crate::engine::{Handle, Message, PollReply, View, WeakHandle};
use crate::intake::is_host;
use crate::store::Store;
use crate::{content, inspect, intake, topic};

/// Maximum time for which a bundle request may wait.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum number of rounds in one response.
const ROUNDS_SHOWN_MAX: u32 = 2_016;
/// Maximum number of events in one response.
const EVENTS_SHOWN_MAX: u32 = 100;
/// Request field that contains the maximum wait accepted by the client.
const PREFER: &str = "prefer";
/// Maximum number of batches received concurrently. Further agents wait.
const BATCHES_READ_MAX: usize = 8;

/// State shared by the handlers.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    handle: Handle,
    pub(crate) access: Arc<Access>,
    settings: Arc<Settings>,
    database: PathBuf,
    /// Reader of the ledger, opened on first use.
    reader: Arc<Mutex<Option<Store>>>,
    reading: Arc<Semaphore>,
}

/// Creates the refusal sent after the engine has stopped and before the process exits.
fn engine_ended() -> Refusal {
    Refusal::unavailable("controller is shutting down")
}

/// Query parameters. `pop` is empty for an unnamed PoP, and `tenant` is empty for hosts without a
/// tenant.
#[derive(Debug, Default, Deserialize)]
struct QueryParams {
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

impl QueryParams {
    fn check(self) -> Result<Self, Refusal> {
        let Self { pop, tenant, edge, host, .. } = &self;
        let is_fit = is_pop(pop)
            && is_host(tenant)
            && edge.as_deref().is_none_or(is_name)
            && host.as_deref().is_none_or(is_name);
        if is_fit { Ok(self) } else { Err(invalid_name()) }
    }
}

/// Returns whether `text` is empty or a valid PoP name. PoP names appear in log lines and URLs.
fn is_pop(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn invalid_name() -> Refusal {
    Refusal::bad_request(format!(
        "invalid name: use letters, digits, '-', '_' and '.', at most {NAME_BYTES_MAX} bytes"
    ))
}

impl Server {
    pub(crate) fn new(handle: Handle, access: Arc<Access>, config: &Config) -> Self {
        Self {
            handle,
            access,
            settings: Arc::new(config.settings.clone()),
            database: config.database.clone(),
            reader: Arc::default(),
            reading: Arc::new(Semaphore::new(BATCHES_READ_MAX)),
        }
    }

    /// Returns a weak handle to the engine, for other threads.
    pub(crate) fn handle(&self) -> WeakHandle {
        self.handle.downgrade()
    }

    /// Returns a function that reads the Kafka topic, to be run on its own thread.
    pub(crate) fn kafka_reader(&self, follower: Follower) -> impl FnOnce() + Send + 'static {
        let (settings, handle, access) = (self.settings.clone(), self.handle(), self.access.clone());
        move || topic::read(follower, &settings, &access, &handle)
    }

    /// Returns all routes, each for one role. Only health checks need no identity.
    pub(crate) fn router(&self) -> Router {
        let needs = |role| from_fn_with_state((self.access.clone(), role), require);
        let of_agents = Router::new()
            .route("/records", post(post_records))
            .route("/position", get(position))
            .route_layer(needs(Role::Agent));
        let of_edges = Router::new().route("/bundle", get(bundle)).route_layer(needs(Role::Edge));
        let own = of_agents.merge(of_edges).with_state(self.clone());
        let registry = Arc::new(self.handle.shared.metrics.registry());
        let engine = self.handle.messages.clone();
        let ready = move || {
            let has_ended = engine.is_closed();
            std::future::ready(if has_ended { Err("the controller has stopped".to_owned()) } else { Ok(()) })
        };
        let (metrics, health) = split_vitals(move || registry.clone(), ready);
        let of_operators = self.inspection_routes().merge(metrics).route_layer(needs(Role::Operator));
        own.merge(of_operators).merge(health)
    }

    /// Returns the read-only routes.
    pub(crate) fn inspection_routes(&self) -> Router {
        Router::new()
            .route("/scopes", get(scopes))
            .route("/rounds", get(rounds))
            .route("/prefixes", get(prefixes))
            .route("/explain", get(explain))
            .route("/edges", get(edges))
            .with_state(self.clone())
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.handle.messages.send(message(reply)).await.map_err(|_| engine_ended())?;
        answer.await.map_err(|_| engine_ended())
    }

    /// Returns a PoP's snapshot, or a refusal if the PoP has no state for the tenant.
    fn view(&self, pop: &str, tenant: &str) -> Result<Arc<View>, Refusal> {
        let view = self.handle.shared.view(pop).filter(|view| view.tenants.states().contains_key(tenant));
        view.ok_or_else(|| {
            let why = match tenant {
                "" if !self.settings.by_tenant => format!("PoP {pop:?} has no decisions yet"),
                "" => "tenant must be specified: each host is its own tenant".to_owned(),
                _ if !self.settings.is_tenant(tenant) => {
                    format!(
                        "{tenant:?} is not a tenant: this host is excluded from steering or belongs to no tenant"
                    )
                }
                _ => format!("tenant {tenant:?} of PoP {pop:?} has no decisions yet"),
            };
            Refusal::not_found(why)
        })
    }

    /// Reads from the ledger on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reader, database) = (self.reader.clone(), self.database.clone());
        let read = tokio::task::spawn_blocking(move || read_with(&reader, &database, read)).await;
        read.map_err(Refusal::internal)?.map_err(Refusal::internal)
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

/// Accepts a batch posted by an agent.
async fn post_records(
    With(server): With<Server>,
    Extension(caller): Extension<Caller>,
    fields: HeaderMap,
    content: Body,
) -> Result<Response, Refusal> {
    if fields.get(CONTENT_TYPE).is_none_or(|form| form != PROTOBUF) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("records must have the content type {PROTOBUF}"),
        ));
    }
    let access = &server.access;
    let _open = match &caller {
        Caller::Known(_) => {
            let key = caller.key(Role::Agent, "", "");
            access.quotas.take_records(&key, 0).map_err(|busy| access.busy(&busy))?;
            Some(access.quotas.open(&key).map_err(|busy| access.busy(&busy))?)
        }
        Caller::Anyone => None,
    };
    let _reading = server.reading.acquire().await.map_err(|_| engine_ended())?;
    let content = content::read_batch(content).await?;
    let (all, sender) = (server.clone(), caller.clone());
    let accepted = tokio::task::spawn_blocking(move || all.accept(&sender, &content)).await;
    let (batch, next, dropped) = accepted.map_err(|_| engine_ended())??;
    let is_foreign = dropped.foreign > 0;
    // If the sender may not send this source's records, the source's position is neither changed
    // nor revealed.
    let position = match is_foreign {
        true => next,
        false => server.ask(|reply| Message::Records { batch, next, reply }).await?,
    };
    let mut content = json!({ "position": position });
    if dropped.total() > 0 {
        content["dropped"] = dropped.total().into();
        content["reason"] = dropped.reason().into();
    }
    Ok(answer(&content))
}

impl Server {
    /// Decodes a batch and drops the records that are not accepted from this sender. Returns the
    /// batch, the number after its last record, and what was dropped.
    fn accept(&self, caller: &Caller, content: &[u8]) -> Result<(Batch, u64, intake::Dropped), Refusal> {
        let mut batch = Batch::decode(content).map_err(Refusal::bad_request)?;
        let Source { pop, host, .. } = &batch.source;
        if !is_pop(pop) || !is_name(host) {
            return Err(invalid_name());
        }
        let next = batch.entries.last().map_or(0, |last| last.number.saturating_add(1));
        let dropped = intake::filter(&self.access, caller, &self.settings, &mut batch)
            .map_err(|busy| self.access.busy(&busy))?;
        intake::count(&self.handle.shared.metrics, &dropped);
        Ok((batch, next, dropped))
    }
}

/// Returns the next record number of a source.
async fn position(
    With(server): With<Server>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<QueryParams>,
) -> Result<Response, Refusal> {
    let QueryParams { pop, host: Some(host), epoch: Some(epoch), .. } = params.check()? else {
        return Err(Refusal::bad_request("host and epoch must be specified"));
    };
    if !caller.reports(&pop, &host) {
        return Err(server.access.forbidden(format!("{host:?} of PoP {pop:?} is not in the agent's list")));
    }
    let source = Source { host, pop, epoch };
    let position = server.ask(|reply| Message::Position(source, reply)).await?;
    Ok(answer(&json!({ "position": position })))
}

/// Returns an edge's bundle. If the edge prefers to wait, waits for a new bundle.
async fn bundle(
    With(server): With<Server>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<QueryParams>,
    fields: HeaderMap,
) -> Result<Response, Refusal> {
    let QueryParams { pop, edge, .. } = params.check()?;
    if !caller.is_edge(&pop, edge.as_deref()) {
        let edge = edge.unwrap_or_default();
        return Err(server.access.forbidden(format!("the identity is not for edge {edge:?} of PoP {pop:?}")));
    }
    let key = caller.key(Role::Edge, &pop, edge.as_deref().unwrap_or_default());
    if matches!(caller, Caller::Anyone) {
        server.access.admit(&key)?;
    }
    let _open = server.access.quotas.open(&key).map_err(|busy| server.access.busy(&busy))?;
    // Edges always send `Prefer`. A request without it, such as one for an image embedded in a web
    // page, is not recorded as coming from an edge.
    let edge = edge.filter(|_| fields.contains_key(PREFER));
    let report = EdgeReport::of(&fields);
    let until = Instant::now() + wait(&fields);
    server.handle.shared.metrics.polls.inc();
    loop {
        let (pop, edge, edge_report) = (pop.clone(), edge.clone(), report.clone());
        let poll = |reply| Message::Poll { pop, edge, report: edge_report, reply };
        let (document, mut changes) = match server.ask(poll).await? {
            PollReply::Document(document, changes) => (document, changes),
            PollReply::NotStored => {
                return Err(Refusal::unavailable("controller state not stored yet"));
            }
        };
        if let Some(document) = document.as_ref().filter(|document| !report.knows(document)) {
            let fields = [(CONTENT_TYPE, "application/json"), (ETAG, document.etag.as_str())];
            return Ok((fields, document.text.clone()).into_response());
        }
        match timeout_at(until, changes.changed()).await {
            Ok(Err(_)) => return Err(engine_ended()),
            _ if Instant::now() < until => {}
            _ if document.is_some() => return Ok(StatusCode::NOT_MODIFIED.into_response()),
            _ => return Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
}

/// Returns the wait that a request prefers, as in `Prefer: wait=10` (RFC 7240 §4.3), up to the
/// limit.
fn wait(fields: &HeaderMap) -> Duration {
    let preferences = fields.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = preferences.flat_map(|value| value.split(',')).map(str::trim);
    let wait = preferences.find_map(|preference| preference.strip_prefix("wait=")?.trim().parse().ok());
    Duration::from_secs(wait.unwrap_or(0)).min(WAIT_MAX)
}

async fn scopes(With(server): With<Server>) -> Result<Response, Refusal> {
    let scopes = run_blocking(move || {
        let mut scopes = Vec::new();
        for (pop, view) in server.handle.shared.views() {
            scopes.extend(view.tenants.states().iter().map(|(tenant, state)| {
                inspect::scope(server.settings.of(tenant), &pop, tenant, state, view.bundle)
            }));
        }
        scopes
    });
    Ok(answer(&json!({ "scopes": scopes.await? })))
}

async fn rounds(With(server): With<Server>, Query(params): Query<QueryParams>) -> Result<Response, Refusal> {
    let QueryParams { pop, tenant, since, limit, .. } = params.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    server.view(&pop, &tenant)?;
    let limit = limit.unwrap_or(ROUNDS_SHOWN_MAX).min(ROUNDS_SHOWN_MAX);
    let rounds = server.read(move |store| store.rounds(&pop, &tenant, since, limit)).await?;
    Ok(answer(&json!({ "rounds": rounds })))
}

async fn prefixes(
    With(server): With<Server>,
    Query(params): Query<QueryParams>,
) -> Result<Response, Refusal> {
    let QueryParams { pop, tenant, .. } = params.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    let view = server.view(&pop, &tenant)?;
    let prefixes = run_blocking(move || {
        let state = view.tenants.states().get(&tenant)?;
        Some(inspect::prefixes(server.settings.of(&tenant), state))
    });
    Ok(answer(&prefixes.await?.unwrap_or_default()))
}

async fn explain(With(server): With<Server>, Query(params): Query<QueryParams>) -> Result<Response, Refusal> {
    let QueryParams { pop, tenant, prefix, .. } = params.check()?;
    let tenant = server.settings.tenant_of(&tenant);
    let prefix = client(&prefix.ok_or_else(|| Refusal::bad_request("prefix must be specified"))?)?;
    let view = server.view(&pop, &tenant)?;
    let tenant_name = tenant.clone();
    let changes = server.read(move |store| store.changes(&pop, &tenant_name, prefix)).await?;
    let settings = server.settings.of(&tenant);
    let explained = |state| inspect::explained(settings, state, prefix, &changes);
    Ok(answer(&view.tenants.states().get(&tenant).map(explained).unwrap_or_default()))
}

/// Runs a function that may process many prefixes on a blocking thread.
async fn run_blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(run).await.map_err(Refusal::internal)
}

/// Parses an address or prefix and returns its client network.
fn client(text: &str) -> Result<Prefix, Refusal> {
    let prefix = Prefix::of_text_or_address(text)
        .map_err(|error| Refusal::bad_request(format!("{text:?}: {error}")))?;
    let client = Prefix::of_client(prefix.first());
    if prefix.bits() < client.bits() {
        return Err(Refusal::bad_request(format!(
            "{prefix} must be within one client network, a /24 or /56"
        )));
    }
    Ok(client)
}

async fn edges(With(server): With<Server>, Query(params): Query<QueryParams>) -> Result<Response, Refusal> {
    let pop = params.check()?.pop;
    let pop_name = pop.clone();
    let mut edges = server.ask(|reply| Message::Edges { pop: pop_name, reply }).await?;
    if edges.is_null() {
        let why = format!("PoP {pop:?} has no known edges, or its state could not be stored yet");
        return Err(Refusal::not_found(why));
    }
    let events = server.read(move |store| store.events(&pop, EVENTS_SHOWN_MAX)).await?;
    let event = |(unix_s, text): (u64, String)| json!({ "unix_s": unix_s, "told": text });
    edges["events"] = events.into_iter().map(event).collect();
    Ok(answer(&edges))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_rejected() {
        let is_fit = |pop: &str, edge: Option<&str>, host: Option<&str>| {
            let [edge, host] = [edge, host].map(|name| name.map(str::to_owned));
            QueryParams { pop: pop.to_owned(), edge, host, ..QueryParams::default() }.check().is_ok()
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
    fn request_waits_as_preferred_up_to_a_minute() {
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
