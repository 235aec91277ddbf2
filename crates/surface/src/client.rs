//! HTTP client for all control traffic: pooled connections, limits on time and size, and errors
//! that contain the URL.
//!
//! The connector of hyper-util tries a name's IPv4 and IPv6 addresses in parallel ("happy
//! eyeballs", RFC 8305). Redirects are returned to the caller rather than followed. `https` URLs
//! require a [`ClientTls`].

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::tls::{CONTROLLER, ClientTls, explain, no_trust};

/// Maximum length of a response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
const AGENT: &str = concat!("thalweg/", env!("CARGO_PKG_VERSION"));

/// Limits on the duration of a request and on the size of its response.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum time to establish a connection. A name's addresses are tried in turn, each with an
    /// equal share of this time. IPv4 and IPv6 addresses are tried in parallel.
    pub connect: Duration,
    /// Maximum time from sending the request to the end of the response head. Includes the time to
    /// connect, unless an open connection is reused.
    pub head: Duration,
    /// Maximum time between two pieces of response content.
    pub silence: Duration,
    /// Maximum time from the response head to the end of the content. Applies to
    /// [`Content::whole`].
    pub content: Duration,
    /// Maximum size of the content in bytes. Applies to [`Content::whole`].
    pub content_bytes_max: usize,
    /// Maximum time for which an idle connection is kept for the next request. If `None`, every
    /// request opens a connection.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        let time = Duration::from_secs(30);
        Self {
            connect: Duration::from_secs(5),
            head: time,
            silence: time,
            content: time,
            content_bytes_max: 64 << 10,
            idle: None,
        }
    }
}

/// A failed request.
#[derive(Debug)]
pub struct Error {
    /// The requested URL.
    pub url: Uri,
    /// Reason for the failure.
    pub why: Failure,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Reason why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// No connection: the name is unknown, or the connection was refused or timed out.
    Unreachable(Cause),
    /// TLS failed, for this reason.
    Tls(String),
    /// The connection was closed before the end of the response head, or the peer does not speak
    /// HTTP.
    NoAnswer(Cause),
    /// The response head did not arrive within this time.
    Late(Duration),
    /// No content arrived for this time.
    Silent(Duration),
    /// The content was not complete within this time.
    Slow(Duration),
    /// The connection broke before the end of the content.
    BrokeOff(Cause),
    /// The content is longer than this number of bytes.
    TooLong(usize),
    /// Only the end of the connection marks the end of the content, so a broken connection would go
    /// unnoticed.
    Unbounded,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, why } = self;
        match why {
            Failure::Unreachable(_) => write!(f, "cannot reach {url}"),
            Failure::Tls(reason) => write!(f, "TLS with {url} failed: {reason}"),
            Failure::NoAnswer(_) => write!(f, "no response from {url}"),
            Failure::Late(time) => write!(f, "no response from {url} within {time:?}"),
            Failure::Silent(time) => write!(f, "{url} sent nothing for {time:?}"),
            Failure::Slow(time) => write!(f, "response from {url} took longer than {time:?}"),
            Failure::BrokeOff(_) => write!(f, "response from {url} broke off"),
            Failure::TooLong(bytes_max) => write!(f, "response from {url} is longer than {bytes_max} bytes"),
            Failure::Unbounded => {
                write!(f, "response from {url} has no length, so a broken connection would go unnoticed")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            // The wrapper's own message adds no information.
            Failure::Unreachable(cause) | Failure::NoAnswer(cause) => {
                match cause.downcast_ref::<legacy::Error>() {
                    Some(wrapper) => std::error::Error::source(wrapper),
                    None => Some(&**cause),
                }
            }
            Failure::BrokeOff(cause) => Some(&**cause),
            Failure::Tls(_)
            | Failure::Late(_)
            | Failure::Silent(_)
            | Failure::Slow(_)
            | Failure::TooLong(_)
            | Failure::Unbounded => None,
        }
    }
}

/// An HTTP client. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    tls: Option<ClientTls>,
    pool: Arc<Mutex<Pool>>,
    limits: Limits,
}

/// Connections with the same TLS configuration.
#[derive(Debug, Clone)]
struct Pool {
    connections: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    config: Arc<ClientConfig>,
}

impl Pool {
    fn new(limits: &Limits, config: Arc<ClientConfig>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(limits.connect));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let tls = HttpsConnectorBuilder::new().with_tls_config(ClientConfig::clone(&config));
        let connector = tls.https_or_http().enable_http1().wrap_connector(connector);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http1_max_buf_size(HEAD_BYTES_MAX).pool_timer(TokioTimer::new()).timer(TokioTimer::new());
        match limits.idle {
            Some(idle) => builder.pool_idle_timeout(idle),
            None => builder.pool_max_idle_per_host(0),
        };
        Self { connections: builder.build(connector), config }
    }
}

impl Client {
    /// Creates a client without connections, for `http` URLs.
    pub fn new(limits: Limits) -> Self {
        Self::with_tls(limits, None)
    }

    /// Creates a client without connections, for `http` URLs and, with `tls`, also for `https`
    /// URLs.
    pub fn with_tls(limits: Limits, tls: Option<ClientTls>) -> Self {
        let config = tls.as_ref().map_or_else(no_trust, ClientTls::current);
        Self { tls, pool: Arc::new(Mutex::new(Pool::new(&limits, config))), limits }
    }

    /// Returns the connections. Those with an earlier TLS configuration are no longer used.
    fn pool(&self) -> Pool {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = self.tls.as_ref().map(ClientTls::current)
            && !Arc::ptr_eq(&config, &pool.config)
        {
            *pool = Pool::new(&self.limits, config);
        }
        pool.clone()
    }

    /// Sends a request to an absolute URL and returns the response once its head has arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if no response arrives. A response with any status is a success.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Content>, Error> {
        let url = request.uri().clone();
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let answer = self.pool().connections.request(request.map(Full::new));
        let why = match timeout(self.limits.head, answer).await {
            Ok(Ok(response)) => {
                let fields = response.headers();
                let is_bounded = fields.contains_key(CONTENT_LENGTH)
                    || fields.contains_key(TRANSFER_ENCODING)
                    || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
                let limits = self.limits;
                return Ok(response.map(|body| Content { url, body, is_bounded, limits }));
            }
            Ok(Err(error)) => {
                match explain(&error, self.tls.as_ref().map_or(CONTROLLER, ClientTls::settings)) {
                    Some(reason) => Failure::Tls(reason),
                    None if error.is_connect() => Failure::Unreachable(error.into()),
                    None => Failure::NoAnswer(error.into()),
                }
            }
            Err(_) => Failure::Late(self.limits.head),
        };
        Err(Error { url, why })
    }
}

/// Response content, read as it arrives.
#[derive(Debug)]
pub struct Content {
    url: Uri,
    body: Incoming,
    is_bounded: bool,
    limits: Limits,
}

impl Content {
    /// Waits for the next piece of content. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks, or if no content arrives for [`Limits::silence`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let why = loop {
            match timeout(self.limits.silence, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    // Skip trailers.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Ok(Some(Err(error))) => break Failure::BrokeOff(error.into()),
                Ok(None) => return Ok(None),
                Err(_) => break Failure::Silent(self.limits.silence),
            }
        };
        Err(self.error(why))
    }

    /// Reads all content. Stops reading as soon as the content exceeds its maximum size.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks, if the content is too slow or too long, or if it
    /// has no defined end.
    pub async fn whole(mut self) -> Result<Bytes, Error> {
        if !self.is_bounded {
            return Err(self.error(Failure::Unbounded));
        }
        let time = self.limits.content;
        match timeout(time, self.collect()).await {
            Ok(content) => content,
            Err(_) => Err(self.error(Failure::Slow(time))),
        }
    }

    async fn collect(&mut self) -> Result<Bytes, Error> {
        let bytes_max = self.limits.content_bytes_max;
        let mut bytes = self.body.size_hint().lower();
        let mut content = Vec::new();
        while bytes <= bytes_max as u64 {
            let Some(piece) = self.next().await? else { return Ok(content.into()) };
            content.extend_from_slice(&piece);
            bytes = content.len() as u64;
        }
        Err(self.error(Failure::TooLong(bytes_max)))
    }

    fn error(&self, why: Failure) -> Error {
        Error { url: self.url.clone(), why }
    }
}

/// An HTTP client for blocking callers. A dedicated thread drives the connections, so that it
/// notices when the server closes one between requests.
#[derive(Debug)]
pub struct Blocking {
    client: Client,
    /// Always set, except while the client is being dropped.
    runtime: Option<Runtime>,
}

impl Blocking {
    /// Creates a client without connections, for `http` URLs.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn new(limits: Limits) -> io::Result<Self> {
        Self::with_tls(limits, None)
    }

    /// Creates a client without connections, for `http` URLs and, with `tls`, also for `https`
    /// URLs.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn with_tls(limits: Limits, tls: Option<ClientTls>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { client: Client::with_tls(limits, tls), runtime: Some(runtime) })
    }

    /// Sends a request to an absolute URL and returns the complete response.
    ///
    /// # Errors
    ///
    /// Returns an error if no complete response arrives. A response with any status is a success.
    pub fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Error> {
        let runtime = self.runtime.as_ref().expect("present until dropped");
        runtime.block_on(async {
            let (head, content) = self.client.send(request).await?.into_parts();
            Ok(Response::from_parts(head, content.whole().await?))
        })
    }
}

/// Shuts down the runtime without waiting for it. The client may be dropped on a thread of another
/// runtime, which must not block.
impl Drop for Blocking {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests;
