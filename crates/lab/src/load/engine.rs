//! Runs a load: a thread for each core, each with a runtime of its own and its share of the clients.
//!
//! **Invariant:** when time is up nothing new begins, and what is under way is given up and told as such: it is not waited for, and
//! not forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail};
use hdrhistogram::Histogram;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::client::{Client, Plan, Starter};
use super::connection::{Connection, Server};
use super::figures::{Figures, Period, Second, Time};
use super::pacer::Pacer;
use super::recorder::{Recorder, unix_us};
use super::schedule::{Population, Rate};

/// Between two looks at the figures while it runs.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Files of a process beside its connections: standard ones, and some for each thread's runtime.
const FILES_BESIDE: u64 = 64;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Load {
    /// What each client does.
    pub plan: Plan,
    /// The clients.
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
}

/// What happened since the last look.
#[derive(Debug)]
pub struct Moment {
    /// Since the start.
    pub elapsed: Duration,
    /// Whether the warm-up is over.
    pub is_counted: bool,
    /// Counts since the last look.
    pub counts: Second,
    /// How long that is, in seconds.
    pub span_s: f64,
    /// Times to the last byte since the last look.
    pub ttlb: Option<Histogram<u64>>,
}

/// Runs it until its end, SIGINT or SIGTERM. `look` is called each second.
///
/// # Errors
/// No server at an address, or the machine has no threads or timers to give.
pub fn run(load: &Load, look: impl FnMut(&Moment)) -> anyhow::Result<Figures> {
    raise_files(load.population.clients())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // From here on nothing ends it without its figures.
        let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        probe(load).await?;
        Run::start(load)?.attend(load, signals, look).await
    })
}

/// Lets this process open as many files as it may, and looks whether each client can have its connection.
fn raise_files(clients: usize) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is still looked at.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = clients as u64 + FILES_BESIDE;
    if needed > may {
        bail!(
            "{clients} clients need {needed} files and this process may open {may}: raise `ulimit -Hn`, or run several \
             processes and `thalweg-lab load merge` their figures"
        );
    }
    Ok(())
}

/// Whether anybody is there to be asked, and to be trusted.
async fn probe(load: &Load) -> anyhow::Result<()> {
    let mut found: Vec<&Server> = Vec::new();
    for target in &load.plan.targets {
        if !found.contains(&&target.server) {
            Connection::open(&target.server, load.plan.sources.of(0), load.plan.timeouts).await?;
            found.push(&target.server);
        }
    }
    Ok(())
}

/// A load that runs.
struct Run {
    begun: Instant,
    begun_at: SystemTime,
    from: Instant,
    workers: Vec<Worker>,
    starter: Starter,
    running: Arc<Running>,
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

struct Worker {
    recorder: Recorder,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Run {
    fn start(load: &Load) -> anyhow::Result<Self> {
        let clients = load.population.clients();
        let threads = load.threads.clamp(1, clients);
        let plan = Arc::new(load.plan.clone());
        let budget = load.requests.map(|requests| Arc::new(AtomicU64::new(requests)));
        let (begun, begun_at) = (Instant::now(), SystemTime::now());
        let from = begun + load.warm_up;
        let (stop, stopped) = watch::channel(false);
        // Nothing is sent: it closes when the last thread has dropped its end.
        let (ending, ended) = mpsc::channel(1);
        let running = Arc::new(Running::default());
        let pacer = load
            .rate
            .map(|rate| Arc::new(Pacer::new(rate, begun, (load.requests.unwrap_or(u64::MAX), clients))));
        if let Some(pacer) = pacer.clone() {
            spawn("pacer".to_owned(), move || pacer.run())?;
        }
        let starter = Starter { budget, pacer };
        let mut workers = Vec::new();
        for index in 0..threads {
            let recorder = Recorder::new(from, unix_us(begun_at));
            let share = Share {
                clients: load.population.starts().enumerate().skip(index).step_by(threads).collect(),
                plan: Arc::clone(&plan),
                starter: starter.clone(),
                recorder: recorder.clone(),
                begun,
                running: Arc::clone(&running),
            };
            let (stopped, ending) = (stopped.clone(), ending.clone());
            let work = move || {
                let done = share.work(stopped);
                drop(ending);
                done
            };
            workers.push(Worker { recorder, thread: spawn(format!("load-{index}"), work)? });
        }
        Ok(Self { begun, begun_at, from, workers, starter, running, stop, ended })
    }

    async fn attend(
        mut self,
        load: &Load,
        (mut interrupts, mut terminations): (Signal, Signal),
        mut look: impl FnMut(&Moment),
    ) -> anyhow::Result<Figures> {
        let mut ticks = interval_at((self.begun + LOOK_EVERY).into(), LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = load.duration.map(|duration| self.begun + duration);
        let mut cpu_before = None;
        let mut looks = Looks::new(self.from.max(self.begun));
        loop {
            tokio::select! {
                () = sleep_until(self.from.into()), if cpu_before.is_none() => cpu_before = Some(cpu_us()),
                () = sleep_until(end.unwrap_or(self.begun).into()), if end.is_some() => break,
                _ = self.ended.recv() => break,
                _ = interrupts.recv() => break,
                _ = terminations.recv() => break,
                _ = ticks.tick() => look(&looks.next(&self)),
            }
        }
        let ended = Instant::now();
        let cpu_us = cpu_before.map_or(0, |before| cpu_us() - before);
        look(&looks.next(&self));
        self.finish(ended, cpu_us, looks)
    }

    /// Ends the threads and puts their figures together.
    fn finish(self, ended: Instant, cpu_us: u64, looks: Looks) -> anyhow::Result<Figures> {
        let _ = self.stop.send(true);
        let mut figures = Figures {
            processes: 1,
            clients: self.running.most.load(Relaxed),
            cpu_us,
            seconds: looks.seconds,
            ..Figures::default()
        };
        if ended > self.from {
            let at = |instant: Instant| unix_us(self.begun_at + instant.duration_since(self.begun));
            figures.period = Some(Period { begin_us: at(self.from), end_us: at(ended) });
        }
        for worker in self.workers {
            worker.thread.join().map_err(|_| anyhow!("a thread of clients panicked"))??;
            figures.merge(&worker.recorder.figures());
        }
        if let Some(pacer) = self.starter.pacer {
            pacer.end();
            let may_begin = self.starter.budget.map_or(u64::MAX, |budget| budget.load(Relaxed));
            figures.unsent = pacer.unsent(self.from, ended).min(may_begin);
        }
        Ok(figures)
    }
}

/// How many clients there are.
#[derive(Debug, Default)]
struct Running {
    now: AtomicU64,
    most: AtomicU64,
}

/// One thread's share.
struct Share {
    /// Their indexes and when they start.
    clients: Vec<(usize, Duration)>,
    plan: Arc<Plan>,
    starter: Starter,
    recorder: Recorder,
    begun: Instant,
    running: Arc<Running>,
}

impl Share {
    fn work(self, mut stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                () = self.run_clients() => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        });
        Ok(())
    }

    async fn run_clients(&self) {
        let mut clients = JoinSet::new();
        for (index, start) in &self.clients {
            let start = self.begun + *start;
            if Instant::now() < start {
                sleep_until(start.into()).await;
            }
            let client = Client::new(*index, &self.plan, &self.starter, &self.recorder);
            let running = Arc::clone(&self.running);
            clients.spawn(async move {
                running.most.fetch_max(running.now.fetch_add(1, Relaxed) + 1, Relaxed);
                client.run().await;
                running.now.fetch_sub(1, Relaxed);
            });
        }
        while clients.join_next().await.is_some() {}
    }
}

fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    thread::Builder::new().name(name).spawn(work).context("cannot start a thread")
}

/// Processor time of this process.
fn cpu_us() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // Neither part is negative.
    (spent.tv_sec * 1_000_000 + spent.tv_nsec / 1000) as u64
}

/// The looks at the figures so far.
struct Looks {
    at: Instant,
    requests: u64,
    content_bytes: u64,
    errors: u64,
    ttlb: Option<Histogram<u64>>,
    seconds: std::collections::BTreeMap<u64, Second>,
}

impl Looks {
    fn new(at: Instant) -> Self {
        Self {
            at,
            requests: 0,
            content_bytes: 0,
            errors: 0,
            ttlb: None,
            seconds: std::collections::BTreeMap::new(),
        }
    }

    /// What has happened since the one before.
    fn next(&mut self, run: &Run) -> Moment {
        let now = Instant::now();
        let (mut requests, mut content_bytes, mut errors) = (0, 0, 0);
        let mut ttlb: Option<Histogram<u64>> = None;
        for worker in &run.workers {
            let figures = worker.recorder.figures();
            requests += figures.requests;
            content_bytes += figures.content_bytes;
            errors += figures.errors_total();
            match (&mut ttlb, figures.time(Time::Ttlb)) {
                (Some(all), Some(part)) => all.add(part).expect("all histograms have the same bounds"),
                (all @ None, part) => *all = part.cloned(),
                (Some(_), None) => {}
            }
        }
        let counts = Second {
            requests: requests - self.requests,
            content_bytes: content_bytes - self.content_bytes,
            errors: errors - self.errors,
            clients: run.running.now.load(Relaxed),
        };
        let since = difference(ttlb.as_ref(), self.ttlb.as_ref());
        let span_s = now.saturating_duration_since(self.at).as_secs_f64();
        let is_counted = now > run.from;
        if is_counted {
            let unix_s = unix_us(run.begun_at + self.at.duration_since(run.begun)) / 1_000_000;
            let second = self.seconds.entry(unix_s).or_default();
            second.requests += counts.requests;
            second.content_bytes += counts.content_bytes;
            second.errors += counts.errors;
            second.clients = second.clients.max(counts.clients);
            self.at = now;
        }
        (self.requests, self.content_bytes, self.errors, self.ttlb) = (requests, content_bytes, errors, ttlb);
        Moment { elapsed: now - run.begun, is_counted, counts, span_s, ttlb: since }
    }
}

/// What was recorded after `before` was taken.
fn difference(now: Option<&Histogram<u64>>, before: Option<&Histogram<u64>>) -> Option<Histogram<u64>> {
    let mut since = now?.clone();
    if let Some(before) = before {
        since.subtract(before).expect("counts only grow");
    }
    Some(since)
}
