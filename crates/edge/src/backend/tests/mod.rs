//! Backend tests over real sockets. Compiled policies declare the backends, and each test writes
//! every response byte.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use thalweg_http::Method;
use thalweg_policy::source::File;
use thalweg_policy::{Known, Program, compile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::config::{Config, Timeouts};
use crate::fetch::exchange::{Exchange, ExchangeError, OutgoingRequest};

mod declared;
mod health;
mod turns;

/// Maximum wait for an expected event before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);
const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn accept(listener: &TcpListener) -> TcpStream {
    timeout(PATIENCE, listener.accept()).await.expect("the edge connects in time").unwrap().0
}

/// Reads up to and including the empty line that ends a head.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, stream.read_u8()).await.expect("the edge sends data in time").unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    timeout(PATIENCE, stream.read(&mut [0])).await.expect("the connection closes in time").unwrap() == 0
}

/// Creates the backends of an edge with two workers and no configured backend.
fn none_configured() -> Backends {
    Backends::new(&[], &Timeouts::default(), 2)
}

fn program(text: &str) -> Program {
    let main = File { name: "test.vcl".into(), text: format!("vcl 4.1;\n{text}") };
    let compiled = compile(main, &mut |path, _| Err(path.into()), &Known::default());
    compiled.map(|(program, _)| program).map_err(|faults| format!("{faults:?}")).unwrap()
}

async fn load(backends: &Backends, text: &str) -> PolicyBackends {
    let program = program(text);
    PolicyBackends::load(backends, program.backends(), program.probes()).await.unwrap()
}

fn to(backends: &PolicyBackends) -> Route {
    Route { target: Target::One(backends.get(0).unwrap().clone()), ..Route::default() }
}

async fn start(connection: Connection) -> Result<Exchange, ExchangeError> {
    let outgoing = OutgoingRequest { method: Method::Get, head: HEAD, content: &mut None, interim: None };
    Exchange::start(connection, outgoing, &Config::default()).await
}
