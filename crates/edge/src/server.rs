//! Edge lifecycle: binds sockets, opens files, starts threads and stops them.

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
use thalweg_surface::{Pages, serve};
use thalweg_tcp::{sending, sysctl};
use tokio::sync::{Notify, oneshot, watch};

use crate::accept;
use crate::admin;
use crate::backend::Backends;
use crate::bundle::{Bundles, SavedBundle};
use crate::config::{Config, DiskPlace, LogDestination, SlowStartAfterIdle};
use crate::hops::Node;
use crate::log::{self, ClientSample, LogWriter, Records, RecordsKept, Ring};
use crate::policy::{Compiled, GeoFiles, LoadError, Policies};
use crate::state::{FILE_BYTES, State};
use crate::steering;
use crate::worker::Shared;

/// Listen backlog of each worker; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Maximum time that clients wait for the disk tier scan at startup.
const DISK_WAIT_MAX: Duration = Duration::from_millis(300);
/// Name of the initial policy, as in Varnish.
const FIRST_POLICY: &str = "boot";

/// Errors that prevent the edge from starting.
#[derive(Debug)]
pub enum BindError {
    /// Cannot listen for clients.
    Listen(SocketAddr, io::Error),
    /// Cannot listen for the admin interface.
    Admin(SocketAddr, io::Error),
    /// Cannot open the request log.
    Log(LogDestination, io::Error),
    /// Cannot allocate memory for content.
    Memory(u64, io::Error),
    /// Cannot use the disk tier's directory.
    Disk(PathBuf, io::Error),
    /// Cannot set the congestion control of client connections.
    CongestionControl(thalweg_tcp::Error),
    /// Cannot load a GeoIP database.
    Geo(GeoError),
    /// Cannot load the policy.
    Policy(LoadError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Admin(address, error) => write!(f, "cannot listen on {address} (admin): {error}"),
            Self::Log(LogDestination::File(path), error) => {
                write!(f, "cannot open the log {}: {error}", path.display())
            }
            Self::Log(_, error) => write!(f, "cannot open the log: {error}"),
            Self::Memory(bytes, error) => {
                write!(f, "cannot allocate {bytes} bytes of memory for content: {error}")
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
    rings: Vec<Ring>,
    log: LogWriter,
    address: SocketAddr,
    policy: Option<Compiled>,
}

impl Edge {
    /// Binds sockets and opens files, without starting any thread.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket cannot be bound, a file cannot be opened or memory cannot be
    /// allocated.
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
                "slice size exceeds a quarter of the memory: large content will not be stored"
            );
        }
        let state = State::open_or_in_memory(config.state.as_deref())
            .map_err(|error| BindError::Memory(FILE_BYTES as u64, error))?;
        let saved = state.directory().map(SavedBundle::within);
        let bundles = Arc::new(Bundles::new(&config, saved));
        let kept = RecordsKept {
            time: config.records_kept,
            bytes_max: usize::try_from(config.records_kept_bytes_max).unwrap_or(usize::MAX),
        };
        let sample = ClientSample::new(config.records_sample, &config.records_sample_salt);
        let (log, rings, writer) = log::open(&config.log, state, threads, kept, sample)
            .map_err(|error| BindError::Log(config.log.clone(), error))?;
        if config.tcp_slow_start_after_idle == SlowStartAfterIdle::Off {
            end_slow_start_after_idle();
        }
        if let Some(warning) = config.bundle.as_ref().and_then(|_| sysctl::metrics_save_warning()) {
            tracing::warn!("{warning}");
        }
        let backends = Arc::new(Backends::new(&config.backends, &config.timeouts, threads));
        let steering = Arc::new(steering::SharedSteering::new(config.steering_size_bytes_min));
        let (node, connections) = (Node::new(), Arc::default());
        let geo = GeoFiles::open(&config.geoip).map_err(BindError::Geo)?;
        let policies = Arc::new(Policies::new(backends.clone(), geo));
        let policy = config.policy.as_deref().map(|path| policies.compile(path)).transpose();
        let policy = policy.map_err(BindError::Policy)?;
        let shared = Shared { config, cache, backends, node, log, policies, connections, steering, bundles };
        let shared = Arc::new(shared);
        Ok(Self { shared, listeners, admin, rings, log: writer, address, policy })
    }

    /// Returns the address where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the admin interface, if enabled.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns the loaded policies.
    pub fn policies(&self) -> Arc<Policies> {
        self.shared.policies.clone()
    }

    /// Returns a counter that increases when a bundle is activated or refused, or when the bundle
    /// source is lost or regained.
    pub fn bundle_changes(&self) -> watch::Receiver<u64> {
        self.shared.bundles.changes()
    }

    /// Returns a handle to the records of all responses.
    pub fn records(&self) -> Records {
        self.shared.log.records().clone()
    }

    /// Serves until `stop` resolves, then waits up to one second for responses in progress.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread or its runtime cannot be started, or if a worker exits
    /// unexpectedly.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        if let Some(policy) = self.policy {
            activate_first_policy(&self.shared.policies, policy).await.map_err(io::Error::other)?;
        }
        let stopping = watch::Sender::new(false);
        let (end_admin, ended) = oneshot::channel::<()>();
        let admin = self.admin.map(|listener| {
            let surface = admin::router(&self.shared, stopping.subscribe());
            let served = serve(listener, surface, Pages::None, async { drop(ended.await) });
            async {
                if let Err(error) = served.await {
                    tracing::error!(%error, "admin interface failed");
                }
            }
        });
        let cache = self.shared.cache.clone();
        let disk = cache.clone();
        let started = tokio::task::spawn_blocking(move || disk.start_disk(DISK_WAIT_MAX)).await;
        started.unwrap_or_else(|panic| Err(io::Error::other(panic)))?;
        let backends = self.shared.backends.clone();
        let bundles = self.shared.bundles.clone();
        let workers = self.listeners.into_iter().zip(self.rings);
        let threads = Threads::start(self.shared, workers, self.log, stopping)?;
        let admin = admin.map(tokio::spawn);
        let stopped = tokio::select! {
            () = stop => Ok(()),
            () = threads.early_end.notified() => Err(io::Error::other("an edge worker exited unexpectedly")),
            never = backends.close_old() => match never {},
            never = bundles.clone().watch() => match never {},
        };
        let joined = tokio::task::spawn_blocking(move || {
            // Stop saving bundles first, because the log releases the state directory when it
            // exits.
            bundles.end();
            let ended = threads.end();
            cache.stop_disk();
            ended
        })
        .await;
        let ended = joined.unwrap_or_else(|panic| Err(io::Error::other(panic))).and(stopped);
        // The log and all record streams have ended, so only admin connections whose client has
        // stopped reading remain.
        drop(end_admin);
        if let Some(admin) = admin
            && let Err(panic) = admin.await
        {
            tracing::error!(%panic, "admin interface failed");
        }
        ended
    }
}

/// Opens the disk tier. Returns `None` if the disk has failed, so that the edge runs without it,
/// and an error for any other fault, such as a directory in use by another process.
fn open_disk(place: &DiskPlace) -> Result<Option<Disk>, BindError> {
    match Disk::open(&place.directory, place.bytes_max, crate::ban::compile) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if is_fault_of_disk(&error) => {
            let directory = place.directory.display();
            tracing::error!(%directory, %error, "disk failed, running without the disk tier");
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

/// Guard that notifies when dropped, so that a worker's exit is detected even after a panic.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Threads {
    /// Starts all threads, or none if one fails to start.
    fn start(
        shared: Arc<Shared>,
        workers: impl Iterator<Item = (TcpListener, Ring)>,
        log: LogWriter,
        stopping: watch::Sender<bool>,
    ) -> io::Result<Self> {
        let mut threads = Self {
            workers: Vec::new(),
            sweeper: {
                let cache = shared.cache.clone();
                thread::Builder::new().name("edge-sweep".into()).spawn(move || cache.run_sweeps())?
            },
            cache: shared.cache.clone(),
            log: thread::Builder::new().name("edge-log".into()).spawn(|| log.run())?,
            stopping,
            early_end: Arc::default(),
        };
        let mut workers = workers.enumerate();
        while let Some((number, (listener, ring))) = workers.next() {
            let (worker, stop) = (shared.clone(), threads.stopping.subscribe());
            let notify = NotifyOnDrop(threads.early_end.clone());
            let worker = thread::Builder::new().name(format!("edge-{number}")).spawn(move || {
                let _notify = notify;
                let _ring = ring.enter();
                accept::run(worker, number, listener, stop)
            });
            match worker {
                Ok(worker) => threads.workers.push(worker),
                Err(error) => {
                    // No worker is serving yet, so the other threads exit immediately.
                    drop((shared, workers));
                    let _ = threads.end();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    /// Stops all threads.
    ///
    /// # Errors
    ///
    /// Returns the first error returned by a worker.
    fn end(self) -> io::Result<()> {
        self.stopping.send_replace(true);
        let mut ended = Ok(());
        for worker in self.workers {
            let panicked = |_| Err(io::Error::other("an edge worker panicked"));
            ended = ended.and(worker.join().unwrap_or_else(panicked));
        }
        self.cache.end_sweeps();
        let _ = self.sweeper.join();
        // The log writer exits once no worker can write to the log.
        let _ = self.log.join();
        ended
    }
}

/// Turns off slow start after idle. Only logs a failure, because this is an optimisation.
fn end_slow_start_after_idle() {
    if !matches!(sysctl::slow_start_after_idle(), Ok(false))
        && let Err(error) = sysctl::set_slow_start_after_idle(false)
    {
        tracing::warn!(%error, "tcp_slow_start_after_idle is not off: cannot write net.ipv4.tcp_slow_start_after_idle");
    }
}

/// Creates one listener per worker on the same port, among which the kernel distributes
/// connections. Accepted sockets inherit the listener's limit on unsent bytes.
fn listen(address: SocketAddr, count: usize, notsent_lowat: Option<u32>) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT, the edge could unknowingly share the port with another process, so first
    // bind without it.
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

/// Activates the initial policy.
async fn activate_first_policy(policies: &Policies, policy: Compiled) -> Result<(), LoadError> {
    let warnings = policies.add(FIRST_POLICY, policy, true).await?;
    for warning in warnings.faults {
        tracing::warn!(warning = warning.message, place = %warning.place, help = warning.help, "policy");
    }
    Ok(())
}
