//! Pool of HTTP/1.1 connections to storage: reused last in, first out, with one retry for reuse
//! races.
//!
//! The most recently used connection is the least likely to be closed by the server, so it is
//! reused first. A reuse race occurs when the server closes a kept connection while a request is on
//! its way. A shorter idle limit makes it rarer but does not remove it. Reads are idempotent, so a
//! request is repeated on a new connection if no byte of its response has arrived.
//!
//! A slot is the right to use a connection for one request. A new connection is opened only if none
//! is idle, so a host never has more connections than slots.
//!
//! **Invariant:** every wait has a limit: for a slot, a connection, the first byte, the next bytes.
//! **Invariant:** a connection whose response was not read to its end is never reused.

mod connection;
mod connector;
mod content;
mod failure;
mod idle;
mod stats;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use thalweg_surface::ClientTls;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::options::StorageOptions;
use connection::{Connection, SendError};
use idle::IdleList;

pub(crate) use content::Content;
pub(crate) use failure::{Failure, FailureKind};
pub(crate) use stats::Stats;

const AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

/// A pool. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: StorageOptions,
    tls: Option<ClientTls>,
    /// One entry for each server in the settings, and for the few that issue credentials.
    hosts: Mutex<HashMap<Target, Arc<Host>>>,
    stats: Arc<Stats>,
}

/// Where connections lead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    is_secure: bool,
    host: String,
    port: u16,
}

/// Connections to one target.
#[derive(Debug)]
struct Host {
    target: Target,
    idle: Arc<IdleList>,
    slots: Arc<Semaphore>,
}

/// The right to use a connection for one request.
#[derive(Debug)]
struct Slot {
    host: Arc<Host>,
    _permit: OwnedSemaphorePermit,
}

impl Target {
    fn of(uri: &Uri) -> Result<Target, Failure> {
        let is_secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| Failure::new(FailureKind::Connect, "URL without a host"))?;
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Target { is_secure, host: host.to_owned(), port })
    }
}

impl Pool {
    /// Creates a pool without connections. Requests to `https` URLs need `tls`.
    pub(crate) fn new(options: StorageOptions, tls: Option<ClientTls>) -> Pool {
        Pool(Arc::new(Shared { options, tls, hosts: Mutex::default(), stats: Arc::default() }))
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.0.stats
    }

    /// Sends a request to an absolute URL and returns the response once its head has arrived.
    /// Waits for a slot if all are in use.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Content>, Failure> {
        let slot = self.wait_for_slot(request.uri()).await?;
        self.exchange(slot, request).await
    }

    /// Sends a request like [`send`](Pool::send); returns `None` if no slot is free.
    pub(crate) async fn send_at_once(
        &self,
        request: Request<Bytes>,
    ) -> Option<Result<Response<Content>, Failure>> {
        let host = self.host(Target::of(request.uri()).ok()?);
        let permit = host.slots.clone().try_acquire_owned().ok()?;
        Some(self.exchange(Slot { host, _permit: permit }, request).await)
    }

    async fn wait_for_slot(&self, uri: &Uri) -> Result<Slot, Failure> {
        let host = self.host(Target::of(uri)?);
        if let Ok(permit) = host.slots.clone().try_acquire_owned() {
            return Ok(Slot { host, _permit: permit });
        }
        let (begun, stats) = (Instant::now(), &self.0.stats);
        let limit = self.0.options.slot_timeout;
        let acquired = timeout(limit, host.slots.clone().acquire_owned()).await;
        stats.wait_for_slot(begun.elapsed());
        match acquired {
            Ok(Ok(permit)) => Ok(Slot { host, _permit: permit }),
            Ok(Err(_)) => unreachable!("the semaphore is never closed"),
            Err(_) => Err(Failure::new(
                FailureKind::Slot,
                format!("all storage connections were in use for {limit:?}: raise storage_connections_max"),
            )),
        }
    }

    fn host(&self, target: Target) -> Arc<Host> {
        let mut hosts = self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(Host {
                idle: IdleList::new(self.0.options.idle, self.0.stats.clone()),
                slots: Arc::new(Semaphore::new(self.0.options.connections_max)),
                target: target.clone(),
            })
        };
        hosts.entry(target.clone()).or_insert_with(new).clone()
    }

    /// Sends a request on an idle connection, or on a new one. After a reuse race, sends it again
    /// on a new connection.
    async fn exchange(&self, slot: Slot, request: Request<Bytes>) -> Result<Response<Content>, Failure> {
        let (stats, limit) = (&self.0.stats, self.0.options.first_byte_timeout);
        let may_repeat = matches!(*request.method(), Method::GET | Method::HEAD);
        let request = in_origin_form(request);
        stats.requests.inc();
        if let Some(connection) = slot.host.idle.pop().await {
            stats.reused.inc();
            match connection.send(request.clone(), limit).await {
                Err(SendError { is_unanswered: true, .. }) if may_repeat => {
                    stats.races.inc();
                }
                sent => return self.finish(slot, sent),
            }
        }
        let connection = self.open(&slot.host.target).await?;
        let sent = connection.send(request, limit).await;
        self.finish(slot, sent)
    }

    fn finish(
        &self,
        slot: Slot,
        sent: Result<(Connection, Response<Incoming>), SendError>,
    ) -> Result<Response<Content>, Failure> {
        let (connection, response) = sent.map_err(|error| error.failure)?;
        let pause_max = self.0.options.between_bytes_timeout;
        Ok(Content::wrap(response, connection, slot, pause_max, self.0.stats.clone()))
    }

    async fn open(&self, target: &Target) -> Result<Connection, Failure> {
        let limit = self.0.options.connect_timeout;
        let stats = self.0.stats.clone();
        let opened = timeout(limit, connector::open(target, self.0.tls.as_ref(), stats)).await;
        let connection = opened.unwrap_or_else(|_| {
            Err(Failure::new(FailureKind::Connect, format!("cannot connect to storage within {limit:?}")))
        })?;
        self.0.stats.opened.inc();
        Ok(connection)
    }
}

/// Moves the URL's authority to the Host field, as RFC 9112 §3.2.1 requires of requests to an
/// origin server.
fn in_origin_form(mut request: Request<Bytes>) -> Request<Bytes> {
    let uri = request.uri().clone();
    let fields = request.headers_mut();
    fields.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    if let Some(Ok(host)) = uri.authority().map(|host| HeaderValue::from_str(host.as_str())) {
        fields.entry(HOST).or_insert(host);
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
    request
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests;
