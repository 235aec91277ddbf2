//! The edge as a whole: sockets bound and files opened first, threads after, everything ended at the end.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thalweg_cache::{Cache, Disk};
use thalweg_geo::GeoError;
use thalweg_tcp::{sending, sysctl};
use tokio::sync::{Notify, oneshot, watch};

use crate::admin;
use crate::backend::Backends;
use crate::bundle::{Bundles, Kept};
use crate::config::{Config, DiskPlace, LogTo, SlowStartAfterIdle};
use crate::hops::Node;
use crate::log::{self, LogWriter, Records};
use crate::policy::{Compiled, GeoFiles, LoadError, Policies};
use crate::state::{FILE_BYTES, State};
use crate::steering;
use crate::worker::{Shared, Worker};

/// Connections that wait to be accepted, for each worker; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// How long clients wait, before the first is served, for what lies on disk to be found.
const DISK_WAIT_MAX: Duration = Duration::from_millis(300);
/// The name of the policy that the edge begins with, as in Varnish.
const FIRST_POLICY: &str = "boot";
/// How long the admin interface's last responses may take once the edge has ended.
const ADMIN_STOP_TIME_MAX: Duration = Duration::from_millis(200);

/// What could not be had before the edge starts.
#[derive(Debug)]
pub enum BindError {
    /// The clients' address.
    Listen(SocketAddr, io::Error),
    /// The admin interface's address.
    Admin(SocketAddr, io::Error),
    /// The request log.
    Log(LogTo, io::Error),
    /// The memory for content.
    Memory(u64, io::Error),
    /// The directory of the disk tier.
    Disk(PathBuf, io::Error),
    /// The congestion control of client connections.
    CongestionControl(thalweg_tcp::Error),
    /// A database of where clients are.
    Geo(GeoError),
    /// The policy.
    Policy(LoadError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Admin(address, error) => write!(f, "cannot listen on {address} (admin): {error}"),
            Self::Log(LogTo::File(path), error) => {
                write!(f, "cannot open the log {}: {error}", path.display())
            }
            Self::Log(_, error) => write!(f, "cannot open the log: {error}"),
            Self::Memory(bytes, error) => {
                write!(f, "cannot have {bytes} bytes of memory for content: {error}")
            }
            Self::Disk(directory, error) if error.kind() == io::ErrorKind::WouldBlock => {
                write!(f, "another process stores responses in {}", directory.display())
            }
            Self::Disk(directory, error) => {
                write!(f, "cannot store responses in {}: {error}", directory.display())
            }
            Self::CongestionControl(error) => error.fmt(f),
            Self::Geo(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

/// An edge with its sockets bound.
#[derive(Debug)]
pub struct Edge {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    admin: Option<TcpListener>,
    log: LogWriter,
    address: SocketAddr,
    policy: Option<Compiled>,
}

impl Edge {
    /// Binds and opens all that the edge needs; starts nothing.
    ///
    /// # Errors
    /// What could not be had.
    pub fn bind(config: Config) -> Result<Self, BindError> {
        if let Some(name) = config.congestion_control {
            thalweg_tcp::congestion::check(name).map_err(BindError::CongestionControl)?;
        }
        let threads =
            config.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let listeners = listen(config.listen, threads, config.tcp_notsent_lowat_bytes)
            .map_err(|error| BindError::Listen(config.listen, error))?;
        let address = listeners[0].local_addr().map_err(|error| BindError::Listen(config.listen, error))?;
        let admin = match config.admin {
            Some(at) => Some(listen_alone(at).map_err(|error| BindError::Admin(at, error))?),
            None => None,
        };
        let disk = config.disk.as_ref().map(open_disk).transpose()?.flatten();
        let cache = Cache::with_disk(config.memory_bytes, disk)
            .map_err(|error| BindError::Memory(config.memory_bytes, error))?;
        if config.slice_bytes > cache.content_bytes_max() {
            let most = cache.content_bytes_max();
            tracing::warn!(
                most,
                "slices are larger than a quarter of the memory: large content is not stored"
            );
        }
        let state = State::of(config.state.as_deref())
            .map_err(|error| BindError::Memory(FILE_BYTES as u64, error))?;
        let kept = state.directory().map(Kept::within);
        let bundles = Arc::new(Bundles::new(config.bundle.as_ref(), kept));
        let (log, writer) =
            log::open(&config.log, state).map_err(|error| BindError::Log(config.log.clone(), error))?;
        if config.tcp_slow_start_after_idle == SlowStartAfterIdle::Off {
            end_slow_start_after_idle();
        }
        let backends = Arc::new(Backends::new(&config.backends, &config.timeouts, threads));
        let steering = Arc::new(steering::Common::new(config.steering_size_bytes_min));
        let (node, connections) = (Node::new(), Arc::default());
        let geo = GeoFiles::open(&config.geoip).map_err(BindError::Geo)?;
        let policies = Arc::new(Policies::new(backends.clone(), geo));
        let policy = config.policy.as_deref().map(|path| policies.compile(path)).transpose();
        let policy = policy.map_err(BindError::Policy)?;
        let shared = Shared { config, cache, backends, node, log, policies, connections, steering, bundles };
        let shared = Arc::new(shared);
        Ok(Self { shared, listeners, admin, log: writer, address, policy })
    }

    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin interface listens.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The policies that requests run through.
    pub fn policies(&self) -> Arc<Policies> {
        self.shared.policies.clone()
    }

    /// Counts up when another bundle is in force, one is refused, or its server is no longer, or again, heard.
    pub fn bundle_changes(&self) -> watch::Receiver<u64> {
        self.shared.bundles.changes()
    }

    /// The records of all responses, to follow.
    pub fn records(&self) -> Records {
        self.shared.log.records().clone()
    }

    /// Serves until `stop` resolves, then ends the responses under way, within a second.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be had, or a worker ends before it was asked to.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        if let Some(policy) = self.policy {
            begin(&self.shared.policies, policy).await.map_err(io::Error::other)?;
        }
        let (end_admin, ended) = oneshot::channel::<()>();
        let ended = async {
            let _ = ended.await;
        };
        let admin = self.admin.map(|listener| admin::serve(listener, &self.shared, ended)).transpose()?;
        let cache = self.shared.cache.clone();
        let disk = cache.clone();
        let started = tokio::task::spawn_blocking(move || disk.start_disk(DISK_WAIT_MAX)).await;
        started.unwrap_or_else(|panic| Err(io::Error::other(panic)))?;
        let backends = self.shared.backends.clone();
        let bundles = self.shared.bundles.clone();
        let threads = Threads::start(self.shared, self.listeners, self.log)?;
        let admin = admin.map(tokio::spawn);
        let asked = tokio::select! {
            () = stop => Ok(()),
            () = threads.early_end.notified() => Err(io::Error::other("a worker of the edge ended by itself")),
            never = backends.close_old() => match never {},
            never = bundles.clone().watch() => match never {},
        };
        let joined = tokio::task::spawn_blocking(move || {
            // The state directory is let go with the log.
            bundles.end();
            let ended = threads.end();
            cache.stop_disk();
            ended
        })
        .await;
        let ended = joined.unwrap_or_else(|panic| Err(io::Error::other(panic))).and(asked);
        // The log has ended and its followers with it: nothing but a client that does not read is left.
        drop(end_admin);
        if let Some(mut admin) = admin
            && tokio::time::timeout(ADMIN_STOP_TIME_MAX, &mut admin).await.is_err()
        {
            admin.abort();
        }
        ended
    }
}

/// Opens the disk tier. Without a disk that has failed the edge goes on, but what its settings say must hold.
fn open_disk(place: &DiskPlace) -> Result<Option<Disk>, BindError> {
    match Disk::open(&place.directory, place.bytes_max) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if is_fault_of_disk(&error) => {
            let directory = place.directory.display();
            tracing::error!(%directory, %error, "going on without the disk tier");
            Ok(None)
        }
        Err(error) => Err(BindError::Disk(place.directory.clone(), error)),
    }
}

fn is_fault_of_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let faults = [Errno::IO, Errno::ROFS, Errno::NOSPC, Errno::DQUOT, Errno::NXIO, Errno::STALE];
    faults.iter().any(|fault| error.raw_os_error() == Some(fault.raw_os_error()))
}

/// The threads of a running edge.
#[derive(Debug)]
struct Threads {
    workers: Vec<JoinHandle<io::Result<()>>>,
    sweeper: JoinHandle<()>,
    cache: Arc<Cache>,
    log: JoinHandle<()>,
    stopping: watch::Sender<bool>,
    early_end: Arc<Notify>,
}

/// Tells that a worker has ended, however it did.
struct TellsEnd(Arc<Notify>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Threads {
    /// Starts all of them, or none.
    fn start(shared: Arc<Shared>, listeners: Vec<TcpListener>, log: LogWriter) -> io::Result<Self> {
        let mut threads = Self {
            workers: Vec::with_capacity(listeners.len()),
            sweeper: {
                let cache = shared.cache.clone();
                thread::Builder::new().name("edge-sweep".into()).spawn(move || cache.run_sweeps())?
            },
            cache: shared.cache.clone(),
            log: thread::Builder::new().name("edge-log".into()).spawn(|| log.run())?,
            stopping: watch::Sender::new(false),
            early_end: Arc::default(),
        };
        for (number, listener) in listeners.into_iter().enumerate() {
            let (worker, stop) = (shared.clone(), threads.stopping.subscribe());
            let tells_end = TellsEnd(threads.early_end.clone());
            let worker = thread::Builder::new().name(format!("edge-{number}")).spawn(move || {
                let _tells_end = tells_end;
                Worker::run(worker, number, listener, stop)
            });
            match worker {
                Ok(worker) => threads.workers.push(worker),
                Err(error) => {
                    // Nothing is under way yet, so the others end at once.
                    drop(shared);
                    let _ = threads.end();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// What a worker failed with.
    fn end(self) -> io::Result<()> {
        self.stopping.send_replace(true);
        let mut ended = Ok(());
        for worker in self.workers {
            let panicked = |_| Err(io::Error::other("a worker of the edge panicked"));
            ended = ended.and(worker.join().unwrap_or_else(panicked));
        }
        self.cache.end_sweeps();
        let _ = self.sweeper.join();
        // The log ends once no worker can put anything into it.
        let _ = self.log.join();
        ended
    }
}

/// It helps connections, and is nothing to fail for.
fn end_slow_start_after_idle() {
    if !matches!(sysctl::slow_start_after_idle(), Ok(false))
        && let Err(error) = sysctl::set_slow_start_after_idle(false)
    {
        tracing::warn!(%error, "tcp_slow_start_after_idle is not off: net.ipv4.tcp_slow_start_after_idle cannot be written");
    }
}

/// One listener for each worker on the same port; the kernel spreads the connections over them, and they have of their
/// listener how much may wait unsent.
fn listen(address: SocketAddr, count: usize, notsent_lowat: Option<u32>) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT another process could hold the port and nobody would be told: ask without it first.
    let address = listen_alone(address)?.local_addr()?;
    (0..count)
        .map(|_| {
            let socket = socket(address)?;
            socket.set_reuse_port(true)?;
            if let Some(bytes) = notsent_lowat {
                sending::set_notsent_lowat(socket.as_fd(), bytes)?;
            }
            bind(socket, address)
        })
        .collect()
}

fn listen_alone(address: SocketAddr) -> io::Result<TcpListener> {
    bind(socket(address)?, address)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn bind(socket: Socket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Has requests run through the policy that the edge begins with.
async fn begin(policies: &Policies, policy: Compiled) -> Result<(), LoadError> {
    let warnings = policies.add(FIRST_POLICY, policy, true).await?;
    for warning in warnings.faults {
        tracing::warn!(warning = warning.message, place = %warning.place, help = warning.help, "policy");
    }
    Ok(())
}
