//! A worker: one thread, its runtime, its listener on the shared port, and its connections, which never move.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use thalweg_cache::{Cache, Failure};
use tokio::sync::{Notify, watch};

use crate::backend::{Backends, Connection, Pool, Route, Wanted};
use crate::bundle::Bundles;
use crate::config::{Config, Timeouts};
use crate::connection;
use crate::exchange::Exchange;
use crate::hops::Node;
use crate::log::{Begun, Log};
use crate::policy::Policies;
use crate::steering;

/// How long responses may take to end once the edge is to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);
/// After a failed accept, such as for want of file descriptors: trying on at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) cache: Arc<Cache>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) node: Node,
    pub(crate) log: Log,
    pub(crate) policies: Arc<Policies>,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) steering: Arc<steering::Common>,
    pub(crate) bundles: Arc<Bundles>,
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    number: usize,
    pool: Pool,
    busy: AtomicUsize,
    idle: Notify,
    stopping: AtomicBool,
}

impl Worker {
    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.shared.config.timeouts
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.shared.cache
    }

    pub(crate) fn node(&self) -> &Node {
        &self.shared.node
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.shared.policies
    }

    pub(crate) fn steering(&self) -> &steering::Common {
        &self.shared.steering
    }

    pub(crate) fn bundles(&self) -> &Bundles {
        &self.shared.bundles
    }

    pub(crate) fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Counts a response that begins here.
    pub(crate) fn begin(&self) -> Begun {
        self.log().begin(self.number)
    }

    /// Whether requests for `host` are served here.
    pub(crate) fn serves(&self, host: &str) -> bool {
        let hosts = &self.shared.config.hosts;
        hosts.is_empty() || hosts.iter().any(|served| served.eq_ignore_ascii_case(host))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Runs a task on this worker's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    /// A connection to a backend.
    pub(crate) async fn connect(&self, route: &Route, wanted: Wanted) -> Result<Connection, Failure> {
        Ok(self.pool.take(&self.shared.backends, route, wanted).await?)
    }

    /// Keeps the connection of an exchange for the next one, if it can carry it.
    pub(crate) fn finish(&self, exchange: Exchange) {
        if let Some(connection) = exchange.finish() {
            self.pool.put(connection);
        }
    }

    /// Marks a response as under way for as long as the guard lives.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    /// Runs as the worker of this number until `stop` says so, then until the responses under way have ended, or time is up.
    pub(crate) fn run(
        shared: Arc<Shared>,
        number: usize,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let pool = Pool::new(number, shared.config.backend_connections_max);
            let worker = Arc::new(Self {
                shared,
                number,
                pool,
                busy: AtomicUsize::new(0),
                idle: Notify::new(),
                stopping: AtomicBool::new(false),
            });
            tokio::select! {
                () = worker.accept(&listener) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            worker.stopping.store(true, Relaxed);
            if worker.busy.load(Relaxed) > 0 {
                let _ = tokio::time::timeout(STOP_TIME_MAX, worker.idle.notified()).await;
            }
            Ok(())
        });
        // Nobody waits for a name any more that is still being looked up.
        runtime.shutdown_background();
        ended
    }

    async fn accept(self: &Arc<Self>, listener: &tokio::net::TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.take(stream, client),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(self: &Arc<Self>, stream: tokio::net::TcpStream, client: SocketAddr) {
        let open = Open::new(&self.shared);
        if self.shared.connections.load(Relaxed) > self.config().connections_max {
            tracing::warn!(%client, limit = self.config().connections_max, "too many connections");
            return;
        }
        let worker = self.clone();
        self.spawn(async move {
            connection::serve(worker, stream, client).await;
            drop(open);
        });
    }
}

/// A connection that is counted.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// A response under way.
pub(crate) struct Busy(Arc<Worker>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Relaxed) == 1 && self.0.is_stopping() {
            self.0.idle.notify_one();
        }
    }
}
