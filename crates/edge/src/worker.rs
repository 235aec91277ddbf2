//! Worker: state shared by the sessions and fetches of one thread. It consists of the edge's shared
//! state, a pool of backend connections, and the number of responses in progress.
//! [`accept`](crate::accept) runs the thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use thalweg_cache::{Cache, Failure};
use tokio::sync::Notify;

use crate::backend::{Backends, Connection, Pool, Route, Wanted};
use crate::bundle::Bundles;
use crate::config::{Config, Timeouts};
use crate::hops::Node;
use crate::log::{Log, StartedResponse};
use crate::policy::Policies;
use crate::steering;

/// Maximum time for responses in progress to finish once the edge stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// State shared by all workers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) cache: Arc<Cache>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) node: Node,
    pub(crate) log: Log,
    pub(crate) policies: Arc<Policies>,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) steering: Arc<steering::SharedSteering>,
    pub(crate) bundles: Arc<Bundles>,
}

/// State of one worker.
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
    /// Creates worker `number`.
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        let pool = Pool::new(number, shared.config.backend_connections_max);
        Self {
            shared,
            number,
            pool,
            busy: AtomicUsize::new(0),
            idle: Notify::new(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

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

    pub(crate) fn steering(&self) -> &steering::SharedSteering {
        &self.shared.steering
    }

    pub(crate) fn bundles(&self) -> &Bundles {
        &self.shared.bundles
    }

    pub(crate) fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Counts a response to `client` that starts on this worker.
    pub(crate) fn begin(&self, client: IpAddr) -> StartedResponse {
        self.log().begin(self.number, client)
    }

    /// Returns whether this edge serves `host`.
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

    /// Takes a backend connection from the pool, or opens one.
    pub(crate) async fn connect(&self, route: &Route, wanted: Wanted) -> Result<Connection, Failure> {
        Ok(self.pool.take(&self.shared.backends, route, wanted).await?)
    }

    /// Returns a reusable connection to the pool after an exchange.
    pub(crate) fn keep_connection(&self, connection: Option<Connection>) {
        if let Some(connection) = connection {
            self.pool.put(connection);
        }
    }

    /// Counts a response in progress until the returned guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    /// Stops accepting requests on open connections, and waits up to [`STOP_TIME_MAX`] for
    /// responses in progress.
    pub(crate) async fn stop(&self) {
        self.stopping.store(true, Relaxed);
        if self.busy.load(Relaxed) > 0 {
            let _ = tokio::time::timeout(STOP_TIME_MAX, self.idle.notified()).await;
        }
    }
}

/// Guard that counts a response in progress.
pub(crate) struct Busy(Arc<Worker>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Relaxed) == 1 && self.0.is_stopping() {
            self.0.idle.notify_one();
        }
    }
}
