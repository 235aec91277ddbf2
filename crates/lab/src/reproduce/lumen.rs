//! Lumen's publication (2021): low-latency DASH through a content network, by filling from memory instead of waiting for a lock.
//!
//! - [`servers`]: both caches, the backend, and a live channel, as processes on loopback.
//! - [`joiners`]: what clients wait that ask for a segment while it is filled.
//! - [`relay`]: how long a chunk takes through two tiers.
//! - [`throughput`]: what one edge sends, segment after segment.
//! - [`audience`]: live viewers at offsets, up to 50,000, over three edges.
//! - [`headlines`]: what was published, and what it is here.
//! - [`processes`] and [`usage`]: the processes that make load, and what processes use.

pub mod audience;
mod headlines;
pub mod joiners;
mod processes;
pub mod relay;
mod servers;
mod stamps;
pub mod throughput;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cc::statistics::{of_sorted, told};
use crate::signals::Signals;

pub use super::Early;
pub use headlines::headlines;
pub use usage::Usage;

/// Who published what.
pub const TITLE: &str = "Lumen, 2021: low-latency DASH through a content network";
/// What it leaves open, and what was chosen.
pub const OPEN: &str = "\
Published: with nginx's cache lock the time to first byte had a bump at 500 ms; with fills served from memory its p95 is under 70 ms. \
4 s segments go chunk by chunk, each of 500 ms, over edge, mid tier and origin, in under 5 s glass to glass. Load by wrk with Lua: \
over 50,000 clients at various offsets into a live stream, over 100 Gbit/s. Left open: bit rates, how joiners are spread, how long \
fills take, what machines and networks these were, how far apart offsets are. Chosen: all on loopback of one machine, so no network \
delay is in any figure and clients share the processors with servers; 1 Mbit/s in chunks of 64 kB; joiners spread evenly over fills \
of 200 ms and of a segment, those left out who ask when it has ended; nginx of Debian with proxy_cache_lock on, and other than in Debian's \
nginx.conf with one worker, 19,000 connections, no access log and no gzip, and HTTP/1.1 to the backend; live viewers evenly at offsets up to 60 s (at a first look 15 s) over three \
edges, from three processes, each taking the best track that comes in time; Gbit/s also by 32 clients that ask one edge for 5 MB again and again. Live latency is \
from the live source to the playhead of viewers at no offset: no camera, encoder, decoder or screen. What joiners of one fill wait \
depends on each other, so there are no intervals.";
/// The two caches that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// Ours: joiners read what is being filled.
    Thalweg,
    /// Debian's: joiners wait for its lock.
    Nginx,
}

impl Cache {
    /// Both.
    pub const ALL: [Cache; 2] = [Cache::Thalweg, Cache::Nginx];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Thalweg => "thalweg",
            Cache::Nginx => "nginx",
        }
    }
}

/// Content that is made chunk by chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// In tables.
    pub name: &'static str,
    /// How many chunks.
    pub chunks: u32,
    /// Bytes of each.
    pub chunk_bytes: u64,
    /// Between two of them.
    pub every: Duration,
}

/// A segment of 4 s as it is made, as published, at 1 Mbit/s.
pub const SEGMENT: Fill =
    Fill { name: "segment, 3.5 s", chunks: 8, chunk_bytes: 64_000, every: Duration::from_millis(500) };
/// A fill that is over before nginx looks again.
pub const SHORT: Fill =
    Fill { name: "short, 200 ms", chunks: 11, chunk_bytes: 16_000, every: Duration::from_millis(20) };

impl Fill {
    /// From its first chunk to its last.
    pub fn duration(&self) -> Duration {
        self.every * (self.chunks - 1)
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        u64::from(self.chunks) * self.chunk_bytes
    }

    /// The path and query by which `load serve` makes it; each number is a response of its own.
    pub fn target(&self, number: usize) -> String {
        let (bytes, chunk, every) = (self.bytes(), self.chunk_bytes, self.every.as_millis());
        format!("/segment?bytes={bytes}&chunk={chunk}B&every={every}ms&stamp&number={number}")
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Times that each fill is joined, at each cache.
    pub rounds: usize,
    /// Joiners of each.
    pub joiners: usize,
    /// Segments that go over two tiers.
    pub segments: usize,
    /// Clients that ask for each.
    pub relay_clients: usize,
    /// How long one edge sends segments.
    pub throughput: Duration,
    /// Numbers of live viewers, one after the other.
    pub steps: Vec<u64>,
    /// How they watch.
    pub audience: audience::Plan,
}

/// The plan; `is_quick` for a first look.
pub fn plan(is_quick: bool) -> Plan {
    let seconds = Duration::from_secs;
    if is_quick {
        let audience = audience::Plan {
            at_edge: 12,
            offset_max: seconds(15),
            join_within: seconds(2),
            watch: seconds(10),
        };
        return Plan {
            rounds: 1,
            joiners: 80,
            segments: 1,
            relay_clients: 20,
            throughput: seconds(3),
            steps: vec![60],
            audience,
        };
    }
    let audience =
        audience::Plan { at_edge: 60, offset_max: seconds(60), join_within: seconds(40), watch: seconds(90) };
    Plan {
        rounds: 5,
        joiners: 100,
        segments: 12,
        relay_clients: 20,
        throughput: seconds(10),
        steps: vec![1_000, 10_000, 50_000],
        audience,
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Outcome {
    /// What was asked for.
    pub plan: Plan,
    /// Why it is not all of that, where it is not.
    pub early: Option<Early>,
    /// Each joiner.
    pub joiners: Vec<joiners::Joiner>,
    /// Each chunk at each client.
    pub chunks: Vec<relay::Chunk>,
    /// What one edge has sent.
    pub throughput: Option<throughput::Throughput>,
    /// Each number of viewers.
    pub steps: Vec<audience::Step>,
}

/// The programs and media that are needed.
#[derive(Debug, Clone)]
pub struct Needs {
    /// The delivery program.
    pub thalweg: PathBuf,
    /// A presentation that is made a live channel: a directory of CMAF tracks.
    pub media: PathBuf,
}

/// Files of a process beside those of its viewers: those of edges towards origins, mostly.
const FILES_BESIDE: u64 = 1_000;

/// Measures it. `tell` hears what is being measured. A signal, or a program that ends, or a response that is not what it has to be,
/// ends the measuring; what is there by then is the outcome.
///
/// # Errors
/// If it cannot begin: something is missing, or fails before anything is measured.
pub fn run(plan: &Plan, needs: &Needs, tell: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
    check(plan, needs)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut outcome = Outcome::new(plan.clone());
    runtime.block_on(async {
        let mut signals = Signals::take()?;
        // All that was started is gone with what was measuring.
        let done = tokio::select! {
            done = measure(needs, tell, &mut outcome) => done,
            signal = signals.next() => {
                outcome.early = Some(Early::Interrupted(signal.as_raw()));
                return Ok(());
            }
        };
        match done {
            Err(failure) if outcome.joiners.is_empty() => return Err(failure),
            Err(failure) => outcome.early = Some(Early::Failed(format!("{failure:#}"))),
            Ok(()) => {}
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// Says what is missing before anything is started.
fn check(plan: &Plan, needs: &Needs) -> anyhow::Result<()> {
    servers::check()?;
    ensure!(
        needs.media.is_dir(),
        "{}: there is no presentation: name a directory of CMAF tracks with --media",
        needs.media.display()
    );
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is still looked at. What is started has the same limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let viewers = plan.steps.iter().max().copied().unwrap_or(0);
    let needed = viewers.div_ceil(audience::EDGES as u64) + FILES_BESIDE;
    ensure!(
        needed <= may,
        "{viewers} viewers need {needed} files in each process and it may open {may}: raise `ulimit -Hn`"
    );
    Ok(())
}

/// What all measurements have in common.
struct Bench<'a> {
    plan: &'a Plan,
    needs: &'a Needs,
    scratch: servers::Scratch,
    tell: &'a dyn Fn(&str),
}

async fn measure(needs: &Needs, tell: &dyn Fn(&str), outcome: &mut Outcome) -> anyhow::Result<()> {
    let bench = Bench { plan: &outcome.plan, needs, scratch: servers::Scratch::make()?, tell };
    // On air from the beginning, so that there is something behind the live edge once viewers come.
    let channel = audience::Channel::start(&bench)?;
    let backend = servers::Backend::start()?;
    joiners::measure(&bench, &backend, &mut outcome.joiners).await?;
    relay::measure(&bench, &backend, &mut outcome.chunks).await?;
    let throughput = throughput::measure(&bench, &backend).await;
    outcome.throughput = Some(throughput.context("throughput of one edge")?);
    drop(backend);
    audience::measure(&bench, &channel, &mut outcome.steps).await
}

/// Some quantiles of times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    /// Of how many.
    pub count: usize,
    /// The median.
    pub p50: f64,
    /// The others, if there are enough samples for an interval that assumes nothing.
    pub p95: Option<f64>,
    /// Likewise.
    pub p99: Option<f64>,
    /// The greatest.
    pub max: f64,
}

impl Quantiles {
    /// Of these times; `None` of none.
    pub fn of(times_ms: &[f64]) -> Option<Self> {
        let mut sorted = times_ms.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            max: *sorted.last()?,
            count: sorted.len(),
            p50: of_sorted(&sorted, 0.5),
            p95: told(&sorted, 0.95),
            p99: told(&sorted, 0.99),
        })
    }
}

/// A time in milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Outcome {
    /// Nothing yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            early: None,
            joiners: Vec::new(),
            chunks: Vec::new(),
            throughput: None,
            steps: Vec::new(),
        }
    }

    /// The program's exit status: of a signal as the shell has it, 1 if not all could be measured.
    pub fn exit_status(&self) -> u8 {
        self.early.as_ref().map_or(0, Early::exit_status)
    }

    /// Times to first byte of the joiners of that fill, in milliseconds, those left out who came when it had ended.
    pub fn waits_ms(&self, cache: Cache, fill: Fill) -> Vec<f64> {
        let in_time = self.joiners_of(cache, fill).filter(|joiner| !joiner.is_late);
        in_time.map(|joiner| ms(joiner.ttfb)).collect()
    }

    /// How many of the joiners of that fill came when it had ended, and how many there are in all.
    pub fn late(&self, cache: Cache, fill: Fill) -> (usize, usize) {
        let late = self.joiners_of(cache, fill).filter(|joiner| joiner.is_late).count();
        (late, self.joiners_of(cache, fill).count())
    }

    fn joiners_of(&self, cache: Cache, fill: Fill) -> impl Iterator<Item = &joiners::Joiner> {
        self.joiners.iter().filter(move |joiner| joiner.cache == cache && joiner.fill == fill)
    }

    /// Delays of chunks through two such tiers, in milliseconds.
    pub fn delays_ms(&self, cache: Cache) -> Vec<f64> {
        let of = self.chunks.iter().filter(|chunk| chunk.cache == cache);
        of.map(|chunk| ms(chunk.delay)).collect()
    }
}
