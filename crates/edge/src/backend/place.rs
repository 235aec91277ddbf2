//! Where a backend is: an address, a name that is looked up, or a socket in the file system.
//!
//! A name is looked up when its policy is loaded, or at the first connection to a configured backend, and again behind
//! a connection that finds what is known old, or that fails. What was found last is good until something else is found.
//!
//! **Invariant:** names are looked up by threads of their own (`getaddrinfo`), never by a worker's.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_policy::program::BackendAddress;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use crate::now_ms;

/// How old what is known of a name may be before it is looked up again.
pub(super) const KEPT_MS_MAX: u64 = 60_000;
/// The same once a connection has failed: a name is looked up no more often than this.
pub(super) const AGAIN_MS_MIN: u64 = 1000;
/// How long a name may take.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(10);

/// Where a backend is.
#[derive(Debug)]
pub(super) struct Place {
    at: At,
    pub(super) addresses: Mutex<Arc<[SocketAddr]>>,
    looked_up_ms: AtomicU64,
}

#[derive(Debug)]
enum At {
    /// `backend NAME none;`
    Nowhere,
    Path(PathBuf),
    Address(SocketAddr),
    Name(String, u16),
}

impl Place {
    /// Nothing is looked up yet.
    pub(super) fn new(address: Option<&BackendAddress>) -> Self {
        let at = match address {
            None => At::Nowhere,
            Some(BackendAddress::Path(path)) => At::Path(path.into()),
            Some(BackendAddress::Host { host, port }) => match host.parse::<IpAddr>() {
                Ok(ip) => At::Address((ip, *port).into()),
                Err(_) => At::Name(host.clone(), *port),
            },
        };
        Self { at, addresses: Mutex::new([].into()), looked_up_ms: AtomicU64::new(0) }
    }

    /// A new connection; the addresses of a name are tried in their order.
    pub(super) async fn open(&self) -> io::Result<TcpStream> {
        let stream = match &self.at {
            At::Nowhere => return Err(io::Error::other("it is declared as none")),
            At::Path(path) => return connect_local(path).await,
            At::Address(address) => TcpStream::connect(address).await?,
            At::Name(..) => {
                self.look_up_first().await?;
                TcpStream::connect(&*self.known()).await?
            }
        };
        // Heads go out whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn known(&self) -> Arc<[SocketAddr]> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something is known of a name.
    ///
    /// # Errors
    /// When it has no address.
    pub(super) async fn look_up_first(&self) -> io::Result<()> {
        if matches!(self.at, At::Name(..)) && self.known().is_empty() { self.look_up().await } else { Ok(()) }
    }

    /// Looks a name up behind what is going on, if what is known of it is older than `age_ms_max`.
    pub(super) fn look_up_again(self: &Arc<Self>, age_ms_max: u64) {
        let (now_ms, last_ms) = (now_ms(), self.looked_up_ms.load(Relaxed));
        let is_due = matches!(self.at, At::Name(..)) && now_ms.saturating_sub(last_ms) >= age_ms_max;
        if is_due && self.looked_up_ms.compare_exchange(last_ms, now_ms, Relaxed, Relaxed).is_ok() {
            let place = self.clone();
            tokio::spawn(async move {
                if let Err(error) = place.look_up().await {
                    tracing::warn!(%error, "a backend's name is not found; its last addresses are used");
                }
            });
        }
    }

    async fn look_up(&self) -> io::Result<()> {
        let At::Name(host, port) = &self.at else { return Ok(()) };
        self.looked_up_ms.store(now_ms(), Relaxed);
        let found = match timeout(LOOK_UP_TIME_MAX, lookup_host((host.as_str(), *port))).await {
            Ok(found) => found.map_err(|error| io::Error::new(error.kind(), format!("{host}: {error}")))?,
            Err(_) => return Err(io::Error::other(format!("{host}: looking it up took too long"))),
        };
        let found: Arc<[SocketAddr]> = found.collect();
        if found.is_empty() {
            return Err(io::Error::other(format!("{host}: it has no address")));
        }
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }
}

/// A connection over a socket in the file system, as the type that all others have: once it is there, a stream is read,
/// written and waited for by the same calls.
async fn connect_local(path: &Path) -> io::Result<TcpStream> {
    let stream = UnixStream::connect(path).await?.into_std()?;
    TcpStream::from_std(OwnedFd::from(stream).into())
}

/// The host of an address for `Host`; a socket in the file system has that of nobody, as in varnishd.
pub(super) fn host(address: &BackendAddress) -> &str {
    match address {
        BackendAddress::Host { host, .. } => host,
        BackendAddress::Path(_) => "0.0.0.0",
    }
}

/// An address to be read.
pub(super) struct Shown<'a>(pub(super) &'a BackendAddress);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BackendAddress::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            BackendAddress::Host { host, port } => write!(f, "{host}:{port}"),
            BackendAddress::Path(path) => f.write_str(path),
        }
    }
}
