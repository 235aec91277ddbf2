//! Lumen's publication (2021): low-latency DASH through a content network that serves fills from
//! memory instead of waiting for a lock.
//!
//! - [`servers`]: both caches, the backend and a live channel, as processes on loopback.
//! - [`joiners`]: waits of clients that request a segment while it is being filled.
//! - [`relay`]: chunk delay through two tiers.
//! - [`throughput`]: throughput of one edge that sends segment after segment.
//! - [`script`]: clients of a wrk script that reads the manifest.
//! - [`audience`]: up to 50,000 live viewers at various offsets, over three edges.
//! - [`headlines`]: the published figures and those measured here.
//! - [`processes`]: load-generating processes.

pub mod audience;
mod headlines;
pub mod joiners;
mod processes;
pub mod relay;
pub mod script;
mod servers;
mod stamps;
pub mod throughput;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use thalweg_load::files_max;
use thalweg_load::serve::Server;
use thalweg_netem::signals::Signals;

use crate::cc::statistics::{is_supported, quantile_of_sorted, supported_quantile};

pub use super::EarlyEnd;
pub use super::usage::Usage;
pub use headlines::{LOCK_MS, TTFB_P95_MS, headlines};

/// Publisher, year and subject.
pub const TITLE: &str = "Lumen, 2021: low-latency DASH through a content network";
/// Parameters that the publication leaves open, and our choices.
pub const OPEN: &str = "\
Published: with nginx's cache lock, the time to first byte had a bump at 500 ms; with fills served from memory, its p95 is under \
70 ms. Segments of 4 s are delivered in chunks of 500 ms through an edge, a mid tier and an origin, in under 5 s from glass to \
glass. wrk with Lua generated the load: over 50,000 clients at various offsets into a live stream, over 100 Gbit/s. Left open: bit \
rates, the distribution of joiners, the duration of fills, the machines and networks, and the spread of offsets. Chosen: \
everything runs on loopback on one machine, so no figure includes network delay, and clients share the processors with the \
servers. Segments are produced at 1 Mbit/s in chunks of 64 kB. Joiners are spread evenly over fills that last 200 ms or a whole \
segment; those that send their request after the end of the fill are excluded. nginx is Debian's, with proxy_cache_lock on and, \
unlike in Debian's nginx.conf, one worker, 19,000 connections, no access log, no gzip, and HTTP/1.1 to the backend. Live viewers \
are spread evenly over offsets up to 60 s (15 s in the quick version), on three edges and from three processes; each chooses the \
best track that arrives in time. A wrk script that reads the manifest also requests segments at these offsets, each client about one \
segment per segment duration. Throughput is also measured with 32 clients that repeatedly request 5 MB from one edge. Live \
latency is measured from the live source to the playhead of viewers at no offset, without camera, encoder, decoder or screen. The \
waits of one fill's joiners depend on each other, so no intervals are given.";
/// The caches compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// Our edge: joiners read the fill in progress.
    Thalweg,
    /// Debian's nginx: joiners wait for its cache lock.
    Nginx,
}

impl Cache {
    /// Both caches.
    pub const ALL: [Cache; 2] = [Cache::Thalweg, Cache::Nginx];

    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Thalweg => "thalweg",
            Cache::Nginx => "nginx",
        }
    }
}

/// A response that is produced chunk by chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Name used in tables.
    pub name: &'static str,
    /// Number of chunks.
    pub chunks: u32,
    /// Size of each chunk in bytes.
    pub chunk_bytes: u64,
    /// Interval between chunks.
    pub every: Duration,
}

/// A 4 s segment, as published, filled while being produced at 1 Mbit/s.
pub const SEGMENT: Fill =
    Fill { name: "segment, 3.5 s", chunks: 8, chunk_bytes: 64_000, every: Duration::from_millis(500) };
/// A fill that completes before nginx checks its lock again.
pub const SHORT: Fill =
    Fill { name: "short, 200 ms", chunks: 11, chunk_bytes: 16_000, every: Duration::from_millis(20) };

impl Fill {
    /// Returns the time from the first chunk to the last.
    pub fn duration(&self) -> Duration {
        self.every * (self.chunks - 1)
    }

    /// Returns the total number of bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.chunks) * self.chunk_bytes
    }

    /// Returns the path and query with which `load serve` produces this fill. Each `number` selects
    /// a separate response.
    pub fn target(&self, number: usize) -> String {
        let (bytes, chunk, every) = (self.bytes(), self.chunk_bytes, self.every.as_millis());
        format!("/segment?bytes={bytes}&chunk={chunk}B&every={every}ms&stamp&number={number}")
    }
}

/// A reproduction to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Rounds per fill and cache.
    pub rounds: usize,
    /// Joiners per fill.
    pub joiners: usize,
    /// Number of segments to send through two tiers.
    pub segments: usize,
    /// Clients that request each relayed segment.
    pub relay_clients: usize,
    /// How long to measure the throughput of one edge.
    pub throughput: Duration,
    /// Clients of the wrk script, and how long they run.
    pub script: script::Plan,
    /// Number of live viewers in each step.
    pub steps: Vec<u64>,
    /// How the viewers watch.
    pub audience: audience::Plan,
}

/// Returns the plan, or a shorter one if `is_quick` is set.
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
            script: script::Plan { clients: 120, duration: seconds(8) },
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
        script: script::Plan { clients: 1_000, duration: seconds(60) },
        steps: vec![1_000, 10_000, 50_000],
        audience,
    }
}

impl Plan {
    /// Estimates how long the plan takes.
    pub fn duration(&self) -> Duration {
        let caches = Cache::ALL.len() as u32;
        // A joiner waits for the rest of the fill, or for nginx to check its lock once more.
        let fills = [SHORT, SEGMENT].map(|fill| fill.duration() + SEGMENT.every).iter().sum::<Duration>();
        let joiners = fills * caches * self.rounds as u32;
        let relay = (SEGMENT.duration() + SEGMENT.every) * caches * self.segments as u32;
        let before = joiners + relay + self.throughput;
        let steps = self.audience.step_duration() * self.steps.len() as u32;
        before.max(self.audience.fill_duration()) + self.script.duration + steps
    }
}

/// Results of a reproduction.
#[derive(Debug)]
pub struct Outcome {
    /// The measured plan.
    pub plan: Plan,
    /// Reason why measuring ended early; `None` if the plan was completed.
    pub early: Option<EarlyEnd>,
    /// All joiners.
    pub joiners: Vec<joiners::Joiner>,
    /// Delays of all chunks at all clients.
    pub chunks: Vec<relay::Chunk>,
    /// The throughput of one edge.
    pub throughput: Option<throughput::Throughput>,
    /// Results of the wrk script.
    pub script: Option<script::Scripted>,
    /// All steps of live viewers.
    pub steps: Vec<audience::Step>,
}

/// Required programs and media.
#[derive(Debug, Clone)]
pub struct Requirements {
    /// The delivery program.
    pub thalweg: PathBuf,
    /// The presentation to broadcast as a live channel: a directory of CMAF tracks.
    pub media: PathBuf,
}

/// Number of open files that a process needs besides those of its viewers, mostly for an edge's
/// connections to origins.
const FILES_BESIDE: u64 = 1_000;

/// Runs the plan and passes one line per step to `log`. If a signal, an exiting program or a wrong
/// response ends the measurement early, the outcome contains the results so far.
///
/// # Errors
///
/// Returns an error if a requirement is missing, or if anything fails before the first measurement.
pub fn run(plan: &Plan, requirements: &Requirements, log: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
    check(plan, requirements)?;
    let (runtime, mut signals) = Signals::install()?;
    let mut outcome = Outcome::new(plan.clone());
    runtime.block_on(async {
        // Dropping the measurement also kills the processes it started.
        let done = tokio::select! {
            done = measure(requirements, log, &mut outcome) => done,
            signal = signals.next() => {
                outcome.early = Some(EarlyEnd::Interrupted(signal.as_raw()));
                return Ok(());
            }
        };
        match done {
            Err(failure) if outcome.joiners.is_empty() => return Err(failure),
            Err(failure) => outcome.early = Some(EarlyEnd::Failed(format!("{failure:#}"))),
            Ok(()) => {}
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// Checks the requirements before starting anything.
fn check(plan: &Plan, requirements: &Requirements) -> anyhow::Result<()> {
    servers::check()?;
    ensure!(
        requirements.media.is_dir(),
        "{}: no such presentation: pass a directory of CMAF tracks with --media",
        requirements.media.display()
    );
    let may = files_max();
    let viewers = plan.steps.iter().max().copied().unwrap_or(0);
    let needed = viewers.div_ceil(audience::EDGES as u64) + FILES_BESIDE;
    ensure!(
        needed <= may,
        "{viewers} viewers need {needed} open files in each process, but the limit is {may}: raise `ulimit -Hn`"
    );
    Ok(())
}

/// State shared by all measurements.
struct Bench<'a> {
    plan: &'a Plan,
    requirements: &'a Requirements,
    scratch: servers::Scratch,
    log: &'a dyn Fn(&str),
}

async fn measure(
    requirements: &Requirements,
    log: &dyn Fn(&str),
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let bench = Bench { plan: &outcome.plan, requirements, scratch: servers::Scratch::make()?, log };
    // Start the channel first, so that there is media behind the live edge when viewers join.
    let channel = audience::Channel::start(&bench)?;
    let backend = Server::start((Ipv4Addr::LOCALHOST, 0).into(), 1).context("cannot start the backend")?;
    joiners::measure(&bench, backend.address(), &mut outcome.joiners).await?;
    relay::measure(&bench, backend.address(), &mut outcome.chunks).await?;
    let throughput = throughput::measure(&bench, backend.address()).await;
    outcome.throughput = Some(throughput.context("throughput of one edge")?);
    drop(backend);
    channel.fill(&bench).await;
    let script = script::measure(&bench, &channel).await;
    outcome.script = Some(script.context("wrk script")?);
    audience::measure(&bench, &channel, &mut outcome.steps).await
}

/// Quantiles of times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    /// Number of samples.
    pub count: usize,
    /// The median.
    pub p50: f64,
    /// The 95th percentile, if there are enough samples for a distribution-free interval.
    pub p95: Option<f64>,
    /// The 99th percentile, if there are enough samples for a distribution-free interval.
    pub p99: Option<f64>,
    /// The maximum.
    pub max: f64,
}

impl Quantiles {
    /// Returns the quantiles, or `None` if `times_ms` is empty.
    pub fn of(times_ms: &[f64]) -> Option<Self> {
        let mut sorted = times_ms.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            max: *sorted.last()?,
            count: sorted.len(),
            p50: quantile_of_sorted(&sorted, 0.5),
            p95: supported_quantile(&sorted, 0.95),
            p99: supported_quantile(&sorted, 0.99),
        })
    }
}

impl Quantiles {
    /// Returns the quantiles of times in microseconds, or `None` without times.
    pub fn of_histogram(times_us: &Histogram<u64>) -> Option<Self> {
        let count = usize::try_from(times_us.len()).ok().filter(|count| *count > 0)?;
        let at = |quantile| times_us.value_at_quantile(quantile) as f64 / 1e3;
        let supported = |quantile| is_supported(count, quantile).then(|| at(quantile));
        let (p95, p99) = (supported(0.95), supported(0.99));
        Some(Self { count, p50: at(0.5), p95, p99, max: times_us.max() as f64 / 1e3 })
    }
}

/// Converts a time to milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Outcome {
    /// Creates an outcome without measurements.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            early: None,
            joiners: Vec::new(),
            chunks: Vec::new(),
            throughput: None,
            script: None,
            steps: Vec::new(),
        }
    }

    /// Returns the program's exit status: 0 if the plan was completed, 128 plus the signal number
    /// after a signal, otherwise 1.
    pub fn exit_status(&self) -> u8 {
        self.early.as_ref().map_or(0, EarlyEnd::exit_status)
    }

    /// Returns the joiners' times to first byte for a fill, in milliseconds, excluding joiners
    /// whose request was sent after the end of the fill.
    pub fn waits_ms(&self, cache: Cache, fill: Fill) -> Vec<f64> {
        let in_time = self.joiners_of(cache, fill).filter(|joiner| !joiner.is_late);
        in_time.map(|joiner| ms(joiner.ttfb)).collect()
    }

    /// Returns the number of joiners whose request was sent after the end of the fill, and the
    /// total number of joiners.
    pub fn late(&self, cache: Cache, fill: Fill) -> (usize, usize) {
        let late = self.joiners_of(cache, fill).filter(|joiner| joiner.is_late).count();
        (late, self.joiners_of(cache, fill).count())
    }

    fn joiners_of(&self, cache: Cache, fill: Fill) -> impl Iterator<Item = &joiners::Joiner> {
        self.joiners.iter().filter(move |joiner| joiner.cache == cache && joiner.fill == fill)
    }

    /// Returns the chunk delays through two tiers of a cache, in milliseconds.
    pub fn delays_ms(&self, cache: Cache) -> Vec<f64> {
        let of = self.chunks.iter().filter(|chunk| chunk.cache == cache);
        of.map(|chunk| ms(chunk.delay)).collect()
    }
}
