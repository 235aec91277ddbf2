//! Telemetry agent: starts and stops the collector, intake, spool and sinks. The collector, the
//! batcher and each sink run on their own threads. All files and sockets are opened before the
//! first thread starts.
//!
//! **Invariant:** if a thread exits before the agent is stopped, the agent's owner is notified
//! immediately.
//! **Invariant:** when [`Running::stop`] returns, everything collected before the call is in the
//! spool.

mod figures;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_record::EdgePosition;
use thalweg_tcp::diag::Filter;
use tokio::sync::Notify;

use crate::clock::unix_us;
use crate::collect::{Batcher, Collector, Intake, Namespace, SocketsConfig, Stop, intake};
use crate::enrich::Networks;
use crate::error::Error;
use crate::runner::{NotifyOnDrop, Runner};
use crate::sink::Sink;
use crate::spool::{Limits, Spool};

pub use figures::Figures;

/// Maximum time for sinks to drain the spool when the agent stops. Records not drained by then stay
/// in the spool until the next start.
const DRAIN_MAX: Duration = Duration::from_millis(1000);

/// Maximum time for sink threads to exit after draining, and the interval at which they are polled.
const JOIN_MAX: Duration = Duration::from_millis(200);
const JOIN_STEP: Duration = Duration::from_millis(5);

/// Agent configuration.
#[derive(Debug)]
pub struct Config {
    /// Host name recorded with each sample.
    pub host: String,
    /// Name of the host's site; empty if not configured.
    pub pop: String,
    /// Interval between socket dumps.
    pub period: Duration,
    /// Filter that selects the sockets to collect.
    pub filter: Filter,
    /// Sampling rate: one in this many matching sockets is collected.
    pub one_in: NonZeroU32,
    /// Network namespaces to collect from; if empty, only the agent's own namespace.
    pub namespaces: Vec<Namespace>,
    /// Paths of the MaxMind databases.
    pub geoip: Vec<PathBuf>,
    /// Path of the CSV file of client networks.
    pub networks: Option<PathBuf>,
    /// Spool directory.
    pub spool: PathBuf,
    /// Maximum spool size in bytes.
    pub spool_bytes_max: u64,
}

/// An agent with all files and sockets open but no thread started.
#[derive(Debug)]
pub struct Agent {
    intake: Intake,
    batcher: Batcher,
    spool: Arc<Spool>,
    collector: Collector,
    stop: Stop,
}

/// A running agent.
#[derive(Debug)]
pub struct Running {
    intake: Intake,
    spool: Arc<Spool>,
    stop: Stop,
    collecting: JoinHandle<()>,
    batching: JoinHandle<()>,
    runners: Vec<Runner>,
    figures: Figures,
    early_end: Arc<Notify>,
}

impl Agent {
    /// Opens the network files, the namespaces and the spool.
    ///
    /// # Errors
    ///
    /// Returns an error if any of them cannot be opened.
    pub fn open(config: Config) -> Result<Self, Error> {
        let networks = Networks::open(&config.geoip, config.networks.as_deref())
            .map_err(|cause| Error::of("cannot load client networks", cause))?;
        let limits = Limits { total_bytes: config.spool_bytes_max };
        let spool = Spool::open(&config.spool, limits, &config.host, &config.pop)?;
        let (intake, batcher) = intake(networks);
        let sockets = SocketsConfig {
            host: config.host,
            period: config.period,
            filter: config.filter,
            one_in: config.one_in,
            places: config.namespaces,
        };
        let (collector, stop) = Collector::open(sockets, intake.clone(), spool.saved_sockets())
            .map_err(|cause| Error::of("cannot collect sockets", cause))?;
        Ok(Self { intake, batcher, spool, collector, stop })
    }

    /// Starts collecting records and delivering them to `sinks`.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool cannot create a reader for a sink, or the system cannot start
    /// a thread.
    pub fn start(self, sinks: Vec<Box<dyn Sink>>) -> Result<Running, Error> {
        let Self { intake, batcher, spool, collector, stop } = self;
        let early_end = Arc::new(Notify::new());
        let runners = Runner::start_all(&spool, sinks, &early_end)?;
        let figures = Figures {
            collector: collector.figures(),
            sinks: runners.iter().map(|runner| runner.state().clone()).collect(),
            spool: spool.clone(),
        };
        let into = spool.clone();
        let append = move |arrivals, sockets: Option<Vec<u8>>| {
            into.append(arrivals, unix_us());
            if let Some(sockets) = sockets {
                into.save_sockets(&sockets);
            }
        };
        let batching = spawn("telemetry-batch", &early_end, move || batcher.run(append))?;
        let collecting = spawn("telemetry-socks", &early_end, move || collector.run())?;
        Ok(Running { intake, spool, stop, collecting, batching, runners, figures, early_end })
    }
}

impl Running {
    /// Returns the intake, the queue for response records.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// Returns the position stored in the spool for each of `edges`. Deletes the positions of all
    /// other edges.
    pub fn edge_positions(&self, edges: &[Arc<str>]) -> Vec<Option<EdgePosition>> {
        self.spool.edge_positions(edges)
    }

    /// Waits until an agent thread exits. Before [`stop`](Self::stop) is called, this means that a
    /// thread panicked.
    pub async fn early_end(&self) {
        self.early_end.notified().await;
    }

    /// Returns the agent's metrics. Their values are read at each scrape.
    pub fn figures(&self) -> Figures {
        self.figures.clone()
    }

    /// Stops the agent: makes a final dump, moves all queued records into the spool, and gives the
    /// sinks up to [`DRAIN_MAX`] to drain the spool.
    pub fn stop(self) {
        self.stop.stop();
        join(self.collecting);
        self.intake.end();
        join(self.batching);
        self.spool.close(DRAIN_MAX);
        // A sink may be blocked in a long call. Its thread is then abandoned, with the same outcome
        // as a crash.
        let over = Instant::now() + DRAIN_MAX + JOIN_MAX;
        while self.runners.iter().any(Runner::is_running) && Instant::now() < over {
            thread::sleep(JOIN_STEP);
        }
    }
}

fn spawn(
    name: &'static str,
    early_end: &Arc<Notify>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let notify_on_drop = NotifyOnDrop(early_end.clone());
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _notify_on_drop = notify_on_drop;
            run();
        })
        .map_err(|cause| Error::of(format!("cannot start thread {name}"), cause))
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "agent thread panicked");
    }
}

#[cfg(test)]
mod tests {
    use thalweg_record::{Batch, Source};

    use super::*;
    use crate::error::SinkError;
    use crate::testing::Dir;

    struct Panics;

    impl Sink for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
            panic!("intended")
        }

        fn store(&mut self, _: &Batch) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn panicking_thread_is_reported_at_once() {
        let dir = Dir::absent("agent-panics");
        let config = Config {
            host: "a".to_owned(),
            pop: String::new(),
            period: Duration::from_secs(3600),
            filter: Filter::default(),
            one_in: NonZeroU32::MIN,
            namespaces: Vec::new(),
            geoip: Vec::new(),
            networks: None,
            spool: dir.0.clone(),
            spool_bytes_max: 1 << 20,
        };
        let running = Agent::open(config).unwrap().start(vec![Box::new(Panics)]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = async { tokio::time::timeout(Duration::from_secs(60), running.early_end()).await };
        runtime.block_on(ended).unwrap();
        running.stop();
    }
}
