//! Backends: where fetches go, and the connections kept open to them.
//!
//! Each worker has its own pool, so a connection never moves between threads. Backends take turns; one that did not
//! accept a connection, or was lost before it had answered, is passed over for a moment while another will do.
//!
//! **Invariant:** a connection in use holds a permit, of which there are `backend_connections_max`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_http::Authority;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::config::Timeouts;
use crate::now_ms;

/// Idle connections kept to one backend, by each worker; the oldest goes.
const IDLE_MAX: usize = 64;
/// How long an idle connection is kept: less than servers commonly wait.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a backend that failed is passed over.
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
    list: Vec<Arc<Backend>>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Backend {
    url: BackendUrl,
    avoid_until_ms: AtomicU64,
}

impl Backend {
    fn avoid(&self) {
        self.avoid_until_ms.store(now_ms() + AVOID_MS, Relaxed);
    }
}

/// Which connection a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any. One that was idle may turn out to be closed, so the request must bear to be sent again.
    Any,
    /// A new one.
    New,
    /// A new one, to another backend than the one that has just failed, if any other takes one.
    NewElsewhere(BackendId),
}

/// Which of the backends.
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

impl Backends {
    pub(crate) fn new(urls: &[BackendUrl]) -> Self {
        let backend = |url: &BackendUrl| Backend { url: url.clone(), avoid_until_ms: AtomicU64::new(0) };
        Self { list: urls.iter().map(backend).map(Arc::new).collect(), turn: AtomicUsize::new(0) }
    }

    /// The backends in the order to try them: by turns, those that failed a moment ago after the others, and
    /// `failed` last of all.
    fn order(&self, failed: Option<BackendId>) -> Vec<usize> {
        let first = self.turn.fetch_add(1, Relaxed);
        let mut order: Vec<usize> = (0..self.list.len()).map(|at| (first + at) % self.list.len()).collect();
        let now = now_ms();
        order.sort_by_key(|at| {
            (failed == Some(BackendId(*at)), self.list[*at].avoid_until_ms.load(Relaxed) > now)
        });
        order
    }
}

/// A connection to a backend, in use.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// It has carried an exchange before, so the backend may have closed it meanwhile.
    pub(crate) reused: bool,
    id: BackendId,
    backend: Arc<Backend>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Where it goes.
    pub(crate) fn backend(&self) -> BackendId {
        self.id
    }

    /// The backend gave the head of a response.
    pub(crate) fn answered(&self) {
        self.backend.avoid_until_ms.store(0, Relaxed);
    }

    /// The backend took the connection and gave no response: it is passed over for a moment.
    pub(crate) fn failed(&self, reason: &str) {
        self.backend.avoid();
        tracing::warn!(backend = %self.backend.url, reason, "backend does not answer");
    }
}

/// A worker's idle connections, and how many more it may use.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<VecDeque<(Instant, TcpStream)>>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(backends: &Backends, in_use_max: usize) -> Self {
        Self {
            idle: Mutex::new(backends.list.iter().map(|_| VecDeque::new()).collect()),
            permits: Arc::new(Semaphore::new(in_use_max)),
        }
    }

    /// A connection to the backend whose turn it is, or to the next that takes one. Waits for one in use to be done
    /// with if there may be no more.
    pub(crate) async fn take(
        &self,
        backends: &Backends,
        timeouts: &Timeouts,
        wanted: Wanted,
    ) -> Result<Connection, ConnectError> {
        let failed = if let Wanted::NewElsewhere(failed) = wanted { Some(failed) } else { None };
        let permit = self.permit(timeouts).await?;
        let mut last =
            ConnectError { timeout: false, busy: false, reason: "no backend is configured".into() };
        for at in backends.order(failed) {
            let (id, backend) = (BackendId(at), backends.list[at].clone());
            if wanted == Wanted::Any
                && let Some(stream) = self.take_idle(at)
            {
                return Ok(Connection { stream, reused: true, id, backend, _permit: permit });
            }
            match connect(&backend, timeouts).await {
                Ok(stream) => return Ok(Connection { stream, reused: false, id, backend, _permit: permit }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The right to use one connection more; who asks first has it first.
    async fn permit(&self, timeouts: &Timeouts) -> Result<OwnedSemaphorePermit, ConnectError> {
        match timeout(timeouts.connect, self.permits.clone().acquire_owned()).await {
            Ok(permit) => Ok(permit.expect("nobody closes the semaphore")),
            Err(_) => {
                let reason = "all connections to backends are in use".into();
                Err(ConnectError { timeout: false, busy: true, reason })
            }
        }
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

    /// Keeps a connection whose exchange ended cleanly, and closes those that have been idle for too long.
    pub(crate) fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in idle.iter_mut() {
            while queue.front().is_some_and(|(since, _)| since.elapsed() >= IDLE_TIME_MAX) {
                queue.pop_front();
            }
        }
        let queue = &mut idle[connection.id.0];
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
    let url = &backend.url;
    let attempt = timeout(timeouts.connect, TcpStream::connect((url.host.as_str(), url.port)));
    let error = match attempt.await {
        Ok(Ok(stream)) => {
            // Heads go out whole; waiting for more to send would only delay them.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(error)) => {
            ConnectError { timeout: false, busy: false, reason: format!("cannot connect to {url}: {error}") }
        }
        Err(_) => {
            ConnectError { timeout: true, busy: false, reason: format!("connecting to {url} took too long") }
        }
    };
    backend.avoid();
    tracing::warn!(backend = %url, reason = error.reason, "backend does not accept connections");
    Err(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::Config;
    use crate::exchange::{Exchange, ExchangeError, Outgoing};
    use expect_test::{Expect, expect};
    use thalweg_http::Method;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    async fn listeners<const N: usize>() -> ([TcpListener; N], Backends) {
        let mut listeners = Vec::new();
        for _ in 0..N {
            listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        }
        let urls: Vec<_> = listeners.iter().map(|it| BackendUrl::at(it.local_addr().unwrap())).collect();
        (listeners.try_into().unwrap(), Backends::new(&urls))
    }

    async fn get(pool: &Pool, backends: &Backends, failed: Option<BackendId>) -> Connection {
        let wanted = failed.map_or(Wanted::Any, Wanted::NewElsewhere);
        pool.take(backends, &Timeouts::default(), wanted).await.unwrap()
    }

    async fn start(connection: Connection, config: &Config) -> Result<Exchange, ExchangeError> {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let outgoing = Outgoing { method: Method::Get, head, content: &mut None, interim: None };
        Exchange::start(connection, outgoing, config).await
    }

    #[tokio::test]
    async fn who_fails_before_a_head_is_passed_over_until_it_has_answered() {
        let ([first, _second], backends) = listeners::<2>().await;
        let pool = Pool::new(&backends, 8);
        let (failing, other) = (BackendId(0), BackendId(1));
        let impatient = Config {
            timeouts: Timeouts { first_byte: Duration::from_millis(50), ..Timeouts::default() },
            ..Config::default()
        };
        for silent in [false, true] {
            let connection = get(&pool, &backends, Some(other)).await;
            assert_eq!(connection.backend(), failing);
            let (stream, _) = first.accept().await.unwrap();
            let kept = silent.then_some(stream);
            let error = start(connection, &impatient).await.unwrap_err();
            assert_eq!((error.timeout, error.before_response), (silent, !silent));
            for _ in 0..4 {
                assert_eq!(get(&pool, &backends, None).await.backend(), other, "whose turn it ever is");
            }
            drop(kept);

            let connection = get(&pool, &backends, Some(other)).await;
            let (mut stream, _) = first.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            start(connection, &Config::default()).await.unwrap();
            let turns = [get(&pool, &backends, None).await, get(&pool, &backends, None).await];
            assert!(turns.iter().any(|connection| connection.backend() == failing));
            // One of the two turns was its own.
            first.accept().await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_failed_is_asked_again_only_if_there_is_no_other() {
        let ([first, second], backends) = listeners::<2>().await;
        let pool = Pool::new(&backends, 8);
        let failed = get(&pool, &backends, None).await.backend();
        for _ in 0..4 {
            assert_ne!(get(&pool, &backends, Some(failed)).await.backend(), failed);
        }
        drop(if failed == BackendId(0) { second } else { first });
        assert_eq!(get(&pool, &backends, Some(failed)).await.backend(), failed);
    }

    #[tokio::test]
    async fn connections_in_use_are_limited() {
        let ([backend], backends) = listeners::<1>().await;
        let pool = Pool::new(&backends, 1);
        let hurried = Timeouts { connect: Duration::from_millis(50), ..Timeouts::default() };
        let connection = get(&pool, &backends, None).await;
        let error = pool.take(&backends, &hurried, Wanted::Any).await.unwrap_err();
        expect![[r#"
            ConnectError {
                timeout: false,
                busy: true,
                reason: "all connections to backends are in use",
            }
        "#]]
        .assert_debug_eq(&error);
        let (next, ()) =
            tokio::join!(pool.take(&backends, &hurried, Wanted::Any), async { pool.put(connection) });
        assert!(next.unwrap().reused, "who waits has it next");
        drop(backend);
        pool.take(&backends, &hurried, Wanted::Any).await.unwrap_err();
        assert_eq!(pool.permits.available_permits(), 1, "what failed is not in use");
    }

    #[tokio::test]
    async fn what_is_idle_for_too_long_is_closed() {
        let ([backend], backends) = listeners::<1>().await;
        let pool = Pool::new(&backends, 8);
        let (old, new) = (get(&pool, &backends, None).await, get(&pool, &backends, None).await);
        let (mut of_old, _) = backend.accept().await.unwrap();
        let (of_new, _) = backend.accept().await.unwrap();
        tokio::time::pause();
        pool.put(old);
        tokio::time::advance(IDLE_TIME_MAX).await;
        pool.put(new);
        tokio::time::resume();
        assert_eq!(of_old.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(pool.idle.lock().unwrap()[0].len(), 1);
        drop(of_new);
    }
}
