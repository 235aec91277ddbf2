//! Backend connections of one worker.
//!
//! **Invariant:** a connection in use holds one of the worker's `backend_connections_max` permits
//! and, if the backend has a connection limit, one of the backend's permits.
//! **Invariant:** a connection with a PROXY header is used only for the client named in the header.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::choice::Backends;
use super::error::ConnectError;
use super::route::Route;
use super::server::{Backend, BackendId};
use super::timeouts::FetchTimeouts;

/// The kind of connection that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any connection. An idle connection may turn out to be closed, so the request must be
    /// repeatable.
    Any,
    /// A new connection.
    New,
    /// A new connection, preferably to a backend other than the one that just failed.
    NewElsewhere(BackendId),
}

/// A connection to a backend, in use.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Whether the connection was used for an earlier exchange, so that the backend may have closed
    /// it.
    pub(crate) reused: bool,
    /// Timeouts of this fetch.
    pub(crate) timeouts: FetchTimeouts,
    pub(super) backend: Arc<Backend>,
    _permit: OwnedSemaphorePermit,
    _of_backend: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Returns the id of the connection's backend.
    pub(crate) fn backend_id(&self) -> BackendId {
        self.backend.id
    }

    /// Returns the connection's backend.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Records that the backend sent a response head.
    pub(crate) fn record_response(&self) {
        self.backend.record_response();
    }

    /// Avoids the backend briefly, because it accepted the connection but did not respond.
    pub(crate) fn failed(&self, reason: &str) {
        self.backend.avoid("backend does not respond", reason);
    }
}

/// Backend connections of one worker.
#[derive(Debug)]
pub(crate) struct Pool {
    worker: usize,
    pub(super) permits: Arc<Semaphore>,
}

impl Pool {
    /// Creates a worker's pool, which allows at most `in_use_max` connections in use.
    pub(crate) fn new(worker: usize, in_use_max: usize) -> Self {
        Self { worker, permits: Arc::new(Semaphore::new(in_use_max)) }
    }

    /// Takes a connection to the first candidate backend that accepts one. Waits for one of the
    /// worker's permits, but not for one of the backend's.
    pub(crate) async fn take(
        &self,
        backends: &Backends,
        route: &Route,
        wanted: Wanted,
    ) -> Result<Connection, ConnectError> {
        let failed = if let Wanted::NewElsewhere(failed) = wanted { Some(failed) } else { None };
        let candidates = backends.candidates(&route.target, failed)?;
        let permit = self.permit(backends.timeouts_of(route).connect).await?;
        let mut last = ConnectError::new("no backend available");
        for backend in candidates {
            let timeouts = route.timeouts(backend.timeouts);
            match self.open(&backend, route, wanted).await {
                Ok((stream, reused, of_backend)) => {
                    return Ok(Connection {
                        stream,
                        reused,
                        timeouts,
                        backend,
                        _permit: permit,
                        _of_backend: of_backend,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns a connection to `backend`, whether the connection was used before, and a permit if
    /// the backend has a connection limit.
    async fn open(
        &self,
        backend: &Backend,
        route: &Route,
        wanted: Wanted,
    ) -> Result<(TcpStream, bool, Option<OwnedSemaphorePermit>), ConnectError> {
        let permit = backend.permit()?;
        if wanted == Wanted::Any
            && let Some(stream) = backend.idle.take(self.worker)
        {
            return Ok((stream, true, permit));
        }
        let time_max = route.timeouts(backend.timeouts).connect;
        Ok((backend.connect(time_max, route.ends).await?, false, permit))
    }

    /// Returns a connection to the pool after a clean exchange, and closes connections idle for too
    /// long.
    pub(crate) fn put(&self, connection: Connection) {
        let Connection { stream, backend, .. } = connection;
        if backend.row.proxy_header.is_none() {
            backend.idle.put(self.worker, stream);
        }
    }

    /// Waits up to `patience` for one of the worker's permits, which are granted in order of
    /// arrival.
    async fn permit(&self, patience: Duration) -> Result<OwnedSemaphorePermit, ConnectError> {
        match timeout(patience, self.permits.clone().acquire_owned()).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => Err(ConnectError::busy("too many backend connections in use")),
        }
    }
}
