//! Client connection that carries one request at a time, over HTTP/1.1 or HTTP/2, with or without
//! TLS.
//!
//! Unneeded content is discarded: by the kernel over cleartext HTTP/1.1 (`plain`), otherwise after
//! it is read.

mod deadline;
mod exchange;
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
use tokio::net::{TcpSocket, TcpStream};

use self::deadline::Deadline;
use self::exchange::method;
use self::h2::Http2;
use self::http1::Http1;
use self::plain::Plain;
use super::response::Sink;
use super::{ErrorKind, Failure};

pub use exchange::{Exchange, ExchangeError, Timeouts};
pub use server::{Protocols, Server};
pub use tls::Trust;

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

/// Time spent opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Duration of the TCP handshake.
    pub connect: Duration,
    /// Duration of the TLS handshake, if any.
    pub tls: Option<Duration>,
}

impl Connection {
    /// Connects from `source`, or from an address chosen by the system.
    ///
    /// # Errors
    ///
    /// Returns a failure of kind [`ErrorKind::Connect`], [`ErrorKind::ConnectTimeout`],
    /// [`ErrorKind::Local`] or [`ErrorKind::Tls`] if no connection can be opened.
    pub async fn open(server: &Server, source: Option<IpAddr>, timeouts: Timeouts) -> Result<Self, Failure> {
        let started = Instant::now();
        let stream = connect(server.address, source, timeouts.connect).await?;
        let connected = Instant::now();
        let mut opening = Opening { connect: connected - started, tls: None };
        let carrier = match &server.tls {
            None if server.is_http2 => Carrier::Http2(Box::new(Http2::begin(stream, "http").await?)),
            None => Carrier::Http1(Http1::Plain(Plain(stream))),
            Some(settings) => {
                let stream = tls::handshake(stream, settings, timeouts.connect).await?;
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

    /// Returns the time spent opening the connection.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Sends a request, always passed in HTTP/1.1 format, and reads the response. After an error,
    /// the connection must not be used again.
    ///
    /// # Errors
    ///
    /// Returns an error if the request cannot be sent, or if the response is invalid, incomplete,
    /// late or rejected by `sink`.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Exchange, ExchangeError> {
        // Retry only idempotent requests: a server may process a request and still close the idle
        // connection (RFC 9110 §9.2.2).
        let may_repeat = self.exchanges > 0 && method(request).is_idempotent();
        self.exchanges += 1;
        match &mut self.carrier {
            Carrier::Http1(carrier) => carrier.exchange(request, sink, &mut self.deadline, may_repeat).await,
            Carrier::Http2(carrier) => carrier.exchange(request, sink, &mut self.deadline, may_repeat).await,
        }
    }

    /// Sends a GET request for `target` at `host`, with the field lines in `fields`, each ending in
    /// CRLF.
    ///
    /// # Errors
    ///
    /// Returns an error if the request cannot be sent, or if the response is invalid, incomplete,
    /// late or rejected by `sink`.
    pub async fn get(
        &mut self,
        host: &str,
        target: &str,
        fields: &str,
        sink: &mut impl Sink,
    ) -> Result<Exchange, Failure> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        self.exchange(request.as_bytes(), sink).await.map_err(|error| error.failure)
    }
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
        // Let the kernel choose the port at connect time, so that each source address can use all
        // ports with each server (ip(7)).
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}
