//! Runs a load: a thread for each core, each with a runtime of its own and its share of the clients.
//!
//! **Invariant:** when time is up nothing new begins, and what is under way is given up and told as such: it is not waited for, and
//! not forgotten.

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
use crate::signals::Signals;
use crate::viewer::crowd::{self, Orders};

/// Between two looks at the figures while it runs.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What clients do.
#[derive(Debug, Clone)]
pub enum Clients {
    /// They ask for one thing after another.
    Requests(Plan),
    /// They ask the server of the first target for what a script says.
    Scripted(Plan, Arc<Script>),
    /// They watch.
    Viewers(Orders),
}

impl Clients {
    /// What they ask for.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => &plan.targets,
            Self::Viewers(orders) => &orders.targets,
        }
    }

    fn sources(&self) -> &Sources {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => &plan.sources,
            Self::Viewers(orders) => &orders.sources,
        }
    }

    fn timeouts(&self) -> Timeouts {
        match self {
            Self::Requests(plan) | Self::Scripted(plan, _) => plan.timeouts,
            Self::Viewers(orders) => orders.timeouts,
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Load {
    /// What each client does.
    pub clients: Clients,
    /// When they begin.
    pub population: Population,
    /// Requests are due at this rate (open model); else each client's when its last one has ended (closed model).
    pub rate: Option<Rate>,
    /// It ends after so long, the warm-up included; else with the requests.
    pub duration: Option<Duration>,
    /// It ends after so many requests.
    pub requests: Option<u64>,
    /// What begins before is not counted.
    pub warm_up: Duration,
    /// Threads; no more than clients are made.
    pub threads: usize,
    /// The command line, to be told with the figures.
    pub arguments: Vec<String>,
}

/// A look at a load that runs.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Since the start.
    pub elapsed: Duration,
    /// Whether the warm-up is over.
    pub is_counted: bool,
    /// Since the last look, or the end of the warm-up.
    pub span: Duration,
    /// All figures so far.
    pub figures: &'a Figures,
    /// Those of the last look.
    pub before: &'a Figures,
}

impl Moment<'_> {
    /// How often a second it happened since the last look, by a count that only grows.
    pub fn per_s(&self, count: impl Fn(&Figures) -> u64) -> f64 {
        let (happened, span_s) = (count(self.figures) - count(self.before), self.span.as_secs_f64());
        if span_s > 0.0 { happened as f64 / span_s } else { 0.0 }
    }

    /// The times of that kind since the last look, if there were any.
    pub fn since(&self, time: Time) -> Option<Histogram<u64>> {
        let mut since = self.figures.time(time)?.clone();
        if let Some(before) = self.before.time(time) {
            since.subtract(before).expect("counts only grow");
        }
        (!since.is_empty()).then_some(since)
    }
}

/// Runs it until its end, SIGINT, SIGTERM or SIGHUP. `look` is called each second.
///
/// # Errors
/// No server at an address, or the machine has no threads or timers to give.
pub fn run(load: &Load, look: impl FnMut(&Moment<'_>)) -> anyhow::Result<Figures> {
    raise_files(load.population.clients().saturating_mul(servers(load).len()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // From here on nothing ends it without its figures.
        let mut signals = Signals::take()?;
        tokio::select! {
            probed = probe(load) => probed?,
            _ = signals.next() => bail!("interrupted before anything had begun"),
        }
        Running::start(load)?.attend(signals, look).await
    })
}

/// Whether anybody is there to be asked, and to be trusted.
async fn probe(load: &Load) -> anyhow::Result<()> {
    if let Clients::Viewers(orders) = &load.clients {
        return crowd::probe(orders).await;
    }
    for server in servers(load) {
        Connection::open(server, load.clients.sources().of(0), load.clients.timeouts()).await?;
    }
    Ok(())
}

/// To each of which each client may have a connection.
fn servers(load: &Load) -> Vec<&Server> {
    let mut servers: Vec<&Server> = Vec::new();
    for target in load.clients.targets() {
        if !servers.contains(&&target.server) {
            servers.push(&target.server);
        }
    }
    servers
}

/// A load that runs; its clients end when this is dropped.
#[derive(Debug)]
pub struct Running {
    load: Load,
    clock: Clock,
    /// When counting begins.
    from: Instant,
    run: u64,
    /// One for each thread.
    recorders: Vec<Recorder>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
    starter: Starter,
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

impl Running {
    /// Lets it begin. Its threads are in the namespaces of this one.
    ///
    /// # Errors
    /// The machine has no threads or timers to give. For files see [`raise_files`].
    pub fn start(load: &Load) -> anyhow::Result<Self> {
        let count = load.population.clients();
        let workers = load.threads.clamp(1, count);
        let clients = Arc::new(load.clients.clone());
        let budget = load.requests.map(|requests| Arc::new(AtomicU64::new(requests)));
        let clock = Clock::start();
        let (from, run) = (clock.began + load.warm_up, rand::random());
        let (stop, stopped) = watch::channel(false);
        // Nothing is sent: it closes when the last thread has dropped its end.
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
            let share = Share {
                thread: index,
                starts: load.population.starts().enumerate().skip(index).step_by(workers).collect(),
                of: count,
                clients: Arc::clone(&clients),
                starter: starter.clone(),
                recorder: recorder.clone(),
            };
            let (stopped, ending) = (stopped.clone(), ending.clone());
            let work = move || {
                let done = share.work(stopped);
                drop(ending);
                done
            };
            recorders.push(recorder);
            threads.push(spawn(format!("load-{index}"), work)?);
        }
        let load = load.clone();
        Ok(Self { load, clock, from, run, recorders, threads, starter, stop, ended })
    }

    /// When time is up, if there is an end to it.
    pub fn end(&self) -> Option<Instant> {
        self.load.duration.map(|duration| self.clock.began + duration)
    }

    async fn attend(
        mut self,
        mut signals: Signals,
        mut look: impl FnMut(&Moment<'_>),
    ) -> anyhow::Result<Figures> {
        let mut ticks = interval_at((self.clock.began + LOOK_EVERY).into(), LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = self.end();
        let mut cpu_before = None;
        let (mut before, mut looked) = (Figures::default(), self.from);
        loop {
            tokio::select! {
                () = sleep_until(self.from.into()), if cpu_before.is_none() => cpu_before = Some(cpu_us()),
                () = sleep_until(end.unwrap_or(self.from).into()), if end.is_some() => break,
                _ = self.ended.recv() => break,
                _ = signals.next() => break,
                _ = ticks.tick() => {
                    let (figures, now) = (self.figures(), Instant::now());
                    look(&Moment {
                        elapsed: now - self.clock.began,
                        is_counted: now > self.from,
                        span: now.saturating_duration_since(looked),
                        figures: &figures,
                        before: &before,
                    });
                    (before, looked) = (figures, now.max(self.from));
                }
            }
        }
        let cpu_us = cpu_before.map_or(0, |before| cpu_us() - before);
        let figures = self.finish()?;
        Ok(Figures { cpu_us, ..figures })
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for recorder in &self.recorders {
            // Clients wait as long as it takes to copy them.
            let of_thread = recorder.figures().clone();
            figures.merge(&of_thread);
        }
        figures
    }

    /// Ends the threads and puts their figures together, but for the processor time, which is the process's.
    ///
    /// # Errors
    /// A thread could not run its clients.
    pub fn finish(mut self) -> anyhow::Result<Figures> {
        let ended = Instant::now();
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("a thread of clients panicked"))??;
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
            let may_begin = self.starter.budget.as_ref().map_or(u64::MAX, |budget| budget.load(Relaxed));
            pacer.for_unsent((self.from, ended), may_begin, |age, count| {
                figures.unsent += count;
                figures.record_n(Time::Ttlb, micros(age), count);
            });
        }
        Ok(figures)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The threads see that nobody can stop them any more; the pacer does not.
        if let Some(pacer) = &self.starter.pacer {
            pacer.end();
        }
    }
}

/// One thread's share.
struct Share {
    /// Which thread it is.
    thread: usize,
    /// The clients' indexes and when they start.
    starts: Vec<(usize, Duration)>,
    /// How many there are in all threads.
    of: usize,
    clients: Arc<Clients>,
    starter: Starter,
    recorder: Recorder,
}

impl Share {
    fn work(self, mut stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = async move {
            // An error: the one who could stop it is gone.
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
            Clients::Viewers(orders) => {
                let crowd = crowd::watch(orders, &self.starts, self.of, &self.recorder, stop);
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
            pass_on_panic(ended);
        }
    }

    /// Waits until the next client is to start; `false` if there is nothing left for it to do.
    async fn wait_for(&self, start: Instant, clients: &mut JoinSet<()>) -> bool {
        while Instant::now() < start {
            tokio::select! {
                () = sleep_until(start.into()) => {}
                Some(ended) = clients.join_next() => pass_on_panic(ended),
            }
            if self.starter.is_exhausted() {
                return false;
            }
        }
        true
    }
}

/// Has a client's panic end its thread, which is told.
pub(crate) fn pass_on_panic(ended: Result<(), JoinError>) {
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
