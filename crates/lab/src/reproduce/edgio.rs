//! Edgio's publication (2021): congestion control tuned by client network.
//! - [`networks`]: the client networks, and whether BBR helps each one.
//! - [`viewers`]: viewers in those networks.
//! - [`parts`]: two PoPs of two edges and their agents, and the controller, as processes.
//! - [`record`]: what the controller and the edges report.
//! - [`controller`]: reads their HTTP interfaces. [`damage`]: damages bundles on their way.
//! - [`outcome`]: the results, and checks on them.
//!
//! **Invariant:** the controller alone decides which networks are slow, which to try, and what a
//! trial shows. It knows only the agents' reports; the networks' true properties serve only to
//! judge its decisions.

pub mod controller;
mod damage;
pub mod networks;
pub mod outcome;
mod parts;
pub mod record;
pub mod viewers;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use thalweg_netem::emulation::{Emulation, Lateness, Side, SignalHandler, SignalSetup};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, sleep_until};

pub use super::EarlyEnd;
use networks::World;
pub use outcome::Outcome;
pub use parts::{AGENT_SETTINGS, EDGES, controller_settings, edge_name};
use parts::{DAMAGED, Parts, Roles, TUNED};
use record::{Poller, Record};

/// Publisher, year and subject.
pub const TITLE: &str = "Edgio, 2021: congestion control tuned by client network";
/// Parameters that the publication leaves open, and our choices.
const OPEN: &str = "\
Published: every 5 minutes and for each PoP, client prefixes that are consistently in the bottom 20 % get BBR for responses over 100 kB; \
the 5th and 10th percentile of delivery rate rose at once, about twofold for a large residential ISP, the 10th percentile of goodput by \
12 %; a few hundred prefixes of a PoP, few new ones each round. Left open: thresholds, history, traffic, and the effect of BBR where it \
does not help. Chosen: 24 client networks, /24s and /56s, behind emulated paths, at two PoPs of two edges each. Most are healthy; \
two lose packets and one begins to halfway through, which BBR tolerates; one is behind a policer, where BBR retransmits far more; one has \
deep buffers, one is shared by many viewers, and one is far away. Windows last 4 s instead of 5 minutes. Edgio held out nothing. \
Here, half of a network's clients are held out while it is on trial; if the trial is promising, the whole network is steered in every \
other block of 12 s, in random order, until that shows that BBR helps; then a tenth is held out. Percentiles are over the \
controller's own connections of a window; ratios are of means over rounds, with Fieller's interval at 95 %, which assumes independent \
rounds. Afterwards, all processes start again with a proxy that damages bundles on their way to the edges, which must refuse them.";

/// Description of the world of identical networks.
const IDENTICAL: &str = "\
Not a published result, but a check of the controller: 24 client networks, /24s and /56s, behind the same clean path, at two PoPs of two \
edges each. BBR and CUBIC are equally fast, so no network must be declared helped. All networks are on trial at once. Windows last 4 s \
instead of 5 minutes.";

/// Description of the world of shared bottlenecks.
const SHARED: &str = "\
Not a published result, but a check of the controller: 24 client networks, /24s and /56s, in each of which six viewers share the \
bottleneck, at two PoPs of two edges each. What steered viewers gain, the others lose, so no network must be declared helped, even if \
steered connections are faster than those held out. All networks are on trial at once. Windows last 4 s instead of 5 minutes.";

/// Returns the title of a world's report.
pub fn title(world: World) -> &'static str {
    match world {
        World::Mixed => TITLE,
        World::Identical => "Control of networks with identical paths",
        World::Shared => "Control of networks with shared bottlenecks",
    }
}

/// Describes what is measured in a world, and our choices.
pub fn description(world: World) -> &'static str {
    match world {
        World::Mixed => OPEN,
        World::Identical => IDENTICAL,
        World::Shared => SHARED,
    }
}

/// Time limit for a damaged bundle to be rolled back.
const DAMAGED_MAX: Duration = Duration::from_secs(120);

/// A reproduction to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Paths and traffic of the networks.
    pub world: World,
    /// How long viewers watch.
    pub duration: Duration,
    /// Number of final rounds to compare with the rounds before steering.
    pub rounds_after: usize,
    /// Length of the controller's window.
    pub window: Duration,
    /// Whether the plan is long enough for proofs.
    pub has_proofs: bool,
}

/// Returns the plan, or a shorter one if `is_quick` is set. The shorter one ends when networks are
/// on trial. Outside the mixed world, all networks are on trial at once, so the plan takes less
/// time.
pub fn plan(world: World, is_quick: bool) -> Plan {
    let window = Duration::from_secs(4);
    let (seconds, rounds_after) = match (world, is_quick) {
        (_, true) => (80, 5),
        (World::Mixed, false) => (840, 15),
        (World::Identical | World::Shared, false) => (400, 15),
    };
    Plan { world, duration: Duration::from_secs(seconds), rounds_after, window, has_proofs: !is_quick }
}

/// Runs the plan and passes one line per round to `log`. If a signal or a failing program ends the
/// measurement early, the outcome contains the results so far.
///
/// # Errors
///
/// Returns an error if the emulation, a program or a warm-up request fails before measuring starts.
pub fn run(plan: &Plan, thalweg: &Path, log: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Outcome> {
    let scenario = networks::scenario(plan.world, plan.duration / 2);
    let signals = SignalSetup::install()?;
    let emulation = Emulation::start(&scenario)?;
    let handler = signals.attach(&emulation);
    let lab = Lab { world: plan.world, emulation: &emulation, handler: &handler, thalweg, log };
    let tuned = lab.run(TUNED, plan.duration, |_| false)?;
    emulation.count_missed();
    let directions = (0..scenario.paths.len()).flat_map(|path| emulation.directions(path));
    let lateness = Lateness::of(directions);
    let mut early = tuned.early;
    let mut damaged = None;
    if early.is_none() && plan.world == World::Mixed {
        log("bundles are damaged:");
        let is_rolled_back = |record: &Record| record.pops.iter().all(|pop| pop.rolled_back().is_some());
        let run = lab.run(DAMAGED, DAMAGED_MAX, is_rolled_back)?;
        early = run.early;
        damaged = Some((run.record, run.seen.failed));
    }
    Ok(Outcome {
        early,
        started_unix_s: tuned.started_unix_s,
        record: tuned.record,
        viewer_results: tuned.seen,
        damaged,
        lateness,
        ..Outcome::new(plan.clone())
    })
}

/// What all runs share.
struct Lab<'a> {
    world: World,
    emulation: &'a Emulation,
    handler: &'a SignalHandler,
    thalweg: &'a Path,
    log: &'a (dyn Fn(&str) + Sync),
}

/// Results of one run.
struct Run {
    early: Option<EarlyEnd>,
    started_unix_s: f64,
    record: Record,
    seen: viewers::ViewerResults,
}

impl Lab<'_> {
    /// Starts the processes and the viewers, and records what is reported for `duration`, or until
    /// `is_done`. The proxy that damages bundles always runs, but only [`DAMAGED`] edges use it.
    fn run(&self, roles: Roles, duration: Duration, is_done: fn(&Record) -> bool) -> anyhow::Result<Run> {
        let Self { emulation, log, .. } = *self;
        let scenario = emulation.scenario();
        let networks = self.world.networks();
        let parts = Parts::start(emulation, self.thalweg, roles, self.world)?;
        emulation
            .run_on(Side::Server, || viewers::warm(scenario))?
            .map_err(|failure| anyhow::anyhow!("warming the edges: {failure}"))?;
        let ended = self.handler.forward_next();
        let (started, started_unix_s) = (Instant::now(), unix_s());
        let record = Mutex::new(Record::of(scenario));
        let poller = Poller { record, started_unix_s, is_done, log };
        let (stop, stopped) = watch::channel(());
        let (early, seen) = thread::scope(|scope| {
            let polling = scope.spawn(|| {
                emulation.run_on(Side::Server, || async {
                    tokio::select! {
                        polled = poller.run(stopped) => polled,
                        failed = damage::forward() => failed.map(|never| match never {}),
                    }
                })
            });
            let watching = emulation.run_on(Side::Clients, || async {
                let seen = RefCell::default();
                let early = tokio::select! {
                    () = viewers::watch(&networks, scenario, started, &seen) => None,
                    failure = change(emulation, started) => Some(failure),
                    // The poller is done, or it has failed, and dropped its receiver.
                    () = stop.closed() => None,
                    early = time_is_up(duration, ended) => early,
                };
                (early, seen.into_inner())
            });
            drop(stop);
            let polled = polling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (early, seen) = watching?;
            let failed = polled?.err().map(|failure| EarlyEnd::Failed(format!("{failure:#}")));
            anyhow::Ok((early.or(failed), seen))
        })?;
        drop(parts);
        Ok(Run { early, started_unix_s, record: poller.into_record(), seen })
    }
}

/// Changes the paths at their times. Returns only if that fails.
async fn change(emulation: &Emulation, started: Instant) -> EarlyEnd {
    for (path, change) in emulation.scenario().changes() {
        sleep_until((started + change.at).into()).await;
        if let Err(failure) = emulation.change(path, &change) {
            return EarlyEnd::Failed(failure.to_string());
        }
    }
    std::future::pending().await
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
