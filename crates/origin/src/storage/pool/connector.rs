//! Opens connections: resolves the name, connects to its addresses in turn, and performs the TLS
//! handshake.

use std::io;
use std::sync::Arc;

use thalweg_surface::ClientTls;
use tokio::net::{TcpStream, lookup_host};

use super::connection::Connection;
use super::{Failure, FailureKind, Stats, Target};

/// Maximum addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Opens a connection. The caller limits the time.
pub(super) async fn open(
    target: &Target,
    tls: Option<&ClientTls>,
    stats: Arc<Stats>,
) -> Result<Connection, Failure> {
    let stream = connect(target).await.map_err(|error| {
        let Target { host, port, .. } = target;
        Failure::new(FailureKind::Connect, format!("cannot connect to storage at {host}:{port}: {error}"))
    })?;
    let _ = stream.set_nodelay(true);
    if !target.is_secure {
        return Connection::start(stream, stats).await;
    }
    let fault = |reason| Failure::new(FailureKind::Tls, format!("TLS with {} failed: {reason}", target.host));
    let Some(tls) = tls else { return Err(fault("no certificate authorities: set storage_ca".to_owned())) };
    let stream = tls.connect(&target.host, stream).await.map_err(fault)?;
    Connection::start(stream, stats).await
}

async fn connect(target: &Target) -> io::Result<TcpStream> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host((host, target.port)).await?.take(ADDRESSES_MAX) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
