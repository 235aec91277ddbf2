//! One connection: its state, shared with the task that drives it, and its exchanges.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::CONNECTION;
use hyper::{Request, Response, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::{Failure, FailureKind, Stats};

/// Maximum length of a response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

const BUSY: u8 = 0;
const IDLE: u8 = 1;
const CLOSED: u8 = 2;

/// State shared by a connection's owner and the task that drives it.
#[derive(Debug)]
pub(super) struct Life {
    state: AtomicU8,
    opened: Instant,
    requests: AtomicU64,
    read_bytes: AtomicU64,
}

impl Life {
    /// Marks a busy connection as idle; returns false if it was closed in the meantime.
    pub(super) fn rest(&self) -> bool {
        self.state.compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks an idle connection as busy; returns false if the server closed it.
    pub(super) fn wake(&self) -> bool {
        self.state.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    life: Arc<Life>,
    may_be_kept: bool,
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) failure: Failure,
    /// Whether a kept connection was closed before any byte of the response arrived.
    pub(super) is_unanswered: bool,
}

impl Connection {
    /// Starts HTTP on an open stream, and a task that drives the connection until it closes.
    pub(super) async fn start<S>(stream: S, stats: Arc<Stats>) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let life = Arc::new(Life {
            state: AtomicU8::new(BUSY),
            opened: Instant::now(),
            requests: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        });
        let io = TokioIo::new(Counted { stream, life: life.clone() });
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, driver) = builder
            .handshake(io)
            .await
            .map_err(|error| Failure::new(FailureKind::Connect, error.to_string()))?;
        let of_driver = life.clone();
        stats.open.inc();
        tokio::spawn(async move {
            let _ = driver.await;
            if of_driver.state.swap(CLOSED, Ordering::AcqRel) == IDLE {
                stats.closed_idle.inc();
            }
            stats.close(of_driver.opened.elapsed(), of_driver.requests.load(Ordering::Relaxed));
        });
        Ok(Connection { sender, life, may_be_kept: true })
    }

    pub(super) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Returns whether another request may be sent once the response has been read.
    pub(super) fn may_be_kept(&self) -> bool {
        self.may_be_kept
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the previous exchange has ended within the connection's task. Returns false if
    /// the connection is closed.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(
        mut self,
        request: Request<Bytes>,
        limit: Duration,
    ) -> Result<(Connection, Response<Incoming>), SendError> {
        let is_first = self.life.requests.fetch_add(1, Ordering::Relaxed) == 0;
        let before = self.life.read_bytes.load(Ordering::Relaxed);
        match timeout(limit, self.sender.send_request(request.map(Full::new))).await {
            Ok(Ok(response)) => {
                let closes = |value: &[u8]| value.eq_ignore_ascii_case(b"close");
                let is_last = response.headers().get_all(CONNECTION).iter().any(|v| closes(v.as_bytes()));
                self.may_be_kept = !is_last && response.version() == Version::HTTP_11;
                Ok((self, response))
            }
            Ok(Err(error)) => {
                let is_silent = self.life.read_bytes.load(Ordering::Relaxed) == before;
                let message = "storage closed the connection before its response";
                let message = if error.is_parse() { "storage does not speak HTTP/1.1" } else { message };
                Err(SendError {
                    failure: Failure::new(FailureKind::Closed, message),
                    is_unanswered: !is_first && is_silent,
                })
            }
            Err(_) => Err(SendError {
                failure: Failure::new(
                    FailureKind::FirstByte,
                    format!("storage did not respond within {limit:?}"),
                ),
                is_unanswered: false,
            }),
        }
    }
}

/// A stream that counts the bytes read.
struct Counted<S> {
    stream: S,
    life: Arc<Life>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.life.read_bytes.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
