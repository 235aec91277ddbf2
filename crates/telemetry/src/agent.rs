//! The agent: the collector, the intake, the spool and its sinks, each on a thread of its own, begun and ended together. What it
//! needs is opened first.
//!
//! **Invariant:** a thread that ends before the agent was told to is told of at once.
//! **Invariant:** what was collected before the agent is told to end is in the spool when it has ended.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_record::Heard;
use thalweg_tcp::diag::Filter;
use tokio::sync::Notify;

use crate::clock::unix_us;
use crate::collect::{Batcher, Collector, CollectorFigures, Intake, Place, SocketsConfig, Stop, intake};
use crate::enrich::Networks;
use crate::runner::{Runner, SinkState};
use crate::spool::{Limits, Spool};
use crate::{Error, Sink};

/// How long sinks may go on with what is in the spool once the agent ends; the rest waits there for the next start.
const DRAIN_MAX: Duration = Duration::from_millis(1000);

/// How long the threads of sinks may take to end after that, and how often it is looked.
const JOIN_MAX: Duration = Duration::from_millis(200);
const JOIN_STEP: Duration = Duration::from_millis(5);

/// What an agent does.
#[derive(Debug)]
pub struct Config {
    /// The machine's name.
    pub host: String,
    /// The site's name; empty if it has none.
    pub pop: String,
    /// Between dumps.
    pub period: Duration,
    /// The sockets that are wanted.
    pub filter: Filter,
    /// Of those, one in so many.
    pub one_in: NonZeroU32,
    /// The network namespaces; the process's own if there is none.
    pub namespaces: Vec<Place>,
    /// MaxMind databases.
    pub geoip: Vec<PathBuf>,
    /// A CSV of networks.
    pub networks: Option<PathBuf>,
    /// The spool's directory.
    pub spool: PathBuf,
    /// How much may wait there.
    pub spool_bytes_max: u64,
}

/// An agent with everything open that it needs, not begun.
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

/// Tells that a thread has ended, however it did.
pub(crate) struct TellsEnd(pub(crate) Arc<Notify>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// How an agent is, for metrics.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The collector's.
    pub collector: Arc<CollectorFigures>,
    /// Each sink's.
    pub sinks: Vec<Arc<SinkState>>,
    /// The spool.
    pub spool: Arc<Spool>,
}

impl Agent {
    /// Opens the files, the namespaces and the spool.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn open(config: Config) -> Result<Self, Error> {
        let networks = Networks::open(&config.geoip, config.networks.as_deref())
            .map_err(|cause| Error::of("cannot say where clients are", cause))?;
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

    /// Begins to collect; records go to `sinks`.
    ///
    /// # Errors
    /// When the spool has no reader for a sink, or the system no thread.
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
    /// Where responses go in.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// How far each of these edges has been heard, by the spool; what it knows of others is forgotten.
    pub fn heard(&self, edges: &[Arc<str>]) -> Vec<Option<Heard>> {
        self.spool.heard(edges)
    }

    /// Resolves when a thread of the agent ends: before it was told to stop, that is a panic.
    pub async fn early_end(&self) {
        self.early_end.notified().await;
    }

    /// How it is, also later.
    pub fn figures(&self) -> Figures {
        self.figures.clone()
    }

    /// Ends it: a last dump, everything into the spool, and what the sinks can take of that in a moment.
    pub fn stop(self) {
        self.stop.stop();
        join(self.collecting);
        self.intake.end();
        join(self.batching);
        self.spool.close(DRAIN_MAX);
        // A sink may be within a call that takes long: it is left there, as by a kill.
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
    let tells_end = TellsEnd(early_end.clone());
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _tells_end = tells_end;
            run();
        })
        .map_err(|cause| Error::of(format!("cannot start the thread {name}"), cause))
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "a thread of the agent panicked");
    }
}

#[cfg(test)]
mod tests {
    use thalweg_record::{Batch, Source};

    use super::*;
    use crate::SinkError;
    use crate::testing::Dir;

    struct Panics;

    impl Sink for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
            panic!("as it is to")
        }

        fn keep(&mut self, _: &Batch) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn a_thread_that_panics_is_told_of_at_once() {
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
        let told = async { tokio::time::timeout(Duration::from_secs(60), running.early_end()).await };
        runtime.block_on(told).unwrap();
        running.stop();
    }
}
