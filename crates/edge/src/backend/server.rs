//! One backend: its address, limits and health, and new connections to it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thalweg_policy::program::{BackendRow, ProbeRow};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::endpoint::{self, Endpoint};
use super::error::ConnectError;
use super::health::Health;
use super::idle::Idle;
use super::probe;
use super::proxy::{self, Ends};
use super::timeouts::FetchTimeouts;
use crate::clock::now_ms;
use crate::warnings::{WarningLimit, warn_limited};

/// How long a failed backend is avoided, in milliseconds.
const AVOID_MS: u64 = 1000;

/// Identifier of a backend within an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackendId(pub(super) usize);

/// A backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(super) id: BackendId,
    /// The backend's declaration, without the probe index.
    pub(super) row: BackendRow,
    /// The probe's declaration, without its name.
    pub(super) probe: Option<ProbeRow>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) timeouts: FetchTimeouts,
    /// Permits for `.max_connections`, shared by all workers.
    permits: Option<Arc<Semaphore>>,
    pub(super) health: Health,
    pub(super) idle: Idle,
    avoid_until_ms: AtomicU64,
    /// Rate limit for failure warnings, which any request can trigger.
    failures: WarningLimit,
    probing: OnceLock<AbortHandle>,
}

impl Backend {
    /// Creates a backend from its declaration; `timeouts` contains the defaults.
    pub(super) fn new(
        id: BackendId,
        row: BackendRow,
        probe: Option<ProbeRow>,
        timeouts: FetchTimeouts,
        workers: usize,
    ) -> Self {
        let permits = |most: u64| usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            id,
            endpoint: Arc::new(Endpoint::new(row.address.as_ref())),
            timeouts: timeouts.declared(&row),
            // 0 means no limit, as in Varnish.
            permits: row
                .connections_max
                .filter(|most| *most > 0)
                .map(|most| Arc::new(Semaphore::new(permits(most)))),
            health: Health::new(row.address.is_some(), probe.as_ref()),
            idle: Idle::new(workers),
            avoid_until_ms: AtomicU64::new(0),
            failures: WarningLimit::new(),
            probing: OnceLock::new(),
            row,
            probe,
        }
    }

    /// Returns the backend's name, which is the URL for a configured backend.
    pub(crate) fn name(&self) -> &str {
        &self.row.name
    }

    /// Returns whether the backend may be used now. Takes no lock.
    pub(crate) fn is_healthy(&self) -> bool {
        self.health.is_healthy()
    }

    /// Returns when the health last changed, in Unix milliseconds. Takes no lock.
    pub(crate) fn changed_ms(&self) -> u64 {
        self.health.changed_ms()
    }

    /// Returns the `Host` value for a request without one: the declared value or, failing that, the
    /// address's host as written, as in varnishd.
    pub(crate) fn host(&self) -> &str {
        match (&self.row.host_header, &self.row.address) {
            (Some(host), _) => host,
            (None, Some(address)) => endpoint::host(address),
            (None, None) => "",
        }
    }

    /// Starts the backend's probe, if any, on the current runtime, unless it is already running.
    pub(super) fn start_probe(self: &Arc<Self>) {
        if let Some(probe) = &self.probe {
            self.probing
                .get_or_init(|| tokio::spawn(probe::run(Arc::downgrade(self), probe.clone())).abort_handle());
        }
    }

    /// Opens a connection and sends the preamble and the PROXY header, if declared.
    pub(super) async fn open(&self, ends: Option<Ends>) -> io::Result<TcpStream> {
        let mut stream = self.endpoint.open().await?;
        stream.write_all(&self.row.preamble).await?;
        if let Some(version) = self.row.proxy_header {
            stream.write_all(&proxy::header(version, ends)).await?;
        }
        Ok(stream)
    }

    /// Opens a connection for a fetch, within `time_max`.
    pub(super) async fn connect(
        &self,
        time_max: Duration,
        ends: Option<Ends>,
    ) -> Result<TcpStream, ConnectError> {
        let error = match timeout(time_max, self.open(ends)).await {
            Ok(Ok(stream)) => {
                self.endpoint.look_up_again(endpoint::KEPT_MS_MAX);
                return Ok(stream);
            }
            Ok(Err(error)) => ConnectError::new(format!("cannot connect to {self}: {error}")),
            Err(_) => {
                ConnectError { timeout: true, ..ConnectError::new(format!("connecting to {self} timed out")) }
            }
        };
        self.endpoint.look_up_again(endpoint::AGAIN_MS_MIN);
        self.avoid("cannot connect to backend", &error.reason);
        Err(error)
    }

    /// Takes a permit for one more connection; the limit covers all workers.
    pub(super) fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, ConnectError> {
        let permit = self.permits.clone().map(Semaphore::try_acquire_owned).transpose();
        permit.map_err(|_| ConnectError::busy(format!("backend {self} has reached its connection limit")))
    }

    /// Avoids the backend briefly after a failure.
    pub(super) fn avoid(&self, what: &'static str, reason: &str) {
        self.avoid_until_ms.store(now_ms() + AVOID_MS, Relaxed);
        warn_limited!(self.failures, backend = %self, reason, "{what}");
    }

    /// Stops avoiding the backend, because it responded.
    pub(super) fn record_response(&self) {
        self.avoid_until_ms.store(0, Relaxed);
    }

    pub(super) fn is_avoided(&self) -> bool {
        self.avoid_until_ms.load(Relaxed) > now_ms()
    }
}

impl fmt::Display for Backend {
    /// Writes the name, followed by the address unless the name is a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match &self.row.address {
            // A configured backend's name is its URL.
            Some(_) if self.name().contains("://") => Ok(()),
            Some(address) => write!(f, " ({})", endpoint::DisplayAddress(address)),
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
