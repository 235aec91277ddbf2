//! Opens connections: resolves the name, connects to its addresses in turn, and performs the TLS
//! handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thalweg_surface::ClientTls;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

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

/// Maximum time for which an address is tried while others are left: an address that drops packets
/// must not use up the connect timeout.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(600);

async fn connect(target: &Target) -> io::Result<TcpStream> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = lookup_host((host, target.port)).await?.take(ADDRESSES_MAX).peekable();
    while let Some(address) = addresses.next() {
        if addresses.peek().is_none() {
            return TcpStream::connect(address).await;
        }
        if let Ok(Ok(stream)) = timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}
