//! HTTP/1.1 client connection over TCP or TLS. All connections of a thread share one read buffer,
//! because no connection keeps bytes in the buffer between polls.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use rustix::net::RecvFlags;
use thalweg_http::ResponseHead;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::deadline::Deadline;
use super::exchange::{Exchange, ExchangeError, method};
use super::plain::Plain;
use super::tls;
use crate::response::{Response, Sink, Want};
use crate::{ErrorKind, Failure};

/// Buffer size for reading needed content.
const READ_BYTES: usize = 64 * 1024;
/// Buffer size for discarding content; usually larger than a socket buffer.
const DISCARD_BYTES: usize = 4 * 1024 * 1024;

/// Buffers shared by all connections of a thread. They are in use only during a poll.
struct Scratch {
    read: Vec<u8>,
    discard: Vec<u8>,
    head: ResponseHead,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        read: vec![0; READ_BYTES],
        // Zeroed memory of this size comes directly from the kernel, which allocates pages only
        // when they are touched.
        discard: vec![0; DISCARD_BYTES],
        head: ResponseHead::default(),
    });
}

/// The stream under HTTP/1.1.
#[derive(Debug)]
pub(super) enum Http1 {
    Plain(Plain),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Http1 {
    /// Sends a request and reads the response. `may_repeat` allows a retry if the server closed the
    /// idle connection.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        sink: &mut impl Sink,
        deadline: &mut Deadline,
        may_repeat: bool,
    ) -> Result<Exchange, ExchangeError> {
        let mut response = Response::to(method(request));
        self.attempt(request, &mut response, sink, deadline).await.map_err(|failure| ExchangeError {
            is_idle_close: may_repeat && failure.kind == ErrorKind::NoHead && !response.has_begun(),
            failure,
        })
    }

    async fn attempt(
        &mut self,
        request: &[u8],
        response: &mut Response,
        sink: &mut impl Sink,
        deadline: &mut Deadline,
    ) -> Result<Exchange, Failure> {
        let sent = self.send(request, deadline).await?;
        deadline.await_head(Instant::now());
        let (mut first_byte, mut last_byte) = (None, sent);
        loop {
            let want = response.want(sink.is_reading());
            if want == Want::Nothing {
                break;
            }
            let at = deadline.bound(|context| self.poll_take(context, want, response, sink)).await??;
            first_byte.get_or_insert(at);
            last_byte = at;
            if response.has_head() {
                deadline.await_content(at);
            }
        }
        Ok(Exchange {
            status: response.status(),
            sent,
            first_byte: first_byte.unwrap_or(sent),
            last_byte,
            content_bytes: response.content_bytes(),
            is_kept_alive: response.is_kept_alive(),
        })
    }

    /// Sends a request and returns the time just before sending its last byte.
    async fn send(&mut self, mut request: &[u8], deadline: &mut Deadline) -> Result<Instant, Failure> {
        let explain = |error| tls::explain(&error, ErrorKind::NoHead, "cannot send");
        let mut sent = Instant::now();
        deadline.await_head(sent);
        while !request.is_empty() {
            let poll = |context: &mut Context<'_>| {
                sent = Instant::now();
                self.poll_send(context, request)
            };
            let taken = deadline.bound(poll).await?.map_err(explain)?;
            request = &request[taken..];
        }
        if let Http1::Tls(stream) = self {
            // Flush, because the TLS stream may still buffer the last records.
            let flushed = deadline.bound(|context| Pin::new(&mut *stream).poll_flush(context)).await?;
            flushed.map_err(explain)?;
        }
        Ok(sent)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Http1::Plain(stream) => stream.poll_send(context, bytes),
            Http1::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// Reads available bytes and returns their arrival time.
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        want: Want,
        response: &mut Response,
        sink: &mut impl Sink,
    ) -> Poll<Result<Instant, Failure>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { read, discard, head } = scratch;
            let taken = match self {
                Http1::Plain(stream) => {
                    let (buffer, flags) = match want {
                        Want::Discard(most) => (up_to(discard, most), RecvFlags::TRUNC),
                        Want::Bytes | Want::Nothing => (&mut read[..], RecvFlags::empty()),
                    };
                    ready!(stream.poll_receive(context, buffer, flags))
                }
                Http1::Tls(stream) => {
                    let mut buffer = ReadBuf::new(match want {
                        Want::Discard(most) => up_to(read, most),
                        Want::Bytes | Want::Nothing => &mut read[..],
                    });
                    ready!(Pin::new(stream).poll_read(context, &mut buffer)).map(|()| buffer.filled().len())
                }
            };
            let at = Instant::now();
            match taken {
                Ok(0) => response.closed()?,
                Ok(length) if matches!(want, Want::Discard(_)) => {
                    response.discarded(length as u64, at, sink);
                }
                Ok(length) => response.receive(&read[..length], at, head, sink)?,
                Err(error) => {
                    let kind = if response.has_head() { ErrorKind::Cut } else { ErrorKind::NoHead };
                    return Poll::Ready(Err(tls::explain(&error, kind, "cannot receive")));
                }
            }
            Poll::Ready(Ok(at))
        })
    }
}

fn up_to(buffer: &mut [u8], most: u64) -> &mut [u8] {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
    &mut buffer[..most]
}
