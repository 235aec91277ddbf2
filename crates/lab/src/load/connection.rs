//! A client's connection: one request at a time, over HTTP/1.1 or HTTP/2, with or without TLS.
//!
//! Content that nobody reads is discarded: over plain HTTP/1.1 in the kernel (`plain`), else once it has been read.

mod deadline;
mod h2;
mod http1;
mod plain;
mod server;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use socket2::{Domain, Protocol, Socket, Type};
use thalweg_http::Method;
use tokio::net::{TcpSocket, TcpStream};

use self::deadline::Deadline;
use self::h2::Http2;
use self::http1::Http1;
use self::plain::Plain;
use super::response::Sink;
use super::{ErrorKind, Failure};

pub use server::{Protocols, Server};
pub use tls::Trust;

/// How long what may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A connection; then, by itself, its TLS handshake.
    pub connect: Duration,
    /// From the request to the whole head of its response.
    pub head: Duration,
    /// Without any byte of content.
    pub content: Duration,
}

/// An exchange that ended well.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// The status.
    pub status: u16,
    /// Just before the last byte of the request was given to the kernel: a server on the same machine may answer before that call
    /// returns.
    pub sent: Instant,
    /// When the first byte of the response was read; over HTTP/2 its head.
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
    carrier: Carrier,
    deadline: Deadline,
    exchanges: u64,
    opening: Opening,
}

#[derive(Debug)]
enum Carrier {
    Http1(Http1),
    Http2(Box<Http2>),
}

/// How long it took to open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// TCP's part.
    pub connect: Duration,
    /// That of the TLS handshake, where there was one.
    pub tls: Option<Duration>,
}

/// How an exchange failed.
#[derive(Debug)]
pub struct Broken {
    /// What happened.
    pub failure: Failure,
    /// Whether the server had closed an idle connection before it saw the request, or has said that it did not begin with it: it may
    /// be sent again (RFC 9112 §9.3.1, RFC 9113 §8.7).
    pub is_idle_close: bool,
}

impl From<Failure> for Broken {
    /// One after which the request is not sent again.
    fn from(failure: Failure) -> Self {
        Self { failure, is_idle_close: false }
    }
}

impl Connection {
    /// Connects from that address, or from the one that the system chooses.
    ///
    /// # Errors
    /// [`ErrorKind::Connect`], [`ErrorKind::ConnectTimeout`], [`ErrorKind::Local`] or [`ErrorKind::Tls`].
    pub async fn open(server: &Server, source: Option<IpAddr>, timeouts: Timeouts) -> Result<Self, Failure> {
        let begun = Instant::now();
        let stream = connect(server.address, source, timeouts.connect).await?;
        let connected = Instant::now();
        let mut opening = Opening { connect: connected - begun, tls: None };
        let carrier = match &server.tls {
            None if server.is_http2 => Carrier::Http2(Box::new(Http2::begin(stream, "http").await?)),
            None => Carrier::Http1(Http1::Plain(Plain(stream))),
            Some(secure) => {
                let stream = tls::shake_hands(stream, secure, timeouts.connect).await?;
                opening.tls = Some(connected.elapsed());
                if server.is_http2 {
                    Carrier::Http2(Box::new(Http2::begin(stream, "https").await?))
                } else {
                    Carrier::Http1(Http1::Tls(Box::new(stream)))
                }
            }
        };
        Ok(Self { carrier, deadline: Deadline::new(timeouts), exchanges: 0, opening })
    }

    /// How long it took to open it.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Sends a request, which has the form of HTTP/1.1 whatever carries it, and takes its response. After an error the connection is of
    /// no more use.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub async fn exchange(&mut self, request: &[u8], sink: &mut impl Sink) -> Result<Exchange, Broken> {
        // Who closes an idle connection may have seen the request (RFC 9110 §9.2.2).
        let may_repeat = self.exchanges > 0 && method(request).is_idempotent();
        self.exchanges += 1;
        match &mut self.carrier {
            Carrier::Http1(carrier) => carrier.exchange(request, sink, &mut self.deadline, may_repeat).await,
            Carrier::Http2(carrier) => carrier.exchange(request, sink, &mut self.deadline, may_repeat).await,
        }
    }
}

/// That of a request in the form of HTTP/1.1.
fn method(request: &[u8]) -> Method {
    Method::parse(request.split(|byte| *byte == b' ').next().unwrap_or_default())
}

async fn connect(server: SocketAddr, source: Option<IpAddr>, within: Duration) -> Result<TcpStream, Failure> {
    let explain = |error: io::Error| {
        let failure = Failure::from_connect(&error);
        let from = source.map_or_else(String::new, |source| format!(" from {source}"));
        Failure::new(failure.kind, format!("cannot connect to {server}{from}: {error}"))
    };
    let late =
        || Failure::new(ErrorKind::ConnectTimeout, format!("no connection to {server} within {within:?}"));
    let socket = socket(server, source).map_err(explain)?;
    let connected = tokio::time::timeout(within, socket.connect(server)).await;
    let stream = connected.map_err(|_| late())?.map_err(explain)?;
    stream.set_nodelay(true).map_err(explain)?;
    Ok(stream)
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
