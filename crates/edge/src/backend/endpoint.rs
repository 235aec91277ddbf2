//! Backend endpoint: an IP address, a host name, or a Unix domain socket.
//!
//! A host name is resolved when its policy is loaded or, for a configured backend, at the first
//! connection. It is resolved again in the background after a failed connection, or once the result
//! is too old. The last result stays in use until a look-up succeeds.
//!
//! **Invariant:** names are resolved on separate threads (`getaddrinfo`), never on a worker thread.

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

use crate::clock::now_ms;
use crate::warnings::{WarningLimit, warn_limited};

/// Maximum age of a look-up result; the next connection after that resolves the name again.
pub(super) const KEPT_MS_MAX: u64 = 60_000;
/// Maximum age of a look-up result after a failed connection; also the minimum interval between
/// look-ups.
pub(super) const AGAIN_MS_MIN: u64 = 1000;
/// Timeout of one look-up.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(10);

/// Where a backend listens.
#[derive(Debug)]
pub(super) struct Endpoint {
    location: Location,
    pub(super) addresses: Mutex<Arc<[SocketAddr]>>,
    looked_up_ms: AtomicU64,
    /// Rate limit for warnings about names that cannot be resolved.
    failures: WarningLimit,
}

#[derive(Debug)]
enum Location {
    /// Declared as `backend NAME none;`.
    Nowhere,
    Path(PathBuf),
    Address(SocketAddr),
    Name(String, u16),
}

impl Endpoint {
    /// Creates an endpoint without resolving its name.
    pub(super) fn new(address: Option<&BackendAddress>) -> Self {
        let location = match address {
            None => Location::Nowhere,
            Some(BackendAddress::Path(path)) => Location::Path(path.into()),
            Some(BackendAddress::Host { host, port }) => match host.parse::<IpAddr>() {
                Ok(ip) => Location::Address((ip, *port).into()),
                Err(_) => Location::Name(host.clone(), *port),
            },
        };
        Self {
            location,
            addresses: Mutex::new([].into()),
            looked_up_ms: AtomicU64::new(0),
            failures: WarningLimit::new(),
        }
    }

    /// Opens a new connection, trying a name's addresses in order.
    pub(super) async fn open(&self) -> io::Result<TcpStream> {
        let stream = match &self.location {
            Location::Nowhere => return Err(io::Error::other("declared as none")),
            Location::Path(path) => return connect_local(path).await,
            Location::Address(address) => TcpStream::connect(address).await?,
            Location::Name(..) => {
                self.look_up_first().await?;
                TcpStream::connect(&*self.known()).await?
            }
        };
        // Disable Nagle's algorithm, which would only delay request heads: each is written in one
        // piece.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn known(&self) -> Arc<[SocketAddr]> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resolves the name, unless it has been resolved before.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has no address.
    pub(super) async fn look_up_first(&self) -> io::Result<()> {
        if matches!(self.location, Location::Name(..)) && self.known().is_empty() {
            self.resolve().await
        } else {
            Ok(())
        }
    }

    /// Resolves a name in the background, if the last result is older than `age_ms_max`.
    pub(super) fn look_up_again(self: &Arc<Self>, age_ms_max: u64) {
        let (now_ms, last_ms) = (now_ms(), self.looked_up_ms.load(Relaxed));
        let is_due =
            matches!(self.location, Location::Name(..)) && now_ms.saturating_sub(last_ms) >= age_ms_max;
        if is_due && self.looked_up_ms.compare_exchange(last_ms, now_ms, Relaxed, Relaxed).is_ok() {
            let endpoint = self.clone();
            tokio::spawn(async move {
                if let Err(error) = endpoint.resolve().await {
                    let limit = &endpoint.failures;
                    warn_limited!(limit, %error, "cannot resolve backend name, using the last known addresses");
                }
            });
        }
    }

    async fn resolve(&self) -> io::Result<()> {
        let Location::Name(host, port) = &self.location else { return Ok(()) };
        self.looked_up_ms.store(now_ms(), Relaxed);
        let found = match timeout(LOOK_UP_TIME_MAX, lookup_host((host.as_str(), *port))).await {
            Ok(found) => found.map_err(|error| io::Error::new(error.kind(), format!("{host}: {error}")))?,
            Err(_) => return Err(io::Error::other(format!("{host}: name look-up timed out"))),
        };
        let found: Arc<[SocketAddr]> = found.collect();
        if found.is_empty() {
            return Err(io::Error::other(format!("{host}: the name has no address")));
        }
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }
}

/// Connects to a Unix domain socket. Returns a `TcpStream`, the type of all backend connections,
/// because once connected, both kinds of socket use the same system calls.
async fn connect_local(path: &Path) -> io::Result<TcpStream> {
    let stream = UnixStream::connect(path).await?.into_std()?;
    TcpStream::from_std(OwnedFd::from(stream).into())
}

/// Returns the host for the `Host` field; for a Unix domain socket `0.0.0.0`, as in varnishd.
pub(super) fn host(address: &BackendAddress) -> &str {
    match address {
        BackendAddress::Host { host, .. } => host,
        BackendAddress::Path(_) => "0.0.0.0",
    }
}

/// A backend address, for display.
pub(super) struct DisplayAddress<'a>(pub(super) &'a BackendAddress);

impl fmt::Display for DisplayAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BackendAddress::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            BackendAddress::Host { host, port } => write!(f, "{host}:{port}"),
            BackendAddress::Path(path) => f.write_str(path),
        }
    }
}
