//! The HTTP/1.1 server: listener, connections, and which part answers what.
//!
//! **Invariant:** every connection, head, wait and queue has a named limit; a fault on one connection ends that one.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::answer::{self, Asked, NO_STORE, Resource};
use crate::body::Body;
use crate::catalog::catalog;
use crate::clock::now_utc;
use crate::config::Config;
use crate::error::BindError;
use crate::live::{Live, ingest};
use crate::route::{Refused, Route, route};
use crate::stall::Stalling;
use crate::storage::Storage;
use crate::vod::{self, Library};

/// Presentations that are indexed to find one that can be served.
const TRIED_MAX: usize = 16;
/// Connections that wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
/// A connection without a request, and a request's head from its first byte to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// A client that takes nothing for so long is given up.
const SEND_STALL_MAX: Duration = Duration::from_secs(60);
/// A peer that is gone without a word is found out after about this.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Header fields of a request.
const FIELDS_MAX: usize = 64;
/// How long answers under way may go on once the origin is asked to end.
const STOP_MAX: Duration = Duration::from_secs(1);
/// Pause after an accept that failed for want of descriptors, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Methods of everything but ingest.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An origin with its socket bound.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    listener: StdListener,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    library: Option<Library>,
    live: Live,
}

impl Origin {
    /// Binds and opens all that the origin needs; starts nothing.
    ///
    /// # Errors
    /// What could not be had.
    pub fn bind(config: Config) -> Result<Origin, BindError> {
        let library = match &config.media {
            Some(media) => {
                let storage = Storage::local(media).map_err(|e| BindError::Media(media.clone(), e))?;
                let target_ms = u32::try_from(config.segment_target.as_millis()).unwrap_or(u32::MAX);
                Some(Library::new(storage, target_ms, config.listing_max_age))
            }
            None => None,
        };
        let live = Live::new(&config).map_err(|e| BindError::Memory(config.live_memory_bytes, e))?;
        let failed = |e| BindError::Listen(config.listen, e);
        let listener = listen(config.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Origin { shared: Arc::new(Shared { config, library, live }), listener, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The name of the first presentation that can be served, if one of the first few can: something to try.
    /// It is indexed for this, as when a client asks for it.
    pub async fn a_presentation(&self) -> Option<String> {
        let library = self.shared.library.as_ref()?;
        for name in library.names().await.ok()?.into_iter().take(TRIED_MAX) {
            if library.get(&name).await.is_ok() {
                return Some(name);
            }
        }
        None
    }

    /// Serves on the current tokio runtime until `stop` resolves, then ends the answers under way, within a second.
    ///
    /// # Errors
    /// When the runtime does not take the socket.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (stopping, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let places = Arc::new(Semaphore::new(self.shared.config.connections_max));
        let mut stop = pin!(stop);
        let mut house = pin!(self.shared.live.keep_house());
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                () = &mut house => unreachable!("it is kept for ever"),
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = accept(&listener, &places) => accepted,
            };
            let (stream, place) = accepted;
            let (shared, stopped) = (self.shared.clone(), stopped.clone());
            connections.spawn(async move {
                serve(shared, stream, stopped).await;
                drop(place);
            });
        }
        drop(listener);
        stopping.send_replace(());
        let _ = timeout(STOP_MAX, async { while connections.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The next connection, once there is a place for it.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, impl Drop + use<>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { unreachable!("never closed") };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end.
async fn serve(shared: Arc<Shared>, stream: TcpStream, mut stopped: watch::Receiver<()>) {
    // A chunk goes out when it is there, not when a TCP segment is full.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    let head_bytes_max = shared.config.head_bytes_max;
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(FIELDS_MAX);
    builder.max_header_size(head_bytes_max);
    let io = TokioIo::new(Stalling::new(stream, SEND_STALL_MAX));
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

/// The answer to a request.
async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
    let route = match route(target) {
        Ok(route) => route,
        Err(refused) => return refuse(refused),
    };
    if let Route::Ingest { channel, path } = route {
        return ingest::answer(&shared.live, request, &channel, &path).await;
    }
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return answer::preflight(ALLOW),
        _ => return answer::method_not_allowed(ALLOW),
    }
    let asked = Asked { method: request.method(), fields: request.headers() };
    match route {
        Route::Time => time(&asked),
        Route::Catalog => list(shared, &asked).await,
        Route::Vod { name, version, what } => match &shared.library {
            Some(library) => vod::answer(library, &asked, &name, version.as_deref(), what).await,
            None => answer::text(StatusCode::NOT_FOUND, "this origin serves live channels only"),
        },
        Route::Live { channel, what } => shared.live.answer(&asked, &channel, what).await,
        Route::Ingest { .. } => unreachable!("answered above"),
    }
}

fn refuse(refused: Refused) -> Response<Body> {
    match refused {
        Refused::Malformed => answer::text(StatusCode::BAD_REQUEST, "malformed request target"),
        Refused::Unknown => answer::text(StatusCode::NOT_FOUND, "nothing has this path"),
        Refused::TooLong => answer::text(StatusCode::URI_TOO_LONG, "request target too long"),
    }
}

/// `/time`: for players that set their clock by the origin's (ISO/IEC 23009-1 §5.8.4.11, `http-iso:2014`).
fn time(asked: &Asked<'_>) -> Response<Body> {
    let now = Bytes::from(now_utc().to_string());
    let resource = Resource {
        content_type: "text/plain; charset=utf-8",
        cache_control: String::from(NO_STORE),
        etag: None,
        modified_s: None,
        size: Some(now.len() as u64),
    };
    answer::bytes(asked, &resource, &now)
}

async fn list(shared: &Shared, asked: &Asked<'_>) -> Response<Body> {
    let catalog = catalog(shared.library.as_ref(), &shared.live).await;
    let content = Bytes::from(serde_json::to_vec(&catalog).expect("a catalogue is plain data"));
    let resource = Resource {
        content_type: "application/json",
        cache_control: String::from("public, max-age=1"),
        etag: Some(answer::etag_of(&content)),
        modified_s: None,
        size: Some(content.len() as u64),
    };
    answer::bytes(asked, &resource, &content)
}
