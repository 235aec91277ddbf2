//! Connections to backends: those in use by a worker, and those that are idle.
//!
//! **Invariant:** a connection in use holds a permit, of which each worker has `backend_connections_max`, and one of its
//! backend, if that has a limit.
//! **Invariant:** a connection that began with a PROXY header is that client's: no other request goes over it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::route::FetchTimeouts;
use super::{Backend, BackendId, Backends, ConnectError, Route, Wanted};

/// Idle connections kept to one backend, by each worker; the oldest goes.
const IDLE_MAX: usize = 64;
/// How long an idle connection is kept: less than servers commonly wait.
pub(super) const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection to a backend, in use.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// It has carried an exchange before, so the backend may have closed it meanwhile.
    pub(crate) reused: bool,
    /// How long the fetch waits on it.
    pub(crate) timeouts: FetchTimeouts,
    pub(super) backend: Arc<Backend>,
    _permit: OwnedSemaphorePermit,
    _of_backend: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Where it goes.
    pub(crate) fn backend_id(&self) -> BackendId {
        self.backend.id
    }

    /// The backend itself.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The backend gave the head of a response.
    pub(crate) fn answered(&self) {
        self.backend.avoid_until_ms.store(0, Relaxed);
    }

    /// The backend took the connection and gave no response: it is passed over for a moment.
    pub(crate) fn failed(&self, reason: &str) {
        self.backend.avoid("backend does not answer", reason);
    }
}

/// What one worker has of connections.
#[derive(Debug)]
pub(crate) struct Pool {
    worker: usize,
    pub(super) permits: Arc<Semaphore>,
}

impl Pool {
    /// Of the worker of this number, which may use so many connections at a time.
    pub(crate) fn new(worker: usize, in_use_max: usize) -> Self {
        Self { worker, permits: Arc::new(Semaphore::new(in_use_max)) }
    }

    /// A connection to the backend that is named or whose turn it is, or to the next that takes one. Waits for one in use
    /// to be done with if the worker may have no more, not if the backend may have no more.
    pub(crate) async fn take(
        &self,
        backends: &Backends,
        route: &Route,
        wanted: Wanted,
    ) -> Result<Connection, ConnectError> {
        let failed = if let Wanted::NewElsewhere(failed) = wanted { Some(failed) } else { None };
        let candidates = backends.candidates(&route.target, failed)?;
        let permit = self.permit(backends.timeouts_of(route).connect).await?;
        let mut last = ConnectError::new("there is no backend");
        for backend in candidates {
            let timeouts = backend.timeouts.of(route);
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

    /// A connection to this backend, whether it was used before, and the backend's permit for it.
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
        let time_max = backend.timeouts.of(route).connect;
        Ok((backend.connect(time_max, route.ends).await?, false, permit))
    }

    /// Keeps a connection whose exchange ended cleanly, and closes those that have been idle for too long.
    pub(crate) fn put(&self, connection: Connection) {
        let Connection { stream, backend, .. } = connection;
        if backend.row.proxy_header.is_none() {
            backend.idle.put(self.worker, stream);
        }
    }

    /// The right to use one connection more; who asks first has it first.
    async fn permit(&self, patience: Duration) -> Result<OwnedSemaphorePermit, ConnectError> {
        match timeout(patience, self.permits.clone().acquire_owned()).await {
            Ok(permit) => Ok(permit.expect("nobody closes the semaphore")),
            Err(_) => Err(ConnectError::busy("all connections to backends are in use")),
        }
    }
}

impl Backend {
    /// The right to use one connection more, of all workers.
    fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, ConnectError> {
        let permit = self.permits.clone().map(Semaphore::try_acquire_owned).transpose();
        permit.map_err(|_| ConnectError::busy(format!("backend {self} has as many connections as it may")))
    }
}

/// Idle connections to one backend, of each worker the oldest first.
#[derive(Debug)]
pub(super) struct Idle(Box<[Mutex<Queue>]>);

type Queue = VecDeque<(Instant, TcpStream)>;

impl Idle {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    pub(super) fn of(&self, worker: usize) -> MutexGuard<'_, Queue> {
        self.0[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, worker: usize) -> Option<TcpStream> {
        let mut queue = self.of(worker);
        while let Some((since, stream)) = queue.pop_back() {
            if since.elapsed() < IDLE_TIME_MAX && is_quiet(&stream) {
                return Some(stream);
            }
        }
        None
    }

    fn put(&self, worker: usize, stream: TcpStream) {
        let mut queue = self.of(worker);
        close_old(&mut queue);
        if queue.len() == IDLE_MAX {
            queue.pop_front();
        }
        queue.push_back((Instant::now(), stream));
    }

    pub(super) fn close_old(&self) {
        for worker in 0..self.0.len() {
            close_old(&mut self.of(worker));
        }
    }
}

fn close_old(queue: &mut Queue) {
    while queue.front().is_some_and(|(since, _)| since.elapsed() >= IDLE_TIME_MAX) {
        queue.pop_front();
    }
}

/// Whether a connection is open with nothing to read: the backend has neither closed it nor sent what nobody
/// asked for.
fn is_quiet(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
