//! Unified Streaming's publication (2020): an origin that packages from cloud storage, over a new
//! connection per storage request and over pooled connections.
//!
//! - [`content`]: a film and its ladder, made once.
//! - [`storage`]: the S3 servers, filled once.
//! - [`servers`]: the origin, and nginx as the practical limit.
//! - [`viewing`]: one run of viewers.
//! - [`limit`]: the origin's throughput beside nginx's for the same ranges.
//! - [`finished`]: the directory of finished runs, from which a series resumes.
//! - [`outcome`]: the results, and checks on them.
//!
//! The storage is on the server's side of an emulated path; the origin, nginx and all clients are
//! on the clients' side, where they reach each other over loopback.

pub mod content;
mod finished;
pub mod limit;
pub mod outcome;
mod servers;
pub mod storage;
pub mod viewing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use thalweg_netem::emulation::{Emulation, Lateness, Side, SignalHandler, SignalSetup};
use thalweg_netem::scenario::{Scenario, read};

pub use super::EarlyEnd;
use content::Film;
use finished::Finished;
pub use outcome::Outcome;
use storage::Storage;
pub use viewing::{Figures, Second, Times};

/// Publisher, year and subject.
pub const TITLE: &str = "Unified Streaming, 2020: an origin on cloud storage";
/// Parameters that the publication leaves open, and our choices.
pub const OPEN: &str = "\
Published: HLS and DASH are packaged just in time from fragmented MP4 on S3. Sending storage requests over kept-alive connections, \
instead of opening a connection for each, gave up to 24 % more throughput and up to 27 % shorter response times, fewer and steadier \
TCP connections, and less CPU and memory. One machine with two processors ran the origin, without a CDN or a cache; the film lasted 4,891 s \
at 24 fps; 5, 10, 20 or 50 users were added every 5 or 10 s, up to between 50 and 600; 250 runs. Left open: the bit rates, the distance and \
speed of the storage, what a user does, and which number of users belongs to which step. Chosen: video at 0.4, 0.9, 1.8 and 3.6 Mbit/s \
and audio at 128 kbit/s, in segments of 2 s; versitygw and MinIO instead of S3, behind an emulated path with a round trip of 24 ms and \
no bottleneck; 50 users in steps of 5, 120 of 10, 240 of 20 and 600 of 50; four rounds, which makes 256 runs. A user starts \
anywhere in the film, reads the manifests, and requests one segment of video after another without a pause, as in the load generator that \
the publishers have released, of the best track that arrives in time. Storage, path, origin and viewers share \
one machine, so that the origin has less of it than in the publication. Throughput is content received per second over a whole run; response times are \
from the request to its last byte. In the other arm, --storage-idle 0s makes the origin close each connection after one response. nginx \
is Debian's, as a proxy with keep-alive and without a cache; its clients request the same byte ranges that the origin reads for the segments \
that the origin's clients request.";

/// Round-trip time to cloud storage within a region: the facts that users report for S3's first
/// byte are 20 to 50 ms, of which the network is the smaller part; 24 ms is all of it here, since
/// the servers themselves respond at once.
const ROUND_TRIP: Duration = Duration::from_millis(24);
/// Time to start and stop the origin for a run, for the estimate.
const BETWEEN_RUNS: Duration = Duration::from_secs(2);
/// Time to make the content and to fill the storage, for the estimate.
const CONTENT: Duration = Duration::from_secs(15);

/// An S3 server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// Versity's S3 gateway over a file system.
    Versitygw,
    /// MinIO.
    Minio,
}

impl Store {
    /// Returns the name of the server and its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Versitygw => "versitygw",
            Self::Minio => "minio",
        }
    }
}

/// The format that viewers request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// HLS.
    Hls,
    /// DASH.
    Dash,
}

impl Format {
    /// Both formats.
    pub const ALL: [Self; 2] = [Self::Hls, Self::Dash];

    /// Returns the name used in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hls => "hls",
            Self::Dash => "dash",
        }
    }
}

/// How the origin uses connections to the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// A new connection for each request.
    Fresh,
    /// Connections are kept and used again.
    Pooled,
}

impl Arm {
    /// Both arms.
    pub const ALL: [Self; 2] = [Self::Fresh, Self::Pooled];

    /// Returns the name used in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Pooled => "pooled",
        }
    }
}

/// How users arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ramp {
    /// Users added at a time.
    pub step: usize,
    /// Seconds between steps.
    pub every_s: u64,
    /// Number of users at the end.
    pub users: usize,
}

impl Ramp {
    /// Returns the duration: each step lasts equally long, including the last.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.every_s * self.users.div_ceil(self.step) as u64)
    }

    /// Returns the ramp in words.
    pub fn words(self) -> String {
        format!("{} users every {} s, up to {}", self.step, self.every_s, self.users)
    }
}

/// The conditions that both arms are measured under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Conditions {
    /// The storage.
    pub store: Store,
    /// The format that viewers request.
    pub format: Format,
    /// How users arrive.
    pub ramp: Ramp,
}

impl Conditions {
    /// Returns the conditions in words.
    pub fn words(&self) -> String {
        format!("{}, {}, {}", self.store.name(), self.format.name(), self.ramp.words())
    }
}

/// One run of viewers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// Its conditions.
    pub conditions: Conditions,
    /// The round, counted from zero.
    pub round: usize,
    /// How the origin uses connections.
    pub arm: Arm,
}

impl Run {
    /// Returns a name for files, unique in a series.
    pub fn name(&self) -> String {
        let Conditions { store, format, ramp: Ramp { step, every_s, users } } = self.conditions;
        let (store, format, arm) = (store.name(), format.name(), self.arm.name());
        format!("{store}-{format}-{step}-every-{every_s}s-to-{users}-round-{}-{arm}", self.round + 1)
    }
}

/// A reproduction to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// S3 servers.
    pub stores: Vec<Store>,
    /// How users arrive, one kind after another.
    pub ramps: Vec<Ramp>,
    /// How often each run is repeated.
    pub rounds: usize,
    /// Duration of the film.
    pub film: Duration,
    /// The comparison with nginx.
    pub limit: limit::Plan,
}

/// Returns the plan, or a shorter one if `is_quick` is set.
pub fn plan(is_quick: bool) -> Plan {
    let seconds = Duration::from_secs;
    if is_quick {
        return Plan {
            stores: vec![Store::Versitygw],
            ramps: vec![Ramp { step: 2, every_s: 1, users: 14 }],
            rounds: 1,
            film: content::CLIP * 9,
            limit: limit::Plan { clients: 16, rounds: 3, duration: seconds(1) },
        };
    }
    let steps = [(5, 50), (10, 120), (20, 240), (50, 600)];
    let ramps = steps
        .into_iter()
        .flat_map(|(step, users)| [5, 10].into_iter().map(move |every_s| Ramp { step, every_s, users }));
    Plan {
        stores: vec![Store::Versitygw, Store::Minio],
        ramps: ramps.collect(),
        rounds: 4,
        film: content::CLIP * 73,
        limit: limit::Plan { clients: 32, rounds: 7, duration: seconds(10) },
    }
}

impl Plan {
    /// Returns all conditions.
    pub fn conditions(&self) -> impl Iterator<Item = Conditions> + '_ {
        let each = self.stores.iter().flat_map(|store| Format::ALL.map(|format| (*store, format)));
        each.flat_map(|(store, format)| {
            self.ramps.iter().map(move |ramp| Conditions { store, format, ramp: *ramp })
        })
    }

    /// Returns the runs at one S3 server in measuring order. The two arms follow each other, in
    /// alternating order, so that a change of the machine over time affects both alike.
    pub fn runs(&self, store: Store) -> Vec<Run> {
        let mut runs = Vec::new();
        for round in 0..self.rounds {
            for (index, conditions) in self.conditions().filter(|one| one.store == store).enumerate() {
                let mut arms = Arm::ALL;
                if (index + round) % 2 == 1 {
                    arms.reverse();
                }
                runs.extend(arms.map(|arm| Run { conditions, round, arm }));
            }
        }
        runs
    }

    /// Estimates how long the plan takes.
    pub fn duration(&self) -> Duration {
        let runs = self.stores.iter().flat_map(|store| self.runs(*store));
        let runs: Duration = runs.map(|run| run.conditions.ramp.duration() + BETWEEN_RUNS).sum();
        runs + self.limit.duration() + CONTENT
    }
}

/// Required programs and directories.
#[derive(Debug, Clone)]
pub struct Requirements {
    /// The delivery program.
    pub thalweg: PathBuf,
    /// Directory of the film and of the storage, kept between runs.
    pub cache: PathBuf,
    /// Directory of finished runs; `None` measures all runs and keeps none.
    pub finished: Option<PathBuf>,
}

/// Runs the plan and passes one line per run to `log`. If a signal or a failing program ends the
/// measurement early, the outcome contains the results so far.
///
/// # Errors
///
/// Returns an error if a requirement is missing, or if anything fails before the first run.
pub fn run(plan: &Plan, requirements: &Requirements, log: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
    servers::check()?;
    storage::check(&plan.stores)?;
    let cache = &requirements.cache;
    std::fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    let cache = cache.canonicalize().with_context(|| cache.display().to_string())?;
    let finished = requirements.finished.as_deref().map(|at| Finished::open(at, &requirements.thalweg));
    let finished = finished.transpose()?;
    let signals = SignalSetup::install()?;
    let emulation = Emulation::start(&scenario())?;
    let handler = signals.attach(&emulation);
    log("the film");
    let film = Film::make(&cache, plan.film)?;
    let lab = Lab { emulation: &emulation, handler: &handler, thalweg: &requirements.thalweg, log };
    let mut outcome = Outcome::new(plan.clone());
    let measured = plan
        .stores
        .iter()
        .try_for_each(|store| lab.at_store(&mut outcome, &cache, *store, &film, finished.as_ref()));
    emulation.count_missed();
    outcome.lateness = Lateness::of(emulation.directions(0));
    match measured {
        Err(failure) if outcome.runs.is_empty() && outcome.early.is_none() => return Err(failure),
        Err(failure) if outcome.early.is_none() => {
            outcome.early = Some(EarlyEnd::Failed(format!("{failure:#}")));
        }
        _ => {}
    }
    Ok(outcome)
}

/// Returns the path between the origin and the storage.
fn scenario() -> Scenario {
    let direction = format!("delay = \"{}ms\"\n", ROUND_TRIP.as_millis() / 2);
    let text = format!("[[path]]\nname = \"storage\"\n[path.down]\n{direction}[path.up]\n{direction}");
    read(&text, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("the scenario is valid")
}

/// What all runs share.
#[derive(Clone, Copy)]
struct Lab<'a> {
    emulation: &'a Emulation,
    handler: &'a SignalHandler,
    thalweg: &'a Path,
    log: &'a dyn Fn(&str),
}

impl Lab<'_> {
    /// Measures all runs at one S3 server, and at the first one the comparison with nginx. Ends
    /// early, with the outcome's reason set, on a signal.
    fn at_store(
        &self,
        outcome: &mut Outcome,
        cache: &Path,
        store: Store,
        film: &Film,
        finished: Option<&Finished>,
    ) -> anyhow::Result<()> {
        if outcome.early.is_some() {
            return Ok(());
        }
        (self.log)(&format!("{}: starting, and storing the film", store.name()));
        let storage = Storage::start(self.emulation, cache, store, film).context(store.name())?;
        let runs = outcome.plan.runs(store);
        for (index, run) in runs.iter().enumerate() {
            let name = run.name();
            if let Some(figures) = finished.and_then(|finished| finished.read(&name)) {
                outcome.runs.insert(*run, figures);
                continue;
            }
            (self.log)(&format!("run {} of {} at {}: {name}", index + 1, runs.len(), store.name()));
            let (figures, signal) = viewing::measure(self, run, &storage, film).context(name.clone())?;
            if let Some(signal) = signal {
                outcome.early = Some(EarlyEnd::Interrupted(signal.as_raw()));
                return Ok(());
            }
            if let Some(finished) = finished {
                finished.write(&name, &figures)?;
            }
            outcome.runs.insert(*run, figures);
        }
        if outcome.limit.is_empty() {
            (self.log)("the origin beside nginx");
            outcome.limit = limit::measure(self, outcome.plan.limit, &storage, film).context("nginx")?;
        }
        Ok(())
    }
}

/// Side of the origin, nginx and all clients.
const NEAR: Side = Side::Clients;
/// Side of the storage.
const FAR: Side = Side::Server;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_plan_matches_the_publication() {
        let plan = plan(false);
        assert_eq!(plan.film, Duration::from_secs(4891));
        let runs: Vec<_> = plan.stores.iter().flat_map(|store| plan.runs(*store)).collect();
        let mut names: Vec<_> = runs.iter().map(Run::name).collect();
        names.sort();
        names.dedup();
        assert_eq!((runs.len(), names.len()), (256, 256), "every run has a file of its own");
        assert!(runs.chunks(2).all(|pair| pair[0].conditions == pair[1].conditions));
        let first_fresh = runs.iter().step_by(2).filter(|run| run.arm == Arm::Fresh).count();
        assert_eq!(first_fresh, 64, "each arm comes first in half of the pairs");
    }

    #[test]
    fn path_has_the_round_trip_of_cloud_storage() {
        assert_eq!(scenario().paths[0].round_trip_min(), ROUND_TRIP);
    }
}
