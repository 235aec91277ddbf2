//! HTTP/2 client connection (RFC 9113) that carries one request at a time, each on its own stream.
//!
//! A task drives the connection, so that frames such as PING get a response even between requests.
//! Dropping the connection aborts the task. Requests are passed in HTTP/1.1 format and converted.
//! `sent` is the time at which a request was passed to the task, which the same thread runs next.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use thalweg_http::head::{HEAD_BYTES_MAX, parse_request};
use thalweg_http::{Limits, RequestHead, ResponseHead, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::deadline::Deadline;
use super::exchange::{Exchange, ExchangeError};
use super::tls;
use crate::response::Sink;
use crate::{ErrorKind, Failure};

/// Flow-control window per stream and per connection: enough for over 1 Gbit/s at a round-trip time
/// of 100 ms.
const WINDOW_BYTES: u32 = 16 * 1024 * 1024;

thread_local! {
    static HEADS: RefCell<(RequestHead, ResponseHead)> = RefCell::default();
}

/// An HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Http2 {
    requests: SendRequest<Bytes>,
    scheme: &'static str,
    driver: JoinHandle<()>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Http2 {
    /// Starts an HTTP/2 connection without waiting for the server's preface (RFC 9113 §3.4).
    pub(super) async fn begin(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        scheme: &'static str,
    ) -> Result<Self, Failure> {
        let handshake = h2::client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .enable_push(false)
            .handshake(stream)
            .await;
        let (requests, connection) = handshake.map_err(|error| explain(&error, ErrorKind::NoHead))?;
        let driver = tokio::spawn(async move {
            // Ignore the error: the next request reports why the connection was closed.
            let _ = connection.await;
        });
        Ok(Self { requests, scheme, driver })
    }

    /// Sends a request and reads the response. `may_repeat` allows a retry if the server closed the
    /// idle connection.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        sink: &mut impl Sink,
        deadline: &mut Deadline,
        may_repeat: bool,
    ) -> Result<Exchange, ExchangeError> {
        let broken = |error: h2::Error| ExchangeError {
            is_idle_close: is_unprocessed(&error) || may_repeat && error.is_io(),
            failure: explain(&error, ErrorKind::NoHead),
        };
        let (message, content) = message(request, self.scheme)?;
        deadline.await_head(Instant::now());
        deadline.bound(|context| self.requests.poll_ready(context)).await?.map_err(broken)?;
        let sent = Instant::now();
        let mut response = self.send(message, content).map_err(broken)?;
        deadline.await_head(sent);
        let head = deadline.bound(|context| Pin::new(&mut response).poll(context)).await?.map_err(broken)?;
        let first_byte = Instant::now();
        let (status, content) = take_head(head, sink)?;
        deadline.await_content(first_byte);
        let content_bytes = take_content(content, sink, deadline).await?;
        let last_byte = Instant::now();
        // A server that limits requests per connection has usually sent GOAWAY by now.
        let ready = poll_fn(|context| Poll::Ready(self.requests.poll_ready(context))).await;
        let is_kept_alive = matches!(ready, Poll::Ready(Ok(())));
        Ok(Exchange { status, sent, first_byte, last_byte, content_bytes, is_kept_alive })
    }

    fn send(&mut self, message: Request<()>, content: Bytes) -> Result<ResponseFuture, h2::Error> {
        let (response, mut stream) = self.requests.send_request(message, content.is_empty())?;
        if !content.is_empty() {
            stream.send_data(content, true)?;
        }
        Ok(response)
    }
}

/// Converts an HTTP/1.1 request to HTTP/2: removes connection-specific fields (RFC 9113 §8.2.2) and
/// replaces `Host` with the authority.
fn message(request: &[u8], scheme: &str) -> Result<(Request<()>, Bytes), Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(ErrorKind::Local, format!("cannot send the request over HTTP/2: {error}"))
    };
    HEADS.with_borrow_mut(|(head, _)| {
        let head_bytes = parse_request(request, head, &Limits::default())
            .map_err(|error| wrong(&error))?
            .ok_or_else(|| wrong(&"incomplete head"))?;
        head.fields.remove_hop_by_hop();
        let uri = Uri::builder().scheme(scheme).authority(head.authority.as_str());
        let uri = uri.path_and_query(head.target.as_str()).build().map_err(|error| wrong(&error))?;
        let method = Method::from_bytes(head.method_str().as_bytes()).map_err(|error| wrong(&error))?;
        let mut message = Request::builder().method(method).uri(uri);
        for (name, value) in head.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| wrong(&error))?;
            let value = HeaderValue::from_bytes(value).map_err(|error| wrong(&error))?;
            message = message.header(name, value);
        }
        let message = message.body(()).map_err(|error| wrong(&error))?;
        Ok((message, Bytes::copy_from_slice(&request[head_bytes..])))
    })
}

/// Passes the head to the sink.
fn take_head(head: Response<RecvStream>, sink: &mut impl Sink) -> Result<(u16, RecvStream), Failure> {
    let (parts, content) = head.into_parts();
    HEADS.with_borrow_mut(|(_, head)| {
        head.status = parts.status.as_u16();
        head.version = Version::Http11;
        head.fields.clear();
        for (name, value) in &parts.headers {
            head.fields.push(name.as_str(), value.as_bytes());
        }
        sink.head(head)?;
        Ok((head.status, content))
    })
}

/// Reads all content, extending the flow-control window as bytes arrive. Returns the number of
/// bytes.
async fn take_content(
    mut content: RecvStream,
    sink: &mut impl Sink,
    deadline: &mut Deadline,
) -> Result<u64, Failure> {
    let mut content_bytes = 0;
    while let Some(data) = deadline.bound(|context| content.poll_data(context)).await? {
        let at = Instant::now();
        let data = data.map_err(|error| {
            let failure = explain(&error, ErrorKind::Cut);
            Failure { detail: format!("after {content_bytes} bytes: {failure}"), ..failure }
        })?;
        content_bytes += data.len() as u64;
        sink.arrived(at, data.len() as u64);
        if sink.is_reading() {
            sink.read(&data)?;
        }
        // Ignore the error: it means that the stream is closed and needs no window.
        let _ = content.flow_control().release_capacity(data.len());
        deadline.await_content(at);
    }
    Ok(content_bytes)
}

/// Returns whether the server reported that it did not process the request: the stream was refused,
/// or is above the last stream in GOAWAY (RFC 9113 §8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Returns the failure for an HTTP/2 error; `closed` is its kind if the connection or stream was
/// closed.
fn explain(error: &h2::Error, closed: ErrorKind) -> Failure {
    if let Some(error) = error.get_io() {
        return tls::explain(error, closed, "the connection ended");
    }
    let kind = if error.is_remote() { closed } else { ErrorKind::Malformed };
    Failure::new(kind, format!("HTTP/2: {error}"))
}
