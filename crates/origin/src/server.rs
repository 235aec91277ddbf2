//! HTTP/1.1 server: listeners, connections, and dispatch to the modules that respond.
//!
//! **Invariant:** connections, request heads, waits and queues all have named limits. An error on
//! one connection closes only that connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use thalweg_surface::Pages;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::admin;
use crate::body::Body;
use crate::catalog::catalog;
use crate::clock::now_utc;
use crate::config::Config;
use crate::error::BindError;
use crate::live::ingest::permit::{self, Denied, Ingest};
use crate::live::{Live, ingest};
use crate::metrics::Metrics;
use crate::response::{self, NO_STORE, RequestHead, Resource};
use crate::route::{Route, RouteError, route};
use crate::stall::StallGuard;
use crate::storage::Storage;
use crate::vod::{self, Library, ListingAges};

/// Maximum presentations indexed while searching for a servable one.
const TRIED_MAX: usize = 16;
/// Maximum connections waiting to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
/// Time limit for an idle connection, and for reading a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a client may stop reading before its connection is closed.
const SEND_STALL_MAX: Duration = Duration::from_secs(60);
/// Idle time before TCP sends keepalive probes to detect a vanished client.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Maximum header fields in a request.
const FIELDS_MAX: usize = 64;
/// How long responses in progress may continue after a shutdown request.
const STOP_MAX: Duration = Duration::from_secs(1);
/// Pause after a failed accept, for example for lack of file descriptors, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Methods allowed on every resource except ingest.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An origin with its sockets bound.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    public: Bound,
    ingest: Option<Bound>,
    admin: Option<Bound>,
}

/// A listening socket.
#[derive(Debug)]
struct Bound {
    listener: StdListener,
    address: SocketAddr,
}

/// The purpose of a listener.
#[derive(Debug, Clone, Copy)]
enum ListenerKind {
    /// Edges and clients.
    Public,
    /// Ingest sources.
    Ingest,
}

impl ListenerKind {
    /// Returns the listener's label in metrics.
    fn name(self) -> &'static str {
        match self {
            ListenerKind::Public => "public",
            ListenerKind::Ingest => "ingest",
        }
    }
}

/// State shared by all connections.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    pub(crate) library: Option<Library>,
    pub(crate) live: Live,
    pub(crate) metrics: Metrics,
}

impl Origin {
    /// Binds the sockets and acquires all resources, without serving requests yet.
    ///
    /// # Errors
    ///
    /// Returns an error for the first resource that could not be acquired.
    pub fn bind(config: Config) -> Result<Origin, BindError> {
        let library = if config.media.is_empty() {
            None
        } else {
            let storage = Storage::open_all(&config.media, &config.storage, config.remote_listing_max_age)
                .map_err(|(location, error)| BindError::Media(location, error))?;
            let target_ms = u32::try_from(config.segment_target.as_millis()).unwrap_or(u32::MAX);
            let ages = ListingAges { local: config.listing_max_age, remote: config.remote_listing_max_age };
            Some(Library::new(storage, target_ms, ages))
        };
        let live = Live::new(&config).map_err(|e| BindError::Memory(config.live_memory_bytes, e))?;
        let public = listen(config.listen).map_err(|e| BindError::Listen(config.listen, e))?;
        let ingest = config
            .ingest
            .as_ref()
            .map(|ingest| listen(ingest.listen()).map_err(|e| BindError::Ingest(ingest.listen(), e)));
        let ingest = ingest.transpose()?;
        let admin = config.admin.map(|address| listen(address).map_err(|e| BindError::Admin(address, e)));
        let admin = admin.transpose()?;
        let shared = Shared { config, library, live, metrics: Metrics::default() };
        Ok(Origin { shared: Arc::new(shared), public, ingest, admin })
    }

    /// Returns the address to which edges and clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.public.address
    }

    /// Returns the address to which ingest sources push.
    pub fn ingest_addr(&self) -> Option<SocketAddr> {
        Some(self.ingest.as_ref()?.address)
    }

    /// Returns the address on which the admin interface listens.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        Some(self.admin.as_ref()?.address)
    }

    /// Returns the name of a servable presentation, as an example to play. Tries only the first few
    /// presentations, and indexes them as a client's request would.
    pub async fn first_servable_presentation(&self) -> Option<String> {
        let library = self.shared.library.as_ref()?;
        for name in library.names().await.ok()?.into_iter().take(TRIED_MAX) {
            if library.get(&name).await.is_ok() {
                return Some(name);
            }
        }
        None
    }

    /// Serves on the current tokio runtime until `stop` resolves, then gives responses in progress
    /// one second to complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime cannot register a socket.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let (stop_sender, stopped) = watch::channel(());
        let mut listeners = JoinSet::new();
        for (kind, bound) in [(ListenerKind::Public, Some(self.public)), (ListenerKind::Ingest, self.ingest)]
        {
            if let Some(Bound { listener, .. }) = bound {
                let listener = TcpListener::from_std(listener)?;
                listeners.spawn(serve_listener(self.shared.clone(), kind, listener, stopped.clone()));
            }
        }
        if let Some(Bound { listener, .. }) = self.admin {
            let mut stopped = stopped.clone();
            let stop = async move { drop(stopped.changed().await) };
            let served =
                thalweg_surface::serve(listener, admin::router(self.shared.clone()), Pages::None, stop);
            listeners.spawn(async move {
                if let Err(error) = served.await {
                    tracing::error!(%error, "admin interface failed");
                }
            });
        }
        tokio::select! {
            () = stop => {}
            () = self.shared.live.run_maintenance() => unreachable!("maintenance never returns"),
        }
        stop_sender.send_replace(());
        let _ = timeout(STOP_MAX, async { while listeners.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

fn listen(address: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = StdListener::from(socket);
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

/// Serves a listener's connections until stopped, then waits for the last connection to close.
async fn serve_listener(
    shared: Arc<Shared>,
    kind: ListenerKind,
    listener: TcpListener,
    mut stopped: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    let slots = Arc::new(Semaphore::new(shared.config.connections_max));
    loop {
        let (stream, slot) = tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        let served = serve(shared.clone(), kind, stream, stopped.clone());
        connections.spawn(async move {
            served.await;
            drop(slot);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits until the connection limit allows another connection, then accepts one.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, impl Drop + use<>) {
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            unreachable!("the semaphore is never closed")
        };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection until it closes.
async fn serve(shared: Arc<Shared>, kind: ListenerKind, stream: TcpStream, mut stopped: watch::Receiver<()>) {
    // Send chunks as they arrive instead of waiting for a full TCP segment.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    let head_bytes_max = shared.config.head_bytes_max;
    let _connection = shared.metrics.connection(kind.name());
    let written = shared.metrics.written(kind.name());
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move {
            let response = match kind {
                ListenerKind::Public => respond(&shared, request).await,
                ListenerKind::Ingest => publish(&shared, request).await,
            };
            shared.metrics.count(kind.name(), response.status());
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(FIELDS_MAX);
    builder.max_header_size(head_bytes_max);
    let io = TokioIo::new(StallGuard::new(stream, SEND_STALL_MAX, written));
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Responds to an ingest source.
async fn publish(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let token = shared.config.ingest.as_ref().and_then(Ingest::token);
    if let Err(denied) = permit::check(token, request.headers()) {
        return ingest::deny(&shared.live, &shared.metrics, request, denied).await;
    }
    match route(target(&request)) {
        Ok(Route::Ingest { channel, path }) => {
            ingest::respond(&shared.live, &shared.metrics, request, &channel, &path).await
        }
        Ok(_) => response::text(StatusCode::NOT_FOUND, "this listener accepts only ingest"),
        Err(refused) => refuse(refused),
    }
}

/// Responds to an edge or a client.
async fn respond(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let route = match route(target(&request)) {
        Ok(Route::Ingest { .. }) => {
            return ingest::deny(&shared.live, &shared.metrics, request, Denied::Listener).await;
        }
        Ok(route) => route,
        Err(refused) => return refuse(refused),
    };
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return response::preflight(ALLOW),
        _ => return response::method_not_allowed(ALLOW),
    }
    let query = request.uri().query();
    let head = RequestHead { method: request.method(), fields: request.headers(), query };
    match route {
        Route::Time => time(&head),
        Route::Catalog => list(shared, &head).await,
        Route::Vod { name, version, what } => match &shared.library {
            Some(library) => vod::respond(library, &head, &name, version.as_deref(), what).await,
            None => response::text(StatusCode::NOT_FOUND, "this origin serves live channels only"),
        },
        Route::Live { channel, what } => shared.live.respond(&head, &channel, what).await,
        Route::Ingest { .. } => unreachable!("ingest routes are handled above"),
    }
}

fn target(request: &Request<Incoming>) -> &str {
    request.uri().path_and_query().map_or("/", |t| t.as_str())
}

fn refuse(refused: RouteError) -> Response<Body> {
    match refused {
        RouteError::Malformed => response::text(StatusCode::BAD_REQUEST, "malformed request target"),
        RouteError::Unknown => response::text(StatusCode::NOT_FOUND, "no such path"),
        RouteError::TooLong => response::text(StatusCode::URI_TOO_LONG, "request target too long"),
    }
}

/// Responds to `/time`, for players that synchronise their clock with the origin (ISO/IEC 23009-1
/// §5.8.4.11, `http-iso:2014`).
fn time(head: &RequestHead<'_>) -> Response<Body> {
    let now = Bytes::from(now_utc().to_string());
    let resource = Resource {
        content_type: "text/plain; charset=utf-8",
        cache_control: String::from(NO_STORE),
        etag: None,
        modified_s: None,
        size: Some(now.len() as u64),
    };
    response::bytes(head, &resource, &now)
}

async fn list(shared: &Shared, head: &RequestHead<'_>) -> Response<Body> {
    let catalog = catalog(shared.library.as_ref(), &shared.live).await;
    let content = Bytes::from(serde_json::to_vec(&catalog).expect("serializing a catalogue cannot fail"));
    let resource = Resource {
        content_type: "application/json",
        cache_control: String::from("public, max-age=1"),
        etag: Some(response::etag_of(&content)),
        modified_s: None,
        size: Some(content.len() as u64),
    };
    response::bytes(head, &resource, &content)
}
