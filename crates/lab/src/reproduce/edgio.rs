//! Edgio's publication (2021): congestion control tuned by client network.
//! - [`networks`]: the client networks, and whether BBR helps each one.
//! - [`viewers`]: viewers in those networks.
//! - [`parts`]: the edge, the agent and the controller, as processes.
//! - [`controller`]: reads rounds and explanations from the controller.
//! - [`outcome`]: the results, and checks on them.
//!
//! **Invariant:** the controller alone decides which networks are slow, which to try, and what a
//! trial shows. It knows only the agent's reports; the networks' true properties serve only to
//! judge its decisions.

pub mod controller;
pub mod networks;
pub mod outcome;
mod parts;
pub mod viewers;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rustix::process::Signal;
use thalweg_netem::emulation::{Emulation, Family, Lateness, Side, SignalSetup};
use tokio::sync::{oneshot, watch};
use tokio::time::{interval, sleep};

pub use super::EarlyEnd;
use controller::{Explanation, Round};
use networks::NETWORKS;
pub use outcome::Outcome;
pub use parts::{AGENT_SETTINGS, CONTROLLER_SETTINGS, EDGE_SETTINGS};
use parts::{Parts, controller};

/// Publisher, year and subject.
pub const TITLE: &str = "Edgio, 2021: congestion control tuned by client network";
/// Parameters that the publication leaves open, and our choices.
pub const OPEN: &str = "\
Published: every 5 minutes and for each PoP, client prefixes that are consistently in the bottom 20 % get BBR for responses over 100 kB; \
the 5th and 10th percentile of delivery rate rose at once, about twofold for a large residential ISP, the 10th percentile of goodput by \
12 %; a few hundred prefixes of a PoP, few new ones each round. Left open: thresholds, history, traffic, and the effect of BBR where it \
does not help. Chosen: 16 client networks behind emulated paths, of which four are slow: two by losses that BBR tolerates, one by a policer \
where BBR retransmits far more, one by a bottleneck that its viewers fill; windows of 4 s instead of 5 minutes. Edgio held out nothing. Here, half \
of a network's clients are held out while it is on trial; if the trial is promising, the whole network is steered in every other block of 12 s, in \
random order, until that shows that BBR helps; then a twentieth is held out. Percentiles are over the \
controller's own connections of a window; ratios are of means over rounds, with Fieller's interval at 95 %, which assumes independent rounds.";

/// Interval between requests to the controller.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// A reproduction to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How long viewers watch.
    pub duration: Duration,
    /// Number of final rounds to compare with the rounds before steering.
    pub rounds_after: usize,
    /// Length of the controller's window.
    pub window: Duration,
}

/// Returns the plan, or a shorter one if `is_quick` is set.
pub fn plan(is_quick: bool) -> Plan {
    let window = Duration::from_secs(4);
    if is_quick {
        return Plan { duration: Duration::from_secs(360), rounds_after: 5, window };
    }
    Plan { duration: Duration::from_secs(600), rounds_after: 15, window }
}

/// Runs the plan and passes one line per round to `log`. If a signal or a failing program ends the
/// measurement early, the outcome contains the results so far.
///
/// # Errors
///
/// Returns an error if the emulation, a program or the warm-up request fails before measuring
/// starts.
pub fn run(plan: &Plan, thalweg: &Path, log: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Outcome> {
    let scenario = networks::scenario();
    let signals = SignalSetup::install()?;
    let emulation = Emulation::start(&scenario)?;
    let handler = signals.attach(&emulation);
    let parts = Parts::start(&emulation, thalweg)?;
    let server: SocketAddr = (scenario.server4, parts::EDGE_PORT).into();
    emulation
        .run_on(Side::Server, || viewers::warm(server))?
        .map_err(|failure| anyhow::anyhow!("warming the edge: {failure}"))?;
    let ended = handler.forward_next();
    let (started, started_unix_s) = (Instant::now(), unix_s());
    let prefixes: Vec<String> = scenario.paths.iter().map(|path| Family::Four.prefix(path)).collect();
    let known = Mutex::new(ControllerState {
        rounds: Vec::new(),
        networks: vec![Explanation::default(); prefixes.len()],
    });
    let (stop, stopped) = watch::channel(());
    let (early, seen) = thread::scope(|scope| {
        let poller = Poller { known: &known, prefixes: &prefixes, started_unix_s, log };
        let emulation = &emulation;
        let polling = scope.spawn(move || emulation.run_on(Side::Server, || poller.run(stopped)));
        let seen = emulation.run_on(Side::Clients, || async {
            let seen = RefCell::default();
            let early = tokio::select! {
                () = viewers::watch(&NETWORKS, &scenario, server, started, &seen) => None,
                // The poller has failed and dropped its receiver.
                () = stop.closed() => None,
                early = time_is_up(plan.duration, ended) => early,
            };
            (early, seen.into_inner())
        });
        drop(stop);
        let polled = polling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (early, seen) = seen?;
        let failed = polled?.err().map(|failure| EarlyEnd::Failed(format!("{failure:#}")));
        anyhow::Ok((early.or(failed), seen))
    })?;
    drop(parts);
    emulation.count_missed();
    let ControllerState { rounds, networks } = known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let directions = (0..scenario.paths.len()).flat_map(|path| emulation.directions(path));
    Ok(Outcome {
        early,
        started_unix_s,
        rounds,
        networks: prefixes.into_iter().zip(networks).collect(),
        viewer_results: seen,
        lateness: Lateness::of(directions),
        ..Outcome::new(plan.clone())
    })
}

/// Waits until time is up or a signal arrives. Returns `None` if time is up.
async fn time_is_up(duration: Duration, ended: oneshot::Receiver<Signal>) -> Option<EarlyEnd> {
    tokio::select! {
        () = sleep(duration) => None,
        Ok(signal) = ended => Some(EarlyEnd::Interrupted(signal.as_raw())),
    }
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The controller's reports so far.
struct ControllerState {
    rounds: Vec<Round>,
    networks: Vec<Explanation>,
}

/// Polls the controller until stopped.
struct Poller<'a> {
    known: &'a Mutex<ControllerState>,
    prefixes: &'a [String],
    started_unix_s: f64,
    log: &'a (dyn Fn(&str) + Sync),
}

impl Poller<'_> {
    async fn run(&self, mut stopped: watch::Receiver<()>) -> anyhow::Result<()> {
        let mut ticks = interval(POLL_EVERY);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.poll().await.context("polling the controller")?,
                // This completes when the sender is dropped.
                _ = stopped.changed() => return self.poll().await.context("polling the controller"),
            }
        }
    }

    async fn poll(&self) -> anyhow::Result<()> {
        let since = self.lock().rounds.last().map_or(self.started_unix_s as u64, |round| round.unix_s);
        let rounds = controller().rounds(since).await?;
        if rounds.is_empty() {
            return Ok(());
        }
        let mut explained = Vec::new();
        for prefix in self.prefixes {
            explained.push(controller().explain(prefix).await?);
        }
        rounds.iter().for_each(|round| self.print_round(round));
        let mut known = self.lock();
        known.rounds.extend(rounds);
        known.networks.iter_mut().zip(explained).for_each(|(known, newer)| known.update(newer));
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ControllerState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the changes in a round.
    fn print_round(&self, round: &Round) {
        let name = |prefix: &str| {
            let number = self.prefixes.iter().position(|it| it == prefix);
            number.map_or(prefix.to_owned(), |number| NETWORKS[number].name.to_owned())
        };
        let changes = |what: &str, changes: &[controller::Change]| {
            changes
                .iter()
                .map(|it| format!("{} {what} ({})", name(&it.prefix), it.reason))
                .collect::<Vec<_>>()
        };
        let mut all = changes("entered", &round.entered);
        all.extend(round.proved.iter().map(|prefix| format!("{} shown to be helped", name(prefix))));
        all.extend(changes("left", &round.left));
        let at_s = round.unix_s as f64 - self.started_unix_s;
        let p10 = round.delivery_rate.all.map_or(0.0, |lows| lows.p10 * 8e-6);
        (self.log)(&format!(
            "{at_s:4.0} s  p10 {p10:5.2} Mbit/s  {} steered  {}",
            round.steered,
            all.join(", ")
        ));
    }
}
