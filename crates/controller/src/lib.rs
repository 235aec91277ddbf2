//! The controller as a service: records come in, windows of each PoP are decided, bundles go out to edges.
//!
//! ```text
//! agents ── POST /records ──→ engine (one thread): Collector → window → Pop: decide, Rollout → Store → View ──→ console, explain
//! edges ─── GET /bundle ────→                                    └ who is to have which bundle ──────────────→ edges
//! agents ── Kafka ──────────→ the same, where bundles go over a topic (publish)
//! ```
//!
//! What decides is `thalweg-control`, which is pure; here are its clock, its file and its sockets.
//!
//! **Invariant:** an edge never hears of a bundle that a restart forgets, so no number stands for two.
//! **Invariant:** the engine waits for nobody: all that others wait for is bounded, and who sends more waits.

pub mod carried;
mod document;
mod engine;
mod figures;
mod look;
mod pop;
mod publish;
mod round;
mod server;
mod store;
mod topic;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use axum::Router;
use thalweg_control::Settings;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::tail::Tail;
use tokio::sync::oneshot;

use engine::Engine;
use publish::Carrier;
use server::Server;
pub use store::{ROUNDS_KEPT, StoreError};

/// What a controller goes by.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where agents, edges and people connect.
    pub listen: SocketAddr,
    /// Where records are read from, beside those that agents bring.
    pub kafka: Option<Cluster>,
    /// The compacted topic over which bundles go, beside HTTP.
    pub kafka_bundles: Option<Cluster>,
    /// The SQLite file in which it keeps what it knows.
    pub database: PathBuf,
    /// How it decides.
    pub settings: Settings,
}

/// Why a controller does not begin.
#[derive(Debug)]
pub enum BindError {
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The file cannot be used.
    Store(StoreError),
    /// Kafka cannot be read as configured.
    Kafka(thalweg_telemetry::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(addr, cause) => write!(f, "cannot listen on {addr}: {cause}"),
            Self::Store(error) => error.fmt(f),
            Self::Kafka(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kafka(error) => error.source(),
            Self::Listen(..) | Self::Store(_) => None,
        }
    }
}

/// A controller with everything open that it needs, not begun.
#[derive(Debug)]
pub struct Controller {
    listener: TcpListener,
    addr: SocketAddr,
    engine: Engine,
    tail: Option<Tail>,
    carrier: Option<Carrier>,
    server: Server,
}

impl Controller {
    /// Opens what the config names.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let failed = |cause| BindError::Listen(config.listen, cause);
        let listener = TcpListener::bind(config.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let (engine, handle) = Engine::open(config).map_err(BindError::Store)?;
        let tail = config.kafka.as_ref().map(Tail::open).transpose().map_err(BindError::Kafka)?;
        let carrier =
            config.kafka_bundles.as_ref().map(Carrier::open).transpose().map_err(BindError::Kafka)?;
        let server = Server::new(handle, config);
        Ok(Self { listener, addr, engine, tail, carrier, server })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// What people may ask of it, for the console of the same process.
    pub fn looks(&self) -> Router {
        self.server.looks()
    }

    /// Serves until `stop` resolves.
    ///
    /// # Errors
    /// That of the listener, or when a thread ends by itself.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { listener, engine, tail, carrier, server, .. } = self;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (ended, end) = oneshot::channel::<()>();
        std::thread::Builder::new().name("controller".into()).spawn(move || {
            let _ended = ended; // dropped also by a panic
            engine.run();
        })?;
        let (read, read_end) = oneshot::channel::<()>();
        let mut read = Some(read); // kept where nothing is read
        if let Some(tail) = tail {
            // It ends with the engine, as what carries bundles does: neither keeps it going.
            let (reads, ended) = (server.reads(tail), read.take());
            std::thread::Builder::new().name("controller-kafka".into()).spawn(move || {
                let _ended = ended;
                reads();
            })?;
        }
        let (carried, carried_end) = oneshot::channel::<()>();
        let mut carried = Some(carried); // likewise
        if let Some(carrier) = carrier {
            let handle = server.handle();
            let ended = carried.take();
            std::thread::Builder::new().name("controller-bundles".into()).spawn(move || {
                let _ended = ended;
                carrier.run(handle);
            })?;
        }
        tokio::select! {
            served = axum::serve(listener, server.router()) => served,
            _ = end => Err(io::Error::other("its thread has ended")),
            _ = read_end => Err(io::Error::other("the thread that reads Kafka has ended")),
            _ = carried_end => Err(io::Error::other("the thread that carries bundles over Kafka has ended")),
            () = stop => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use super::*;

    /// Longer than it takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn who_has_stopped_decides_nothing_any_more() {
        let directory = std::env::temp_dir().join(format!("thalweg-controller-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // Threads that ask brokers are about it for a while; where they are does not matter.
        let topic = |topic: &str| {
            Some(Cluster { brokers: "127.0.0.1:1".into(), topic: topic.into(), properties: Vec::new() })
        };
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            kafka: topic("records"),
            kafka_bundles: topic("bundles"),
            database: directory.join("control.sqlite"),
            settings: Settings::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let controller = Controller::bind(&config).unwrap();
        assert!(Controller::bind(&config).is_err(), "the file is in use");
        runtime.block_on(controller.run(async {})).unwrap();
        let begun = Instant::now();
        while let Err(error) = Controller::bind(&config) {
            assert!(begun.elapsed() < PATIENCE, "it goes on: {error}");
            std::thread::sleep(Duration::from_millis(20)); // another thread ends: only asking tells
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
