//! Backends: where fetches go, and the connections kept open to them.
//!
//! There are two kinds. Those that the edge is configured with take turns; one that did not accept a connection, or was
//! lost before it had answered, is passed over for a moment while another will do. Those that a policy declares are asked
//! for by name, and no other is tried in their place.
//!
//! - [`url`]: how a backend is configured. [`route`]: where one fetch goes and how long it may take.
//! - [`choice`]: all backends of an edge, and which of them is tried. [`declared`]: those of one policy.
//! - [`place`] and [`proxy`]: a backend's address, and what a new connection begins with.
//! - [`pool`]: connections in use, and idle ones. [`health`] and [`probe`]: whether a backend may be asked.
//!
//! **Invariant:** a connection never moves between threads: each worker has idle ones of its own.
//! **Invariant:** a backend that no loaded policy and no request has any more closes its idle connections and is probed
//! no more.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thalweg_policy::program::{BackendRow, ProbeRow};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::now_ms;

mod choice;
#[allow(dead_code, reason = "whoever loads a policy has its backends from here")]
mod declared;
mod health;
mod place;
mod pool;
mod probe;
mod proxy;
mod route;
#[cfg(test)]
mod tests;
mod url;

pub(crate) use choice::{Backends, State};
#[allow(unused_imports, reason = "the same")]
pub(crate) use declared::{LoadError, PolicyBackends};
pub(crate) use health::{Judgement, NoJudgement};
pub(crate) use pool::{Connection, Pool};
pub(crate) use proxy::Ends;
#[allow(unused_imports, reason = "the same")]
pub(crate) use route::duration;
pub(crate) use route::{FetchTimeouts, Route, Target};
pub use url::{BackendUrl, BackendUrlError};

use health::Health;
use place::Place;
use pool::Idle;

/// How long a backend that failed is passed over, and nothing more is said of it.
const AVOID_MS: u64 = 1000;

/// Which connection a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any. One that was idle may turn out to be closed, so the request must bear to be sent again.
    Any,
    /// A new one.
    New,
    /// A new one, to another backend than the one that has just failed, if any other may be tried and takes one.
    NewElsewhere(BackendId),
}

/// Which of an edge's backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackendId(usize);

/// Why no backend took a connection.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) timeout: bool,
    /// As many connections as there may be are in use: no backend was asked.
    pub(crate) busy: bool,
    pub(crate) reason: String,
}

impl ConnectError {
    fn new(reason: impl Into<String>) -> Self {
        Self { timeout: false, busy: false, reason: reason.into() }
    }

    fn busy(reason: impl Into<String>) -> Self {
        Self { busy: true, ..Self::new(reason) }
    }
}

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    id: BackendId,
    /// As it is declared, but for its probe.
    row: BackendRow,
    /// As it is declared, but for its name.
    probe: Option<ProbeRow>,
    place: Arc<Place>,
    timeouts: FetchTimeouts,
    /// For `.max_connections`, of all workers.
    permits: Option<Arc<Semaphore>>,
    health: Health,
    idle: Idle,
    avoid_until_ms: AtomicU64,
    probing: OnceLock<AbortHandle>,
}

impl Backend {
    /// A backend as it is declared. What it does not say of times is said by `timeouts`.
    fn new(
        id: BackendId,
        row: BackendRow,
        probe: Option<ProbeRow>,
        timeouts: FetchTimeouts,
        workers: usize,
    ) -> Self {
        let permits = |most: u64| usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            id,
            place: Arc::new(Place::new(row.address.as_ref())),
            timeouts: timeouts.declared(&row),
            // 0 is no limit, as in Varnish.
            permits: row
                .connections_max
                .filter(|most| *most > 0)
                .map(|most| Arc::new(Semaphore::new(permits(most)))),
            health: Health::new(row.address.is_some(), probe.as_ref()),
            idle: Idle::new(workers),
            avoid_until_ms: AtomicU64::new(0),
            probing: OnceLock::new(),
            row,
            probe,
        }
    }

    /// Its name; a configured one's is its URL.
    pub(crate) fn name(&self) -> &str {
        &self.row.name
    }

    /// Whether it may be asked now. Takes no lock.
    pub(crate) fn is_healthy(&self) -> bool {
        self.health.is_healthy()
    }

    /// Since when it has been so, unix milliseconds. Takes no lock.
    pub(crate) fn changed_ms(&self) -> u64 {
        self.health.changed_ms()
    }

    /// The `Host` of a request that has none: what is declared, else the host's name as it is, as varnishd does.
    pub(crate) fn host(&self) -> &str {
        match (&self.row.host_header, &self.row.address) {
            (Some(host), _) => host,
            (None, Some(address)) => place::host(address),
            (None, None) => "",
        }
    }

    /// Starts its probe on this runtime, if it has one that does not run yet.
    fn start_probe(self: &Arc<Self>) {
        if let Some(probe) = &self.probe {
            self.probing
                .get_or_init(|| tokio::spawn(probe::run(Arc::downgrade(self), probe.clone())).abort_handle());
        }
    }

    /// A new connection, with what each one begins with.
    async fn open(&self, ends: Option<Ends>) -> io::Result<TcpStream> {
        let mut stream = self.place.open().await?;
        stream.write_all(&self.row.preamble).await?;
        if let Some(version) = self.row.proxy_header {
            stream.write_all(&proxy::header(version, ends)).await?;
        }
        Ok(stream)
    }

    /// A new connection for a fetch, within `time_max`.
    async fn connect(&self, time_max: Duration, ends: Option<Ends>) -> Result<TcpStream, ConnectError> {
        let error = match timeout(time_max, self.open(ends)).await {
            Ok(Ok(stream)) => {
                self.place.look_up_again(place::KEPT_MS_MAX);
                return Ok(stream);
            }
            Ok(Err(error)) => ConnectError::new(format!("cannot connect to {self}: {error}")),
            Err(_) => ConnectError {
                timeout: true,
                ..ConnectError::new(format!("connecting to {self} took too long"))
            },
        };
        self.place.look_up_again(place::AGAIN_MS_MIN);
        self.avoid("backend does not accept connections", &error.reason);
        Err(error)
    }

    /// It is passed over for a moment, which is told once.
    fn avoid(&self, what: &'static str, reason: &str) {
        let now_ms = now_ms();
        if self.avoid_until_ms.swap(now_ms + AVOID_MS, Relaxed) <= now_ms {
            tracing::warn!(backend = %self, reason, "{what}");
        }
    }

    fn is_avoided(&self) -> bool {
        self.avoid_until_ms.load(Relaxed) > now_ms()
    }
}

impl fmt::Display for Backend {
    /// Its name, and where it is unless that is its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match &self.row.address {
            // A configured one's name is its URL.
            Some(_) if self.name().contains("://") => Ok(()),
            Some(address) => write!(f, " ({})", place::Shown(address)),
            None => f.write_str(" (none)"),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(probing) = self.probing.get() {
            probing.abort();
        }
    }
}
