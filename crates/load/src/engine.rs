//! Load engine: runs the clients on several threads, each with its own runtime and its share of the
//! clients.
//!
//! **Invariant:** no request starts after time is up. Requests still in flight are aborted
//! immediately, but are counted.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use hdrhistogram::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::client::{Client, Plan, Starter};
use super::connection::{Connection, Server, Timeouts};
use super::figures::{Figures, Model, Period, Run, Time};
use super::pacer::Pacer;
use super::recorder::{Clock, Recorder, micros};
use super::resources::{cpu_us, raise_files};
use super::schedule::{Population, Rate};
use super::script::Script;
use super::script::client::ScriptedClient;
use super::sources::Sources;
use super::target::Target;
use crate::viewer::crowd::{self, CrowdPlan};

/// Interval between snapshots of a running load.
pub const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);

/// What the clients do.
#[derive(Debug, Clone)]
pub enum Clients {
    /// Clients that send one request after another.
    Requests(Plan),
    /// Clients that send a script's requests to the first target's server.
    Scripted(Plan, Arc<Script>),
    /// Clients that watch a presentation.
    Viewers(CrowdPlan),
}

impl Clients {
    /// Returns the targets.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => &plan.targets,
            Self::Viewers(plan) => &plan.targets,
        }
    }

    fn sources(&self) -> &Sources {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => &plan.sources,
            Self::Viewers(plan) => &plan.sources,
        }
    }

    fn timeouts(&self) -> Timeouts {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => plan.timeouts,
            Self::Viewers(plan) => plan.timeouts,
        }
    }
}

/// A load to run.
#[derive(Debug, Clone)]
pub struct Load {
    /// What the clients do.
    pub clients: Clients,
    /// Start times of the clients.
    pub population: Population,
    /// Rate at which requests are due (open model). If `None`, each client sends its next request
    /// when the previous one has completed (closed model).
    pub rate: Option<Rate>,
    /// Duration of the run, including the warm-up; if `None`, the run ends after `requests`.
    pub duration: Option<Duration>,
    /// Maximum number of requests, or `None` if unlimited.
    pub requests: Option<u64>,
    /// Duration of the warm-up. Requests that start during it are not counted.
    pub warm_up: Duration,
    /// Number of threads, at most the number of clients.
    pub threads: usize,
    /// Command line to record with the figures.
    pub arguments: Vec<String>,
}

/// A snapshot of a running load.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Time since the start.
    pub elapsed: Duration,
    /// Whether the warm-up is over.
    pub is_counted: bool,
    /// Time since the last snapshot or the end of the warm-up, whichever is later.
    pub span: Duration,
    /// All figures so far.
    pub figures: &'a Figures,
    /// Figures at the last snapshot.
    pub before: &'a Figures,
}

impl Snapshot<'_> {
    /// Returns the growth of `count` per second since the last snapshot. `count` must never
    /// decrease.
    pub fn per_s(&self, count: impl Fn(&Figures) -> u64) -> f64 {
        let (happened, span_s) = (count(self.figures) - count(self.before), self.span.as_secs_f64());
        if span_s > 0.0 { happened as f64 / span_s } else { 0.0 }
    }

    /// Returns the times of one kind recorded since the last snapshot, if any.
    pub fn since(&self, time: Time) -> Option<Histogram<u64>> {
        let mut since = self.figures.time(time)?.clone();
        if let Some(before) = self.before.time(time) {
            since.subtract(before).expect("counts only grow");
        }
        (!since.is_empty()).then_some(since)
    }
}

/// Runs a load until it finishes or `interrupted` completes. Calls `observe` every second.
///
/// # Errors
///
/// Returns an error if a server is unreachable, if the system cannot provide a thread or a timer,
/// or if the run is interrupted before it starts.
pub async fn run(
    load: &Load,
    interrupted: impl Future<Output = ()>,
    observe: impl FnMut(&Snapshot<'_>),
) -> anyhow::Result<Figures> {
    raise_files(load.population.clients().saturating_mul(servers(load).len()))?;
    let mut interrupted = pin!(interrupted);
    tokio::select! {
        probed = probe(load) => probed?,
        () = &mut interrupted => bail!("interrupted before the run started"),
    }
    Running::start(load)?.attend(interrupted, observe).await
}

/// Checks that all servers accept connections and are trusted.
async fn probe(load: &Load) -> anyhow::Result<()> {
    if let Clients::Viewers(plan) = &load.clients {
        return crowd::probe(plan).await;
    }
    for server in servers(load) {
        Connection::open(server, load.clients.sources().of(0), load.clients.timeouts()).await?;
    }
    Ok(())
}

/// Returns the servers to which a client may connect.
fn servers(load: &Load) -> Vec<&Server> {
    let mut servers: Vec<&Server> = Vec::new();
    for target in load.clients.targets() {
        if !servers.contains(&&target.server) {
            servers.push(&target.server);
        }
    }
    servers
}

/// A load run in progress. Dropping it stops its clients.
#[derive(Debug)]
pub struct Running {
    load: Load,
    clock: Clock,
    /// End of the warm-up.
    from: Instant,
    run: u64,
    /// One recorder per thread.
    recorders: Vec<Recorder>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
    starter: Starter,
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

impl Running {
    /// Starts a load. Its threads run in the caller's namespaces.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot provide a thread or a timer. The limit on open files
    /// is not checked here; see [`raise_files`].
    pub fn start(load: &Load) -> anyhow::Result<Self> {
        let count = load.population.clients();
        let workers = load.threads.clamp(1, count);
        let clients = Arc::new(load.clients.clone());
        let budget = load.requests.map(|requests| Arc::new(AtomicU64::new(requests)));
        let clock = Clock::start();
        let (from, run) = (clock.began + load.warm_up, rand::random());
        let (stop, stopped) = watch::channel(false);
        // Nothing is sent on this channel. It closes when the last thread drops its sender.
        let (ending, ended) = mpsc::channel(1);
        let pacer = load
            .rate
            .map(|rate| Arc::new(Pacer::new(rate, clock.began, (load.requests.unwrap_or(u64::MAX), count))));
        if let Some(pacer) = pacer.clone() {
            spawn("pacer".to_owned(), move || pacer.run())?;
        }
        let starter = Starter { budget, pacer };
        let (mut recorders, mut threads) = (Vec::new(), Vec::new());
        for index in 0..workers {
            let recorder = Recorder::new(clock, from, run);
            let work_share = ThreadWork {
                thread: index,
                starts: load.population.starts().enumerate().skip(index).step_by(workers).collect(),
                of: count,
                clients: Arc::clone(&clients),
                starter: starter.clone(),
                recorder: recorder.clone(),
            };
            let (stopped, ending) = (stopped.clone(), ending.clone());
            let work = move || {
                let done = work_share.work(stopped);
                drop(ending);
                done
            };
            recorders.push(recorder);
            threads.push(spawn(format!("load-{index}"), work)?);
        }
        let load = load.clone();
        Ok(Self { load, clock, from, run, recorders, threads, starter, stop, ended })
    }

    /// Returns the time at which the run must stop, or `None` without a time limit.
    pub fn end(&self) -> Option<Instant> {
        self.load.duration.map(|duration| self.clock.began + duration)
    }

    async fn attend(
        mut self,
        mut interrupted: Pin<&mut impl Future<Output = ()>>,
        mut observe: impl FnMut(&Snapshot<'_>),
    ) -> anyhow::Result<Figures> {
        let mut ticks = interval_at((self.clock.began + SNAPSHOT_EVERY).into(), SNAPSHOT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = self.end();
        let mut cpu_before = None;
        let (mut before, mut snapshot_at) = (Figures::default(), self.from);
        loop {
            tokio::select! {
                () = sleep_until(self.from.into()), if cpu_before.is_none() => cpu_before = Some(cpu_us()),
                () = sleep_until(end.unwrap_or(self.from).into()), if end.is_some() => break,
                _ = self.ended.recv() => break,
                () = &mut interrupted => break,
                _ = ticks.tick() => {
                    let (figures, now) = (self.figures(), Instant::now());
                    observe(&Snapshot {
                        elapsed: now - self.clock.began,
                        is_counted: now > self.from,
                        span: now.saturating_duration_since(snapshot_at),
                        figures: &figures,
                        before: &before,
                    });
                    (before, snapshot_at) = (figures, now.max(self.from));
                }
            }
        }
        let cpu_us = cpu_before.map_or(0, |before| cpu_us() - before);
        let figures = self.finish()?;
        Ok(Figures { cpu_us, ..figures })
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for recorder in &self.recorders {
            // Hold the lock only while copying, because clients block on it.
            let of_thread = recorder.figures().clone();
            figures.merge(&of_thread);
        }
        figures
    }

    /// Stops the threads and merges their figures. Processor time is not included: it is measured
    /// per process.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread panicked or could not run its clients.
    pub fn finish(mut self) -> anyhow::Result<Figures> {
        let ended = Instant::now();
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("a client thread panicked"))??;
        }
        let mut figures = self.figures();
        let model = match (&self.load.clients, self.load.rate) {
            (Clients::Viewers(_), _) => Model::Viewers,
            (_, Some(_)) => Model::Open,
            (_, None) => Model::Closed,
        };
        let urls = self.load.clients.targets().iter().map(|target| target.url.clone()).collect();
        figures.runs.insert(self.run, Run { model, urls, arguments: self.load.arguments.clone() });
        if ended > self.from {
            let (begin_us, end_us) = (self.clock.unix_us(self.from), self.clock.unix_us(ended));
            figures.period = Some(Period { begin_us, end_us });
        }
        if let Some(pacer) = &self.starter.pacer {
            let may_start = self.starter.budget.as_ref().map_or(u64::MAX, |budget| budget.load(Relaxed));
            pacer.for_unsent((self.from, ended), may_start, |age, count| {
                figures.unsent += count;
                figures.record_n(Time::Ttlb, micros(age), count);
            });
        }
        Ok(figures)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropping `stop` stops the client threads, but the pacer must be stopped explicitly.
        if let Some(pacer) = &self.starter.pacer {
            pacer.end();
        }
    }
}

/// The work of one thread.
struct ThreadWork {
    /// Index of the thread.
    thread: usize,
    /// Indexes and start times of the thread's clients.
    starts: Vec<(usize, Duration)>,
    /// Number of clients across all threads.
    of: usize,
    clients: Arc<Clients>,
    starter: Starter,
    recorder: Recorder,
}

impl ThreadWork {
    fn work(self, mut stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = async move {
            // An error means that the sender was dropped, which also stops the thread.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        match &*self.clients {
            Clients::Requests(plan) => {
                let plan = Arc::new(plan.clone());
                runtime.block_on(async {
                    let client = |index| Client::new(index, &plan, &self.starter, &self.recorder).run();
                    tokio::select! {
                        () = self.run_clients(client) => {}
                        () = stop => {}
                    }
                });
            }
            Clients::Scripted(plan, script) => {
                let thread = script.thread(self.thread);
                runtime.block_on(async {
                    let client =
                        |index| ScriptedClient::new(index, plan, thread, &self.starter, &self.recorder).run();
                    tokio::select! {
                        () = self.run_clients(client) => {}
                        () = thread.stopped() => {}
                        () = stop => {}
                    }
                });
            }
            Clients::Viewers(plan) => {
                let crowd = crowd::watch(plan, &self.starts, self.of, &self.recorder, stop);
                LocalSet::new().block_on(&runtime, crowd);
            }
        }
        Ok(())
    }

    async fn run_clients<C: Future<Output = ()> + Send + 'static>(&self, client: impl Fn(usize) -> C) {
        let mut clients = JoinSet::new();
        for (index, start) in &self.starts {
            if !self.wait_for(self.recorder.clock().began + *start, &mut clients).await {
                break;
            }
            let client = client(*index);
            let recorder = self.recorder.clone();
            clients.spawn(async move {
                recorder.client_begins();
                client.await;
                recorder.client_ends();
            });
        }
        while let Some(ended) = clients.join_next().await {
            propagate_panic(ended);
        }
    }

    /// Waits until the next client is due to start. Returns `false` if no more requests may start.
    async fn wait_for(&self, start: Instant, clients: &mut JoinSet<()>) -> bool {
        while Instant::now() < start {
            tokio::select! {
                () = sleep_until(start.into()) => {}
                Some(ended) = clients.join_next() => propagate_panic(ended),
            }
            if self.starter.is_exhausted() {
                return false;
            }
        }
        true
    }
}

/// Propagates a client's panic to this thread.
pub(crate) fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    thread::Builder::new().name(name).spawn(work).context("cannot start a thread")
}
