//! An HTTP/1.1 connection of a client: one request at a time, its content discarded in the kernel unless somebody reads it.
//!
//! Content nobody reads is taken with `recv(MSG_TRUNC)` (tcp(7)): the kernel frees it without copying. Its buffer is virtual memory
//! that is never touched. What is read goes through one buffer for each thread, since no client keeps bytes between two polls.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};
use thalweg_http::ResponseHead;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Sleep, sleep_until};

use super::response::{Response, Sink, Want};
use super::{ErrorKind, Failure};

/// Read at once where bytes are looked at.
const READ_BYTES: usize = 64 * 1024;
/// Discarded at once; more than a socket's buffer has mostly.
const DISCARD_BYTES: usize = 4 * 1024 * 1024;

/// How long what may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A connection.
    pub connect: Duration,
    /// From the request to the whole head of its response.
    pub head: Duration,
    /// Without any byte of content.
    pub content: Duration,
}

/// What is shared by all connections of a thread, for the time of one system call.
struct Scratch {
    read: Vec<u8>,
    discard: Vec<u8>,
    head: ResponseHead,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        read: vec![0; READ_BYTES],
        // Zeroed memory of this size comes from the kernel, which gives no page before it is touched.
        discard: vec![0; DISCARD_BYTES],
        head: ResponseHead::default(),
    });
}

/// An exchange that ended well.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// The status.
    pub status: u16,
    /// When the last byte of the request was given to the kernel.
    pub sent: Instant,
    /// When the first byte of the response was read.
    pub first_byte: Instant,
    /// When the last byte was.
    pub last_byte: Instant,
    /// Bytes of content.
    pub content_bytes: u64,
    /// Whether the connection may carry another request.
    pub is_kept_alive: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    timeouts: Timeouts,
    deadline: Deadline,
    exchanges: u64,
}

/// How an exchange failed.
#[derive(Debug)]
pub struct Broken {
    /// What happened.
    pub failure: Failure,
    /// Whether the server had closed an idle connection before it saw the request: it may be sent again (RFC 9112 §9.3.1).
    pub is_idle_close: bool,
}

impl Connection {
    /// Connects from that address, or from the one that the system chooses.
    ///
    /// # Errors
    /// [`ErrorKind::Connect`], [`ErrorKind::ConnectTimeout`] or [`ErrorKind::Local`].
    pub async fn open(
        server: SocketAddr,
        source: Option<IpAddr>,
        timeouts: Timeouts,
    ) -> Result<Self, Failure> {
        let explain = |error: io::Error| {
            let failure = Failure::from_connect(&error);
            let from = source.map_or_else(String::new, |source| format!(" from {source}"));
            Failure::new(failure.kind, format!("cannot connect to {server}{from}: {error}"))
        };
        let socket = socket(server, source).map_err(explain)?;
        let connected = tokio::time::timeout(timeouts.connect, socket.connect(server)).await;
        let stream = connected
            .map_err(|_| {
                Failure::new(
                    ErrorKind::ConnectTimeout,
                    format!("no connection to {server} within {:?}", timeouts.connect),
                )
            })?
            .map_err(explain)?;
        stream.set_nodelay(true).map_err(explain)?;
        Ok(Self { stream, timeouts, deadline: Deadline::new(Instant::now() + timeouts.head), exchanges: 0 })
    }

    /// Sends a request and takes its response. After an error the connection is of no more use.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub async fn exchange(&mut self, request: &[u8], sink: &mut impl Sink) -> Result<Exchange, Broken> {
        let mut response = Response::default();
        let done = self.attempt(request, &mut response, sink).await;
        let is_reused = self.exchanges > 0;
        self.exchanges += 1;
        done.map_err(|failure| Broken {
            is_idle_close: is_reused && failure.kind == ErrorKind::NoHead && !response.has_begun(),
            failure,
        })
    }

    async fn attempt(
        &mut self,
        request: &[u8],
        response: &mut Response,
        sink: &mut impl Sink,
    ) -> Result<Exchange, Failure> {
        self.send(request).await?;
        let sent = Instant::now();
        self.deadline.set(sent + self.timeouts.head);
        let (mut first_byte, mut last_byte) = (None, sent);
        loop {
            let want = response.want(sink.is_reading());
            if want == Want::Nothing {
                break;
            }
            let had_head = response.has_head();
            let taken = self.receive(want, response, sink)?;
            match taken {
                Some(at) => {
                    first_byte.get_or_insert(at);
                    last_byte = at;
                    if response.has_head() {
                        self.deadline.set(at + self.timeouts.content);
                    }
                }
                None => self.readable(had_head).await?,
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

    async fn send(&mut self, mut request: &[u8]) -> Result<(), Failure> {
        self.deadline.set(Instant::now() + self.timeouts.head);
        loop {
            match self.stream.try_write(request) {
                Ok(sent) if sent == request.len() => return Ok(()),
                Ok(sent) => request = &request[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let (stream, deadline) = (&self.stream, &mut self.deadline);
                    let ready = poll_fn(|context| match stream.poll_write_ready(context) {
                        Poll::Ready(ready) => Poll::Ready(Some(ready)),
                        Poll::Pending => deadline.poll_passed(context).map(|()| None),
                    });
                    if ready.await.is_none() {
                        return Err(self.late(false));
                    }
                }
                Err(error) => return Err(Failure::new(ErrorKind::NoHead, format!("cannot send: {error}"))),
            }
        }
    }

    /// Takes what is there; `None` if nothing is, else when it was taken.
    fn receive(
        &self,
        want: Want,
        response: &mut Response,
        sink: &mut impl Sink,
    ) -> Result<Option<Instant>, Failure> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { read, discard, head } = scratch;
            let (buffer, flags) = match want {
                Want::Discard(most) => {
                    let most = usize::try_from(most).unwrap_or(usize::MAX).min(DISCARD_BYTES);
                    (&mut discard[..most], RecvFlags::TRUNC)
                }
                Want::Bytes | Want::Nothing => (&mut read[..], RecvFlags::empty()),
            };
            let Some(taken) = self.try_receive(buffer, flags) else { return Ok(None) };
            let at = Instant::now();
            match taken {
                Ok(0) => response.closed()?,
                Ok(length) if matches!(want, Want::Discard(_)) => {
                    response.discarded(length as u64, at, sink);
                }
                Ok(length) => response.receive(&read[..length], at, head, sink)?,
                Err(error) => {
                    let kind = if response.has_head() { ErrorKind::Cut } else { ErrorKind::NoHead };
                    return Err(Failure::new(kind, format!("cannot receive: {error}")));
                }
            }
            Ok(Some(at))
        })
    }

    /// One `recv`; `None` if it would have to wait.
    fn try_receive(&self, buffer: &mut [u8], flags: RecvFlags) -> Option<io::Result<usize>> {
        let wanted = buffer.len();
        let mut taken = None;
        let done = self.stream.try_io(Interest::READABLE, || {
            let length = recv(&self.stream, &mut *buffer, flags)?.1;
            taken = Some(length);
            // Less than asked for: nothing is left, and the next poll need not find that out (epoll(7), question 9).
            if length > 0 && length < wanted { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (taken, done) {
            (Some(length), _) => Some(Ok(length)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            (None, Err(error)) => Some(Err(error)),
            (None, Ok(())) => None,
        }
    }

    async fn readable(&mut self, has_head: bool) -> Result<(), Failure> {
        let (stream, deadline) = (&self.stream, &mut self.deadline);
        let ready = poll_fn(|context| match stream.poll_read_ready(context) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending => deadline.poll_passed(context).map(|()| None),
        });
        match ready.await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(Failure::new(ErrorKind::Local, format!("cannot wait for a socket: {error}")))
            }
            None => Err(self.late(has_head)),
        }
    }

    fn late(&self, has_head: bool) -> Failure {
        if has_head {
            Failure::new(ErrorKind::ContentTimeout, format!("no content within {:?}", self.timeouts.content))
        } else {
            Failure::new(ErrorKind::HeadTimeout, format!("no head within {:?}", self.timeouts.head))
        }
    }
}

fn socket(server: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(source) = source {
        // The port is chosen with the server known, so each address has all ports to each server (ip(7)).
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// A time that is moved with nearly every system call: the timer itself is only moved when it fires, or must fire sooner.
#[derive(Debug)]
struct Deadline {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl Deadline {
    fn new(at: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(at.into())), at }
    }

    fn set(&mut self, at: Instant) {
        self.at = at;
        if at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(at.into());
        }
    }

    fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at.into());
        }
    }
}
