//! Live viewers at offsets into a live channel, over three edges and from three processes, more of them from step to step; and
//! beside them some at no offset, whose latency is that of the channel.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use tokio::time::sleep_until;

use super::processes::{LoadProcess, arguments, attend};
use super::servers::{self, ANY, Scratch};
use super::usage::{Meter, Usage};
use super::{Needs, Plan as Whole};
use crate::process::Running;

/// Edges, and processes that viewers are in: one may open 20,000 files on many a machine.
pub const EDGES: usize = 3;
/// What the channel is called.
const CHANNEL: &str = "live";
/// As published.
const SEGMENT: &str = "4s";
/// How much of the channel can be played back: the largest offset, and some to fall behind by.
const WINDOW: &str = "90s";
/// Until the channel is there, and until viewers who have joined play.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// More than processes are told to take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How viewers watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Viewers at no offset.
    pub at_edge: u64,
    /// The others are evenly between none and this.
    pub offset_max: Duration,
    /// They come evenly within so long.
    pub join_within: Duration,
    /// They leave after so long, from when the first one has come.
    pub watch: Duration,
}

/// What some viewers saw. Of times those of several processes are the worst of theirs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Seen {
    /// Who play at the end.
    pub playing: u64,
    /// Who are stalled then.
    pub stalled: u64,
    /// Who have given up, or have not begun to play.
    pub lost: u64,
    /// How often playback stalled.
    pub stalls: u64,
    /// Stalled by stalled and played.
    pub stall_ratio: f64,
    /// From joining to the first frame.
    pub startup_p50_ms: Option<f64>,
    /// Likewise.
    pub startup_p99_ms: Option<f64>,
    /// Wall clock minus the time of the shown frame.
    pub latency_p50_ms: Option<f64>,
    /// Likewise.
    pub latency_p99_ms: Option<f64>,
    /// What came.
    pub content_bytes: u64,
    /// In which time.
    pub seconds: f64,
    /// Requests that failed.
    pub errors: u64,
}

/// One number of viewers.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How many at offsets.
    pub viewers: u64,
    /// What they saw.
    pub crowd: Seen,
    /// What those at no offset saw.
    pub at_edge: Seen,
    /// What the edges used once all had joined.
    pub edges: Usage,
    /// What the processes of the viewers at offsets used then.
    pub clients: Usage,
}

impl Seen {
    /// On average, the time in which they joined included.
    pub fn gbit_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.content_bytes as f64 * 8e-9 / self.seconds } else { 0.0 }
    }

    fn with(self, other: Self) -> Self {
        Self {
            playing: self.playing + other.playing,
            stalled: self.stalled + other.stalled,
            lost: self.lost + other.lost,
            stalls: self.stalls + other.stalls,
            stall_ratio: self.stall_ratio.max(other.stall_ratio),
            startup_p50_ms: worst(self.startup_p50_ms, other.startup_p50_ms),
            startup_p99_ms: worst(self.startup_p99_ms, other.startup_p99_ms),
            latency_p50_ms: worst(self.latency_p50_ms, other.latency_p50_ms),
            latency_p99_ms: worst(self.latency_p99_ms, other.latency_p99_ms),
            content_bytes: self.content_bytes + other.content_bytes,
            seconds: self.seconds.max(other.seconds),
            errors: self.errors + other.errors,
        }
    }
}

fn worst(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// A live channel: an origin, and a source that pushes to it.
#[derive(Debug)]
pub(super) struct Channel {
    address: SocketAddr,
    begun: Instant,
    _source: Running,
    _origin: Running,
}

impl Channel {
    pub(super) fn start(needs: &Needs, scratch: &Scratch) -> anyhow::Result<Self> {
        let mut command = Command::new(&needs.thalweg);
        command.args(["origin", "--listen", ANY, "--window", WINDOW, "--segment-target", SEGMENT]);
        let (origin, address) = Running::start(command).context("the origin")?;
        let mut command = Command::new(&needs.thalweg);
        command.args(["source", "--to", &format!("http://{address}/ingest/{CHANNEL}"), "--media"]);
        command.arg(&needs.media);
        let said = File::create(scratch.path().join("source.said")).context("what the source says")?;
        let source = Running::spawn(command, said).context("the live source")?;
        Ok(Self { address, begun: Instant::now(), _source: source, _origin: origin })
    }

    /// Until there is something at all offsets.
    async fn is_long_enough(&self, plan: &Plan) {
        sleep_until((self.begun + plan.offset_max + SETTLED_AFTER).into()).await;
    }
}

/// All steps.
pub(super) async fn measure(
    plan: &Whole,
    needs: &Needs,
    channel: &Channel,
    scratch: &Scratch,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Vec<Step>> {
    tell("live viewers: until the channel is long enough");
    channel.is_long_enough(&plan.audience).await;
    let mut steps = Vec::new();
    for viewers in &plan.steps {
        tell(&format!("{viewers} live viewers"));
        let step = step(&plan.audience, *viewers, needs, channel, scratch).await;
        steps.push(step.with_context(|| format!("{viewers} live viewers"))?);
    }
    Ok(steps)
}

async fn step(
    plan: &Plan,
    viewers: u64,
    needs: &Needs,
    channel: &Channel,
    scratch: &Scratch,
) -> anyhow::Result<Step> {
    let mut edges = Vec::new();
    for _ in 0..EDGES {
        edges.push(servers::edge(needs, channel.address)?);
    }
    let mut all = Vec::new();
    for (number, (_, edge)) in (0..).zip(&edges) {
        let share = viewers / EDGES as u64 + u64::from(number < viewers % EDGES as u64);
        let name = format!("viewers-{number}");
        all.push(LoadProcess::start(
            scratch,
            &name,
            &viewers_of(plan, *edge, share, plan.offset_max, number),
        )?);
    }
    let at_edge = viewers_of(plan, edges[0].1, plan.at_edge, Duration::ZERO, EDGES as u64);
    all.push(LoadProcess::start(scratch, "viewers-at-edge", &at_edge)?);
    let (mut edges_meter, mut clients_meter, begun) = (Meter::default(), Meter::default(), Instant::now());
    attend(&mut all, &[0], plan.watch + PATIENCE, |all| {
        if begun.elapsed() >= (plan.join_within + SETTLED_AFTER).min(plan.watch / 2) {
            let now = Instant::now();
            edges_meter.look(now, edges.iter().map(|(edge, _)| edge.id()));
            clients_meter.look(now, all[..EDGES].iter().map(LoadProcess::id));
        }
    })
    .await?;
    let mut seen = Vec::new();
    for process in &all {
        seen.push(read(&process.figures()?)?);
    }
    let at_edge = seen.pop().context("viewers at no offset")?;
    let crowd = seen.into_iter().fold(Seen::default(), Seen::with);
    Ok(Step { viewers, crowd, at_edge, edges: edges_meter.usage(), clients: clients_meter.usage() })
}

/// What a process of viewers is told. Each has addresses of its own to come from.
fn viewers_of(
    plan: &Plan,
    edge: SocketAddr,
    viewers: u64,
    offset_max: Duration,
    number: u64,
) -> Vec<OsString> {
    let [offset_ms, join_ms, watch_ms] =
        [offset_max, plan.join_within, plan.watch].map(|span| span.as_millis());
    arguments(&format!(
        "watch http://{edge}/live/{CHANNEL}/manifest.mpd --viewers {viewers} --offsets 0s..{offset_ms}ms \
         --join-within {join_ms}ms --for {watch_ms}ms --source 127.0.{}.0/24",
        number + 1
    ))
}

/// What a process of viewers says.
fn read(json: &str) -> anyhow::Result<Seen> {
    let all: Value = serde_json::from_str(json).context("the figures of viewers")?;
    let count = |name: &str| all[name].as_u64().with_context(|| format!("the figures of viewers: {name}"));
    let quantile = |name: &str, quantile: &str| all[name][quantile].as_u64().map(|us| us as f64 / 1e3);
    let (viewers, playing, stalled) = (count("viewers")?, count("playing")?, count("stalled")?);
    let errors = all["errors"].as_object().context("the figures of viewers: errors")?;
    Ok(Seen {
        playing,
        stalled,
        lost: viewers.saturating_sub(playing + stalled),
        stalls: count("stalls")?,
        stall_ratio: all["stall_ratio"].as_f64().unwrap_or_default(),
        startup_p50_ms: quantile("startup_us", "p50"),
        startup_p99_ms: quantile("startup_us", "p99"),
        latency_p50_ms: quantile("live_latency_us", "p50"),
        latency_p99_ms: quantile("live_latency_us", "p99"),
        content_bytes: count("content_bytes")?,
        seconds: count("took_us")? as f64 / 1e6,
        errors: errors.values().filter_map(Value::as_u64).sum(),
    })
}
