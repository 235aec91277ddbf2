//! Backends: where fetches go, and the connections kept open to them.
//!
//! Each worker has its own pool, so a connection never moves between threads. Backends take turns; one that did not
//! accept a connection is passed over for a moment while another will do.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_http::Authority;
use tokio::net::TcpStream;

use crate::config::Timeouts;
use crate::now_ms;

/// Idle connections kept to one backend, by each worker; the oldest goes.
const IDLE_MAX: usize = 64;
/// How long an idle connection is kept: less than servers commonly wait.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a backend that did not accept a connection is passed over.
const AVOID_MS: u64 = 1000;

/// The URL of a backend: `http://HOST[:PORT]`. A path has no meaning: targets are passed on as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendUrl {
    host: String,
    port: u16,
}

/// Why a text is no [`BackendUrl`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendUrlError {
    /// It does not begin with `http://`.
    Scheme,
    /// It has a path, query or fragment.
    Path,
    /// Host or port is not well-formed.
    Authority(String),
}

impl fmt::Display for BackendUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("a backend is http://HOST[:PORT]"),
            Self::Path => f.write_str("a backend has no path: requests keep their own"),
            Self::Authority(reason) => write!(f, "a backend is http://HOST[:PORT]: {reason}"),
        }
    }
}

impl std::error::Error for BackendUrlError {}

impl FromStr for BackendUrl {
    type Err = BackendUrlError;

    fn from_str(text: &str) -> Result<Self, BackendUrlError> {
        let rest = text.strip_prefix("http://").ok_or(BackendUrlError::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(BackendUrlError::Path);
        }
        let authority = Authority::parse(rest.as_bytes())
            .map_err(|error| BackendUrlError::Authority(error.to_string()))?;
        if authority.host().is_empty() {
            return Err(BackendUrlError::Authority("the host is missing".into()));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: authority.port().unwrap_or(80) })
    }
}

impl BackendUrl {
    /// The URL of the server at `address`.
    pub fn at(address: std::net::SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "http://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "http://{}:{}", self.host, self.port)
        }
    }
}

/// All backends of an edge, shared by its workers.
#[derive(Debug)]
pub(crate) struct Backends {
    list: Vec<Backend>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Backend {
    url: BackendUrl,
    avoid_until_ms: AtomicU64,
}

/// Why no backend took a connection.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) timeout: bool,
    pub(crate) reason: String,
}

impl Backends {
    pub(crate) fn new(urls: &[BackendUrl]) -> Self {
        let backend = |url: &BackendUrl| Backend { url: url.clone(), avoid_until_ms: AtomicU64::new(0) };
        Self { list: urls.iter().map(backend).collect(), turn: AtomicUsize::new(0) }
    }

    /// The backends in the order to try them: by turns, those that just refused last.
    fn order(&self) -> Vec<usize> {
        let first = self.turn.fetch_add(1, Relaxed);
        let mut order: Vec<usize> = (0..self.list.len()).map(|at| (first + at) % self.list.len()).collect();
        let now = now_ms();
        order.sort_by_key(|at| self.list[*at].avoid_until_ms.load(Relaxed) > now);
        order
    }
}

/// A connection to a backend.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// It has carried an exchange before, so the backend may have closed it meanwhile.
    pub(crate) reused: bool,
    backend: usize,
}

/// A worker's idle connections.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<VecDeque<(Instant, TcpStream)>>>,
}

impl Pool {
    pub(crate) fn new(backends: &Backends) -> Self {
        Self { idle: Mutex::new(backends.list.iter().map(|_| VecDeque::new()).collect()) }
    }

    /// A connection to the backend whose turn it is, or to the next that takes one; new if `fresh`.
    pub(crate) async fn take(
        &self,
        backends: &Backends,
        timeouts: &Timeouts,
        fresh: bool,
    ) -> Result<Connection, ConnectError> {
        let mut last = ConnectError { timeout: false, reason: "no backend is configured".into() };
        for backend in backends.order() {
            if !fresh && let Some(stream) = self.take_idle(backend) {
                return Ok(Connection { stream, reused: true, backend });
            }
            match connect(&backends.list[backend], timeouts).await {
                Ok(stream) => return Ok(Connection { stream, reused: false, backend }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn take_idle(&self, backend: usize) -> Option<TcpStream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((since, stream)) = idle[backend].pop_back() {
            if since.elapsed() < IDLE_TIME_MAX && is_quiet(&stream) {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps a connection whose exchange ended cleanly.
    pub(crate) fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = &mut idle[connection.backend];
        if queue.len() == IDLE_MAX {
            queue.pop_front();
        }
        queue.push_back((Instant::now(), connection.stream));
    }
}

/// Whether a connection is open with nothing to read: the backend has neither closed it nor sent what nobody
/// asked for.
fn is_quiet(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

async fn connect(backend: &Backend, timeouts: &Timeouts) -> Result<TcpStream, ConnectError> {
    let Backend { url, avoid_until_ms } = backend;
    let attempt = tokio::time::timeout(timeouts.connect, TcpStream::connect((url.host.as_str(), url.port)));
    let error = match attempt.await {
        Ok(Ok(stream)) => {
            avoid_until_ms.store(0, Relaxed);
            // Heads go out whole; waiting for more to send would only delay them.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(error)) => {
            ConnectError { timeout: false, reason: format!("cannot connect to {url}: {error}") }
        }
        Err(_) => ConnectError { timeout: true, reason: format!("connecting to {url} took too long") },
    };
    avoid_until_ms.store(now_ms() + AVOID_MS, Relaxed);
    tracing::warn!(backend = %url, reason = error.reason, "backend does not accept connections");
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expect: Expect) {
        expect.assert_eq(&match text.parse::<BackendUrl>() {
            Ok(url) => url.to_string(),
            Err(error) => format!("error: {error}"),
        });
    }

    #[test]
    fn urls() {
        check("http://127.0.0.1:8081", expect!["http://127.0.0.1:8081"]);
        check("http://origin.example/", expect!["http://origin.example:80"]);
        check("http://[::1]:9", expect!["http://[::1]:9"]);
        check("https://a", expect!["error: a backend is http://HOST[:PORT]"]);
        check("http://a/b", expect!["error: a backend has no path: requests keep their own"]);
    }
}
