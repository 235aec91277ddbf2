//! Edgio's publication (2021): congestion control tuned by client network.
//!
//! - [`networks`]: the networks of clients, and what is true of them.
//! - [`viewers`]: who watches from there.
//! - [`parts`]: the edge, the agent and the controller, as processes.
//! - [`told`]: what the controller tells.
//! - [`outcome`]: what came of it, and whether what has to hold does.
//!
//! **Invariant:** who is slow, who is tried and what that shows is the controller's finding alone: it knows nothing of the networks
//! but what the agent brings. What is true of them only judges it.

pub mod networks;
pub mod outcome;
mod parts;
pub mod told;
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
use tokio::sync::{oneshot, watch};
use tokio::time::{interval, sleep};

pub use super::Early;
use crate::emulation::{Emulation, Ending, Lateness, Side};
use networks::{NETWORKS, prefix};
pub use outcome::Outcome;
pub use parts::{AGENT_SETTINGS, CONTROLLER_SETTINGS, EDGE_SETTINGS};
use parts::{Parts, controller};
use told::{Explained, Round};

/// Who published what.
pub const TITLE: &str = "Edgio, 2021: congestion control tuned by client network";
/// What it leaves open, and what was chosen.
pub const OPEN: &str = "\
Published: every 5 minutes and for each PoP, client prefixes that are consistently in the bottom 20 % get BBR for responses over 100 kB; the \
5th and 10th percentile of delivery rate rose at once, about twofold for a large residential ISP, the 10th percentile of goodput by 12 %; a \
few hundred prefixes of a PoP, few new ones each round. Left open: thresholds, history, traffic, and what BBR does where it does not help. \
Chosen: 16 networks of clients behind emulated paths, of which four are slow: two by losses that BBR does not mind, one by a policer where it \
sends far more again, one by a bottleneck that its viewers fill; windows of 4 s in place of 5 minutes; half of the connections of a network on trial held out, a twentieth once it \
is shown to be helped, where Edgio held out none. Percentiles are over connections of a window, of the controller's own; ratios are of means \
over rounds, with Fieller's interval at 95 %, which takes rounds for independent.";

/// How often the controller is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How long viewers watch.
    pub duration: Duration,
    /// Rounds at the end that are compared with those before.
    pub rounds_after: usize,
    /// A window of the controller.
    pub window: Duration,
}

/// The plan; `is_quick` for a first look.
pub fn plan(is_quick: bool) -> Plan {
    let window = Duration::from_secs(4);
    if is_quick {
        return Plan { duration: Duration::from_secs(180), rounds_after: 5, window };
    }
    Plan { duration: Duration::from_secs(300), rounds_after: 15, window }
}

/// Measures it. `tell` hears what happens. A signal, or a program that fails, ends the measuring; what is there by then is the outcome.
///
/// # Errors
/// If it cannot begin.
pub fn run(plan: &Plan, thalweg: &Path, tell: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Outcome> {
    let scenario = networks::scenario();
    let ending = Ending::prepare()?;
    let emulation = Emulation::start(&scenario)?;
    let ends = ending.of(&emulation);
    let parts = Parts::start(&emulation, thalweg)?;
    let server: SocketAddr = (scenario.server4, parts::EDGE_PORT).into();
    emulation
        .run_on(Side::Server, || viewers::warm(server))?
        .map_err(|failure| anyhow::anyhow!("the edge itself: {failure}"))?;
    let ended = ends.tell_instead();
    let (begun, begun_unix_s) = (Instant::now(), unix_s());
    let prefixes: Vec<String> = scenario.paths.iter().map(prefix).collect();
    let known =
        Mutex::new(Known { rounds: Vec::new(), networks: vec![Explained::default(); prefixes.len()] });
    let (stop, stopped) = watch::channel(());
    let (early, seen) = thread::scope(|scope| {
        let asks = Asks { known: &known, prefixes: &prefixes, begun_unix_s, tell };
        let emulation = &emulation;
        let asking = scope.spawn(move || emulation.run_on(Side::Server, || asks.go_on(stopped)));
        let seen = emulation.run_on(Side::Clients, || async {
            let seen = RefCell::default();
            let early = tokio::select! {
                () = viewers::watch(&NETWORKS, &scenario, server, begun, &seen) => None,
                // The controller is not asked any more.
                () = stop.closed() => None,
                early = time_is_up(plan.duration, ended) => early,
            };
            (early, seen.into_inner())
        });
        drop(stop);
        let asked = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (early, seen) = seen?;
        let failed = asked?.err().map(|failure| Early::Failed(format!("{failure:#}")));
        anyhow::Ok((early.or(failed), seen))
    })?;
    drop(parts);
    emulation.count_missed();
    let Known { rounds, networks } = known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ways = (0..scenario.paths.len()).flat_map(|path| emulation.ways(path));
    Ok(Outcome {
        early,
        begun_unix_s,
        rounds,
        networks: prefixes.into_iter().zip(networks).collect(),
        seen,
        lateness: Lateness::of(ways),
        ..Outcome::new(plan.clone())
    })
}

/// Until the time is up, or a signal has come.
async fn time_is_up(duration: Duration, ended: oneshot::Receiver<Signal>) -> Option<Early> {
    tokio::select! {
        () = sleep(duration) => None,
        Ok(signal) = ended => Some(Early::Interrupted(signal.as_raw())),
    }
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What the controller has told so far.
struct Known {
    rounds: Vec<Round>,
    networks: Vec<Explained>,
}

/// Who asks the controller, again and again.
struct Asks<'a> {
    known: &'a Mutex<Known>,
    prefixes: &'a [String],
    begun_unix_s: f64,
    tell: &'a (dyn Fn(&str) + Sync),
}

impl Asks<'_> {
    async fn go_on(&self, mut stopped: watch::Receiver<()>) -> anyhow::Result<()> {
        let mut looks = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                _ = looks.tick() => self.ask().await.context("what the controller knows")?,
                // It ends with its sender.
                _ = stopped.changed() => return self.ask().await.context("what the controller knows"),
            }
        }
    }

    async fn ask(&self) -> anyhow::Result<()> {
        let since = self.lock().rounds.last().map_or(self.begun_unix_s as u64, |round| round.unix_s);
        let rounds = controller().rounds(since).await?;
        if rounds.is_empty() {
            return Ok(());
        }
        let mut explained = Vec::new();
        for prefix in self.prefixes {
            explained.push(controller().explain(prefix).await?);
        }
        rounds.iter().for_each(|round| self.tell_of(round));
        let mut known = self.lock();
        known.rounds.extend(rounds);
        known.networks.iter_mut().zip(explained).for_each(|(known, newer)| known.note(newer));
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has changed with a round.
    fn tell_of(&self, round: &Round) {
        let name = |prefix: &str| {
            let number = self.prefixes.iter().position(|it| it == prefix);
            number.map_or(prefix.to_owned(), |number| NETWORKS[number].name.to_owned())
        };
        let changes = |what: &str, changes: &[told::Change]| {
            changes
                .iter()
                .map(|it| format!("{} {what} ({})", name(&it.prefix), it.reason))
                .collect::<Vec<_>>()
        };
        let mut all = changes("entered", &round.entered);
        all.extend(round.proved.iter().map(|prefix| format!("{} shown to be helped", name(prefix))));
        all.extend(changes("left", &round.left));
        let at_s = round.unix_s as f64 - self.begun_unix_s;
        let p10 = round.delivery_rate.all.map_or(0.0, |lows| lows.p10 * 8e-6);
        (self.tell)(&format!(
            "{at_s:4.0} s  p10 {p10:5.2} Mbit/s  {} steered  {}",
            round.steered,
            all.join(", ")
        ));
    }
}
