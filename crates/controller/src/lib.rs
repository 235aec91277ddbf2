//! Controller service: receives records, decides each PoP's windows, and distributes bundles to
//! edges.
//!
//! ```text
//! agents ── POST /records ──→ engine (one thread): Collector → window → Pop: decide, Rollout
//! agents ── Kafka ──────────→                        │
//!                                                    ├→ Store → View ──→ console, explain
//! edges ─── GET /bundle ────→                        └→ each edge's bundle ──→ edges
//! ```
//!
//! The decisions are made by `thalweg-control`, which performs no I/O. This crate adds the clock,
//! the database and the network.
//!
//! **Invariant:** a bundle is stored before any edge gets it, so a restart never reuses its number.
//! **Invariant:** if an identities file is configured, each request except a health check is made
//! by the owner of a token or certificate, and is limited to what the file allows this owner.
//! Otherwise, the controller listens on loopback only.
//! **Invariant:** the engine never waits for a client. Its queues are bounded, and senders wait
//! while they are full.

mod access;
mod config;
mod content;
mod document;
mod engine;
mod inspect;
mod intake;
mod metrics;
mod pop;
mod positions;
mod round;
mod server;
mod sites;
mod store;
mod topic;

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use thalweg_kafka::Follower;
use thalweg_surface::{Listener, Pages, ServerTls, serve};
use tokio::sync::oneshot;

use access::Access;
pub use access::{Limits, create_token, is_loopback};
pub use config::{BindError, Config, Tls};
use engine::Engine;
use server::Server;
pub use store::{ROUNDS_KEPT, StoreError};

/// A controller with all its resources open, ready to run.
#[derive(Debug)]
pub struct Controller {
    listener: Listener,
    addr: SocketAddr,
    engine: Engine,
    follower: Option<Follower>,
    server: Server,
}

impl Controller {
    /// Opens the listener, the database and Kafka as configured.
    ///
    /// # Errors
    ///
    /// Returns an error if the listener, the database or Kafka cannot be used as configured.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        if config.identities.is_none() && !is_loopback(config.listen) {
            return Err(BindError::Unprotected(config.listen));
        }
        let failed = |cause| BindError::Listen(config.listen, cause);
        let tcp = TcpListener::bind(config.listen).map_err(failed)?;
        let addr = tcp.local_addr().map_err(failed)?;
        let (engine, handle) = Engine::open(config).map_err(BindError::Store)?;
        let follower = config.kafka.as_ref().map(Follower::open).transpose().map_err(BindError::Kafka)?;
        let metrics = &handle.shared.metrics;
        let open = |Tls { pair, client_ca }: &Tls| {
            let failed = metrics.tls_handshakes_failed.clone();
            ServerTls::open(pair.clone(), client_ca.clone(), failed)
        };
        let tls = config.tls.as_ref().map(open).transpose().map_err(BindError::Tls)?;
        let listener = Listener { tcp, tls };
        let has_client_ca = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let access = Access::open(config.identities.as_deref(), has_client_ca, &config.limits, metrics);
        let access = Arc::new(access.map_err(BindError::Identities)?);
        let server = Server::new(handle, access, config);
        Ok(Self { listener, addr, engine, follower, server })
    }

    /// Returns the address on which the controller listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the read-only routes, for the console in the same process.
    pub fn inspection_routes(&self) -> Router {
        self.server.inspection_routes()
    }

    /// Serves until `stop` resolves.
    ///
    /// # Errors
    ///
    /// Returns an error if the listener fails, or if a thread exits unexpectedly.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { listener, engine, follower, server, .. } = self;
        let (ended, end) = oneshot::channel::<()>();
        std::thread::Builder::new().name("controller".into()).spawn(move || {
            let _ended = ended; // dropped on panic, too
            engine.run();
        })?;
        let (read, read_end) = oneshot::channel::<()>();
        let mut read = Some(read); // stays open if Kafka is not configured
        if let Some(follower) = follower {
            // The thread exits with the engine and does not keep it alive.
            let (read_topic, ended) = (server.kafka_reader(follower), read.take());
            std::thread::Builder::new().name("controller-kafka".into()).spawn(move || {
                let _ended = ended;
                read_topic();
            })?;
        }
        tokio::select! {
            served = serve(listener, server.router(), Pages::None, pending()) => served,
            () = server.access.clone().watch() => Err(io::Error::other("identities watcher ended unexpectedly")),
            _ = end => Err(io::Error::other("controller engine thread ended unexpectedly")),
            _ = read_end => Err(io::Error::other("controller Kafka thread ended unexpectedly")),
            () = stop => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use thalweg_control::Settings;
    use thalweg_kafka::Cluster;

    use super::*;

    /// Time limit that exceeds the duration of the test on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn stopped_controller_releases_its_file() {
        let directory = std::env::temp_dir().join(format!("thalweg-controller-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // Threads that query Kafka outlive the test for a while. No broker has to exist.
        let kafka =
            Cluster { brokers: "127.0.0.1:1".into(), topic: "records".into(), properties: Vec::new() };
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            kafka: Some(kafka),
            database: directory.join("control.sqlite"),
            settings: Settings::default(),
            tls: None,
            identities: None,
            limits: Limits::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let controller = Controller::bind(&config).unwrap();
        assert!(Controller::bind(&config).is_err(), "the file is in use");
        runtime.block_on(controller.run(async {})).unwrap();
        let started = Instant::now();
        while let Err(error) = Controller::bind(&config) {
            assert!(started.elapsed() < PATIENCE, "still running: {error}");
            // The engine stops on another thread, so poll until the file is free.
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
