//! Server of a surface: accepts connections, with or without TLS, limits their number and the time
//! for their heads, and serves the routes behind the guard until stopped.
//!
//! **Invariant:** a client that sends nothing, or sends slowly, cannot keep others from being
//! served.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as Content, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::answer::Refusal;
use crate::connections::{Connection, Connections, InProgress};
use crate::guard::{Guard, Pages, check};
use crate::tls::{Accepted, PeerNames, ServerTls};

/// Maximum time to finish open responses after `stop` resolves. The limit is needed because record
/// streams may never end.
const STOP_TIME_MAX: Duration = Duration::from_millis(200);
/// Maximum time from the start of a connection, or from the end of a response, to the end of the
/// next request head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time from the start of a connection to the end of the TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of open connections: two for each identity that a controller can have.
const CONNECTIONS_MAX: usize = 20_000;
/// Pause after a failed accept. Without it, the loop would spin while the process has no free file
/// descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Minimum time between two log lines about connections that are refused or fail.
const FAILED_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Limits on a surface's connections.
#[derive(Debug, Clone, Copy)]
struct Limits {
    handshake: Duration,
    head: Duration,
    connections: usize,
}

const LIMITS: Limits =
    Limits { handshake: HANDSHAKE_TIME_MAX, head: HEAD_TIME_MAX, connections: CONNECTIONS_MAX };

/// Where a surface listens: in clear text, or with TLS.
#[derive(Debug)]
pub struct Listener {
    /// The bound listener.
    pub tcp: TcpListener,
    /// TLS, unless the surface speaks clear text.
    pub tls: Option<ServerTls>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

/// Serves `router` behind the guard until `stop` resolves. The server then accepts no more requests
/// and finishes open responses within 200 ms; responses still open after that are cut off.
///
/// With TLS, a request from a client with a verified certificate has the certificate's
/// [`PeerNames`] as an extension. Clients that speak HTTP without TLS get 400.
///
/// # Errors
///
/// Returns an error if the listener cannot be used by the runtime.
pub async fn serve(
    listener: impl Into<Listener>,
    router: Router,
    pages: Pages,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_within(LIMITS, listener.into(), router, pages, stop).await
}

async fn serve_within(
    limits: Limits,
    Listener { tcp, tls }: Listener,
    router: Router,
    pages: Pages,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    let guard = Guard { listening: tcp.local_addr()?, pages };
    let listener = tokio::net::TcpListener::from_std(tcp)?;
    let router = router.layer(from_fn_with_state(guard, check));
    let (stopping, stopped) = watch::channel(false);
    let shared = Shared { router, tls, limits, stopped, failed_log: Mutex::default() };
    let (shared, connections) = (Arc::new(shared), Connections::new(limits.connections));
    let mut server = Server { shared, connections, tasks: JoinSet::new() };
    tokio::select! {
        never = server.accept(&listener) => match never {},
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    let _ = timeout(STOP_TIME_MAX, async { while server.tasks.join_next().await.is_some() {} }).await;
    Ok(())
}

/// A running server. Dropping it closes all connections.
struct Server {
    shared: Arc<Shared>,
    connections: Connections,
    tasks: JoinSet<()>,
}

/// Parts of a server that its connections share.
struct Shared {
    router: Router,
    tls: Option<ServerTls>,
    limits: Limits,
    stopped: watch::Receiver<bool>,
    /// Time of the last log line about a connection that was refused or failed.
    failed_log: Mutex<Option<Instant>>,
}

impl Server {
    async fn accept(&mut self, listener: &tokio::net::TcpListener) -> Infallible {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, client)) => self.admit(stream, client),
                    Err(error) => self.make_room(&error).await,
                },
                Some(_) = self.tasks.join_next() => {} // frees the ended task
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, client: SocketAddr) {
        let Some(connection) = self.connections.admit() else {
            let limit = self.shared.limits.connections;
            self.shared.log_failed(|| tracing::warn!(%client, limit, "too many requests in progress"));
            return;
        };
        // Responses are small or streamed, so waiting to fill a TCP segment only delays them.
        let _ = stream.set_nodelay(true);
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = shared.serve(stream, client, &connection) => {}
                () = connection.closed() => {}
            }
        });
    }

    /// Closes an idle connection after a failed accept. The usual cause of such a failure is that
    /// the process has no free file descriptor.
    async fn make_room(&self, error: &io::Error) {
        self.shared.log_failed(|| tracing::warn!(%error, "cannot accept a connection"));
        self.connections.close_idlest();
        sleep(ACCEPT_PAUSE).await;
    }
}

impl Shared {
    /// Serves a connection until it is closed or the server stops.
    async fn serve(&self, stream: TcpStream, client: SocketAddr, connection: &Arc<Connection>) {
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, self.router.clone(), None, connection).await;
        };
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        match timeout(self.limits.handshake, tls.accept(stream)).await.unwrap_or_else(late) {
            Ok(Accepted::Tls(stream, names)) => {
                self.serve_http(stream, self.router.clone(), names, connection).await;
            }
            Ok(Accepted::Clear(stream)) => {
                self.serve_http(stream, expects_tls(), None, connection).await;
            }
            Ok(Accepted::Closed) => {}
            Err(error) => {
                tls.count_failed();
                self.log_failed(|| tracing::warn!(%client, %error, "TLS handshake failed"));
            }
        }
    }

    /// Serves the requests of a client; `names` are those in the client's certificate.
    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        router: Router,
        names: Option<PeerNames>,
        connection: &Arc<Connection>,
    ) {
        let routes = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let in_progress = connection.begin();
            if let Some(names) = &names {
                request.extensions_mut().insert(names.clone());
            }
            let response = routes.call(request.map(Body::new));
            async move {
                // The request is in progress until its response's content has been sent.
                response.await.map(|response: Response| {
                    response.map(|content| ServedContent { content, _in_progress: in_progress })
                })
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.limits.head);
        let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut stopped = self.stopped.clone();
        tokio::select! {
            _ = served.as_mut() => return,
            _ = stopped.wait_for(|stopped| *stopped) => served.as_mut().graceful_shutdown(),
        }
        // An error means that the client closed the connection.
        let _ = served.await;
    }

    /// Logs a connection that was refused or failed, unless another one was logged recently.
    fn log_failed(&self, log: impl FnOnce()) {
        let mut last = self.failed_log.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= FAILED_LOG_INTERVAL) {
            *last = Some(Instant::now());
            log();
        }
    }
}

/// Returns routes that tell clients without TLS to use TLS.
fn expects_tls() -> Router {
    Router::new().fallback(async || Refusal::bad_request("this port expects TLS: use https://"))
}

/// Content of a response. The request counts as in progress until the content has been sent.
struct ServedContent {
    content: Body,
    _in_progress: InProgress,
}

impl Content for ServedContent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.content).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::collections::HashMap;
    use std::future::pending;
    use std::net::{Ipv4Addr, SocketAddr};

    use axum::extract::Query;
    use axum::routing::{get, post};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    async fn exchange(request: &str) -> (String, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", get(async |_: Query<HashMap<u8, u8>>| "read"))
            .route("/write", post(async || crate::json(&json!({"written": true}))));
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, router, Pages::Own, async { drop(ended.await) }));
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        drop(end);
        served.await.unwrap().unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), content.to_owned())
    }

    #[tokio::test]
    async fn all_errors_have_one_form() {
        for (request, status) in [
            ("GET /?a=b HTTP/1.1\r\nHost: localhost\r\n", "400 bad request"),
            ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n", "404 not found"),
            ("DELETE / HTTP/1.1\r\nHost: localhost\r\n", "405 method not allowed"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n", "421 misdirected request"),
            ("POST /write HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n", "403 forbidden"),
        ] {
            let (head, content) = exchange(request).await;
            assert!(head.starts_with(&format!("http/1.1 {status}\r\n")), "{head}");
            assert!(head.contains("\r\ncache-control: no-store"), "{head}");
            assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
            let content: Value = serde_json::from_str(&content).unwrap();
            assert!(content["error"].as_str().is_some_and(|error| !error.is_empty()), "{content}");
        }
        let (head, _) = exchange("DELETE / HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(head.contains("\r\nallow: get,head\r\n"), "{head}");
        let own = "POST /write HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n";
        assert_eq!(exchange(own).await.1, r#"{"written":true}"#);
    }

    /// A running server.
    struct Started {
        addr: SocketAddr,
        /// Stops the server when dropped.
        end: oneshot::Sender<()>,
        /// Receives an item for each request for `/wait`, which gets no response.
        waiting: mpsc::UnboundedReceiver<()>,
    }

    impl Started {
        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.addr).await.unwrap()
        }

        /// Opens a connection whose request is in progress.
        async fn connect_and_wait(&mut self) -> TcpStream {
            let mut stream = self.connect().await;
            stream.write_all(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            self.waiting.recv().await.unwrap();
            stream
        }
    }

    fn start(limits: Limits) -> Started {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (arrived, waiting) = mpsc::unbounded_channel();
        let wait = async move || {
            arrived.send(()).unwrap();
            pending::<&str>().await
        };
        let router = Router::new().route("/", get(async || "read")).route("/wait", get(wait));
        let (end, ended) = oneshot::channel::<()>();
        tokio::spawn(serve_within(limits, listener.into(), router, Pages::None, async { drop(ended.await) }));
        Started { addr, end, waiting }
    }

    fn is_silent(stream: &TcpStream) -> bool {
        stream.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";

    /// Sends bytes and returns the first bytes of the response; empty if the server closes.
    async fn ask(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; OK.len()];
        let exchange = async {
            stream.write_all(bytes).await?;
            stream.read_exact(&mut answer).await
        };
        if exchange.await.is_ok() { answer } else { Vec::new() }
    }

    #[tokio::test]
    async fn slow_heads_are_cut_off_and_delay_nobody() {
        let head = Duration::from_millis(500);
        let server = start(Limits { head, ..LIMITS });
        let (mut slow, mut quick) = (server.connect().await, server.connect().await);
        let begun = Instant::now();
        // One byte at a time: each arrives soon, but the head never ends.
        let endless = GET[..GET.len() - 2].iter().chain(b"X: ").chain(std::iter::repeat(&b'a'));
        for byte in endless {
            if slow.write_all(&[*byte]).await.is_err() || !is_silent(&slow) {
                break;
            }
            assert!(begun.elapsed() < 60 * head, "still open");
            if begun.elapsed() < head / 2 {
                assert_eq!(ask(&mut quick, GET).await, OK);
                assert!(quick.read(&mut [0; 1024]).await.unwrap() > 0);
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(begun.elapsed() >= head, "{:?}", begun.elapsed());
        // A connection without requests is closed, too.
        assert_eq!(server.connect().await.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(ask(&mut server.connect().await, GET).await, OK);
    }

    #[tokio::test]
    async fn idle_connections_make_room_for_new_ones() {
        const COUNT: usize = 8;
        let mut server = start(Limits { connections: COUNT, ..LIMITS });
        let waiting = server.connect_and_wait().await;
        // Many more connections than allowed, each with half a head.
        let mut half_open = Vec::new();
        for _ in 0..10 * COUNT {
            let mut stream = server.connect().await;
            stream.write_all(&GET[..10]).await.unwrap();
            half_open.push(stream);
        }
        for _ in 0..2 * COUNT {
            assert_eq!(ask(&mut server.connect().await, GET).await, OK);
        }
        assert_eq!(ask(&mut half_open[0], &GET[10..]).await, b"", "closed to make room");
        assert!(is_silent(&waiting), "in progress");
    }

    #[tokio::test]
    async fn new_connections_are_closed_while_all_requests_are_in_progress() {
        let mut server = start(Limits { connections: 2, ..LIMITS });
        let mut waiting = Vec::from([server.connect_and_wait().await, server.connect_and_wait().await]);
        assert_eq!(ask(&mut server.connect().await, GET).await, b"");
        assert!(waiting.iter().all(is_silent));
        waiting.pop();
        // The server notices the closed connection after a moment.
        while ask(&mut server.connect().await, GET).await != OK {}
    }

    #[tokio::test]
    async fn stop_cuts_off_waiting_requests() {
        let mut server = start(LIMITS);
        let (mut waiting, mut quick) = (server.connect_and_wait().await, server.connect().await);
        assert_eq!(ask(&mut quick, GET).await, OK);
        let Started { addr, end, .. } = server;
        drop(end);
        let mut rest = Vec::new();
        let _ = quick.read_to_end(&mut rest).await;
        let _ = waiting.read_to_end(&mut rest).await;
        assert!(TcpStream::connect(addr).await.is_err());
    }
}
