//! Live viewers at offsets into a live channel, over three edges and from three processes, more of them from step to step; and
//! beside them some at no offset, whose latency is that of the channel.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep_until;

use super::Bench;
use super::processes::{LoadProcess, arguments, attend};
use super::servers::{self, ANY};
use super::usage::{Meter, Usage};
use crate::load::Clock;
use crate::load::figures::{Figures, Time};
use crate::load::report::from_json;
use crate::process::Running;

/// Edges, and processes that viewers are in: one may open 20,000 files on many a machine.
pub const EDGES: usize = 3;
/// What the channel is called.
const CHANNEL: &str = "live";
/// As published.
const SEGMENT: &str = "4s";
/// What a live source says once the origin takes its media.
const SOURCE_SAYS: &str = "upload begins";
/// How much of the channel can be played back: the largest offset, and some to fall behind by.
const WINDOW: &str = "90s";
/// Until the channel is there, and until viewers who have joined play.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Of Unix time.
const US_PER_S: u64 = 1_000_000;
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

/// What some viewers saw.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Seen {
    /// Who play at the end.
    pub playing: u64,
    /// Who are stalled then.
    pub stalled: u64,
    /// Who have given up, or not begun to play.
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
    /// What came once all had joined.
    pub gbit_per_s: f64,
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
    /// Of `viewers` by their figures; in these seconds of Unix time all were there.
    fn of(figures: &Figures, viewers: u64, seconds: Range<u64>) -> Self {
        let ms = |time, quantile| Some(figures.time(time)?.value_at_quantile(quantile) as f64 / 1e3);
        let did = figures.viewers.unwrap_or_default();
        let (playing, stalled) = (did.now.playing, did.now.stalled);
        let bytes: u64 = figures.seconds.range(seconds.clone()).map(|(_, second)| second.content_bytes).sum();
        Self {
            playing,
            stalled,
            lost: viewers.saturating_sub(playing + stalled),
            stalls: did.totals.stalls,
            stall_ratio: did.totals.stall_ratio(),
            startup_p50_ms: ms(Time::Startup, 0.5),
            startup_p99_ms: ms(Time::Startup, 0.99),
            latency_p50_ms: ms(Time::LiveLatency, 0.5),
            latency_p99_ms: ms(Time::LiveLatency, 0.99),
            gbit_per_s: bytes as f64 * 8e-9 / (seconds.end - seconds.start).max(1) as f64,
            errors: figures.errors_total(),
        }
    }
}

impl Plan {
    /// When all are there and play, from the beginning; what processes take to start comes on top, so none has left by its end.
    fn held(&self) -> Range<Duration> {
        self.watch.min(self.join_within + SETTLED_AFTER)..self.watch
    }
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
    pub(super) fn start(bench: &Bench<'_>) -> anyhow::Result<Self> {
        let needs = bench.needs;
        let mut command = Command::new(&needs.thalweg);
        command.args(["origin", "--listen", ANY, "--window", WINDOW, "--segment-target", SEGMENT]);
        let (origin, address) = Running::start(command).context("the origin")?;
        let mut command = Command::new(&needs.thalweg);
        command.args(["source", "--to", &format!("http://{address}/ingest/{CHANNEL}"), "--media"]);
        command.arg(&needs.media).env_remove("THALWEG_LOG");
        let source = Running::start_saying(command, SOURCE_SAYS).context("the live source")?;
        Ok(Self { address, begun: Instant::now(), _source: source, _origin: origin })
    }

    /// Until there is something at all offsets.
    async fn is_long_enough(&self, plan: &Plan) {
        sleep_until((self.begun + plan.offset_max + SETTLED_AFTER).into()).await;
    }
}

/// All steps.
pub(super) async fn measure(
    bench: &Bench<'_>,
    channel: &Channel,
    steps: &mut Vec<Step>,
) -> anyhow::Result<()> {
    (bench.tell)("live viewers: until the channel is long enough");
    channel.is_long_enough(&bench.plan.audience).await;
    for viewers in &bench.plan.steps {
        (bench.tell)(&format!("{viewers} live viewers"));
        let step = step(bench, *viewers, channel).await;
        steps.push(step.with_context(|| format!("{viewers} live viewers"))?);
    }
    Ok(())
}

async fn step(bench: &Bench<'_>, viewers: u64, channel: &Channel) -> anyhow::Result<Step> {
    let Bench { plan: super::Plan { audience: plan, .. }, needs, scratch, .. } = bench;
    let mut edges = Vec::new();
    for _ in 0..EDGES {
        edges.push(servers::edge(needs, channel.address)?);
    }
    let (clock, begun, held) = (Clock::start(), Instant::now(), plan.held());
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
    let (mut edges_meter, mut clients_meter) = (Meter::default(), Meter::default());
    // Some requests may fail: they are told.
    attend(&mut all, &[0, 1], plan.watch + PATIENCE, |all| {
        let now = Instant::now();
        if held.contains(&(now - begun)) {
            edges_meter.look(now, edges.iter().map(|(edge, _)| edge.id()));
            clients_meter.look(now, all[..EDGES].iter().map(LoadProcess::id));
        }
    })
    .await?;
    let at_edge = figures(&all.split_off(EDGES))?;
    let crowd = figures(&all)?;
    // Whole seconds.
    let [begin_us, end_us] = [held.start, held.end].map(|after| clock.unix_us(begun + after));
    let end_s = end_us / US_PER_S;
    let seconds = begin_us.div_ceil(US_PER_S).min(end_s)..end_s;
    Ok(Step {
        viewers,
        crowd: Seen::of(&crowd, viewers, seconds.clone()),
        at_edge: Seen::of(&at_edge, plan.at_edge, seconds),
        edges: edges_meter.usage(),
        clients: clients_meter.usage(),
    })
}

/// What processes of viewers have measured together.
fn figures(processes: &[LoadProcess]) -> anyhow::Result<Figures> {
    let mut all = Figures::default();
    for process in processes {
        let figures = from_json(&process.figures()?).context("the figures of viewers")?;
        all.check_merge(&figures).map_err(anyhow::Error::msg)?;
        all.merge(&figures);
    }
    Ok(all)
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
        "load --viewers --clients {viewers} --offsets 0s..{offset_ms}ms --join-within {join_ms}ms --duration {watch_ms}ms \
         --source 127.0.{}.0/24 http://{edge}/live/{CHANNEL}/manifest.mpd",
        number + 1
    ))
}
