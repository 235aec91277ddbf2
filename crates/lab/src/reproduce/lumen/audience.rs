//! Live viewers at various offsets behind the live edge: over three edges and from three processes,
//! with more viewers in each step. A few viewers at no offset measure the channel's latency.

use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use thalweg_load::Clock;
use thalweg_load::figures::{Figures, Second, Time};
use thalweg_load::report::from_json;
use tokio::time::sleep_until;

use super::Bench;
use super::processes::{LoadProcess, attend};
use super::servers::{self, ANY};
use crate::process::ChildProcess;
use crate::reproduce::usage::{Meter, Usage};

/// Number of edges, and of viewer processes. One would not suffice, because on many machines a
/// process can open only 20,000 files.
pub const EDGES: usize = 3;
/// Channel name.
const CHANNEL: &str = "live";
/// Published segment duration.
const SEGMENT: &str = "4s";
/// Message logged by a live source when it starts to upload a track.
const SOURCE_READY: &str = "upload begins";
/// DVR window of the channel: the maximum offset, plus room to fall behind.
const WINDOW: &str = "90s";
/// Time for the channel to start, and for joined viewers to start playing.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Minimum responses for a 95th percentile: with 20, one is above it.
const P95_RESPONSES_MIN: u64 = 20;
const US_PER_S: u64 = 1_000_000;
/// Extra time allowed for processes to exit.
const PATIENCE: Duration = Duration::from_secs(120);

/// How viewers watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Viewers at no offset.
    pub at_edge: u64,
    /// Maximum offset; the other viewers are spread evenly up to it.
    pub offset_max: Duration,
    /// Time over which viewers join evenly.
    pub join_within: Duration,
    /// Time from the start until all viewers leave.
    pub watch: Duration,
}

/// Playback quality of a group of viewers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ViewerStats {
    /// Viewers playing at the end.
    pub playing: u64,
    /// Viewers stalled at the end.
    pub stalled: u64,
    /// Viewers who gave up or never started to play.
    pub lost: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Stalled time divided by stalled plus played time.
    pub stall_ratio: f64,
    /// Median time from joining to the first frame.
    pub startup_p50_ms: Option<f64>,
    /// 99th percentile of the time from joining to the first frame.
    pub startup_p99_ms: Option<f64>,
    /// 95th percentile of TTFB over all requests.
    pub ttfb_p95_ms: Option<f64>,
    /// Median live latency: wall clock minus the time of the shown frame.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile of live latency.
    pub latency_p99_ms: Option<f64>,
    /// Content received per second once all viewers had joined.
    pub gbit_per_s: f64,
    /// Failed requests.
    pub errors: u64,
}

/// TTFB in one second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TtfbSecond {
    /// Seconds since the start.
    pub at_s: u64,
    /// Number of responses that completed in this second.
    pub responses: u64,
    /// 95th percentile of their TTFB.
    pub p95_ms: f64,
}

/// Results with one number of viewers.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Number of viewers at offsets.
    pub viewers: u64,
    /// Playback quality of the viewers at offsets.
    pub crowd: ViewerStats,
    /// Playback quality of the viewers at no offset.
    pub at_edge: ViewerStats,
    /// 95th percentile of the TTFB of the viewers at offsets, in each second since the start.
    pub ttfb_p95: Vec<TtfbSecond>,
    /// Resources used by the edges once all viewers had joined.
    pub edges: Usage,
    /// Resources used at the same time by the processes of the viewers at offsets.
    pub clients: Usage,
}

impl ViewerStats {
    /// Computes statistics from the figures of `viewers` viewers. Throughput covers `seconds` of
    /// Unix time, during which all viewers had joined.
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
            ttfb_p95_ms: ms(Time::Ttfb, 0.95),
            latency_p50_ms: ms(Time::LiveLatency, 0.5),
            latency_p99_ms: ms(Time::LiveLatency, 0.99),
            gbit_per_s: bytes as f64 * 8e-9 / (seconds.end - seconds.start).max(1) as f64,
            errors: figures.errors_total(),
        }
    }
}

impl Plan {
    /// Returns the time from the start of the channel until media exists at all offsets.
    pub(super) fn fill_duration(&self) -> Duration {
        self.offset_max + SETTLED_AFTER
    }

    /// Estimates how long a step takes.
    pub(super) fn step_duration(&self) -> Duration {
        self.watch + SETTLED_AFTER
    }

    /// Returns the period in which all viewers have joined and are playing, relative to the start.
    /// No viewer leaves during it, because processes take extra time to start.
    fn held(&self) -> Range<Duration> {
        self.watch.min(self.join_within + SETTLED_AFTER)..self.watch
    }
}

/// A live channel: an origin and an ingest source.
#[derive(Debug)]
pub(super) struct Channel {
    address: SocketAddr,
    started: Instant,
    _source: ChildProcess,
    _origin: ChildProcess,
}

impl Channel {
    pub(super) fn start(bench: &Bench<'_>) -> anyhow::Result<Self> {
        let requirements = bench.requirements;
        let mut command = Command::new(&requirements.thalweg);
        command.args(["origin", "--listen", ANY, "--window", WINDOW, "--segment-target", SEGMENT]);
        let ingest = servers::free_address()?;
        command.args(["--ingest", &ingest.to_string(), "--admin", ANY]);
        let (origin, address) = ChildProcess::start(command).context("cannot start the origin")?;
        let mut command = Command::new(&requirements.thalweg);
        command.args(["source", "--to", &format!("http://{ingest}/ingest/{CHANNEL}"), "--media"]);
        command.arg(&requirements.media).env_remove("THALWEG_LOG");
        let source =
            ChildProcess::start_until_line(command, SOURCE_READY).context("cannot start the live source")?;
        Ok(Self { address, started: Instant::now(), _source: source, _origin: origin })
    }

    /// Waits until media exists at all offsets.
    pub(super) async fn fill(&self, bench: &Bench<'_>) {
        (bench.log)("waiting for the channel to fill");
        sleep_until((self.started + bench.plan.audience.fill_duration()).into()).await;
    }

    /// Returns the origin's address, and the path of the channel's manifest.
    pub(super) fn manifest(&self) -> (SocketAddr, String) {
        (self.address, format!("/live/{CHANNEL}/manifest.mpd"))
    }
}

/// Measures all steps.
pub(super) async fn measure(
    bench: &Bench<'_>,
    channel: &Channel,
    steps: &mut Vec<Step>,
) -> anyhow::Result<()> {
    for viewers in &bench.plan.steps {
        (bench.log)(&format!("{viewers} live viewers"));
        let step = step(bench, *viewers, channel).await;
        steps.push(step.with_context(|| format!("{viewers} live viewers"))?);
    }
    Ok(())
}

async fn step(bench: &Bench<'_>, viewers: u64, channel: &Channel) -> anyhow::Result<Step> {
    let Bench { plan: super::Plan { audience: plan, .. }, requirements, scratch, .. } = bench;
    let mut edges = Vec::new();
    for _ in 0..EDGES {
        edges.push(servers::edge(requirements, channel.address)?);
    }
    let (clock, started, held) = (Clock::start(), Instant::now(), plan.held());
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
    // Allow status 1: some requests may fail, and the figures count them.
    attend(&mut all, &[0, 1], plan.watch + PATIENCE, |all| {
        let now = Instant::now();
        if held.contains(&(now - started)) {
            edges_meter.sample(now, edges.iter().map(|(edge, _)| edge.id()));
            clients_meter.sample(now, all[..EDGES].iter().map(LoadProcess::id));
        }
    })
    .await?;
    let at_edge = figures(&all.split_off(EDGES))?;
    let crowd = figures(&all)?;
    // Use only the whole seconds inside the period.
    let [begin_us, end_us] = [held.start, held.end].map(|after| clock.unix_us(started + after));
    let end_s = end_us / US_PER_S;
    let seconds = begin_us.div_ceil(US_PER_S).min(end_s)..end_s;
    Ok(Step {
        viewers,
        crowd: ViewerStats::of(&crowd, viewers, seconds.clone()),
        ttfb_p95: ttfb_p95(&crowd, clock.unix_us(started)..end_us),
        at_edge: ViewerStats::of(&at_edge, plan.at_edge, seconds),
        edges: edges_meter.usage(),
        clients: clients_meter.usage(),
    })
}

/// Returns the 95th percentile of TTFB in each second of `period`, in Unix time. A second without
/// enough responses for the percentile is missing.
fn ttfb_p95(figures: &Figures, period_us: Range<u64>) -> Vec<TtfbSecond> {
    let (begin_s, end_s) = (period_us.start / US_PER_S, period_us.end / US_PER_S);
    let seconds = figures.seconds.range(begin_s..end_s.max(begin_s));
    let of = |(unix_s, second): (&u64, &Second)| {
        let responses = second.ttfb.count();
        let p95_us = second.ttfb.quantile(0.95).filter(|_| responses >= P95_RESPONSES_MIN)?;
        Some(TtfbSecond { at_s: unix_s - begin_s, responses, p95_ms: p95_us as f64 / 1e3 })
    };
    seconds.filter_map(of).collect()
}

/// Merges the figures of several viewer processes.
fn figures(processes: &[LoadProcess]) -> anyhow::Result<Figures> {
    let mut all = Figures::default();
    for process in processes {
        let figures = from_json(&process.figures()?).context("cannot read viewers' figures")?;
        all.check_merge(&figures).map_err(anyhow::Error::msg)?;
        all.merge(&figures);
    }
    Ok(all)
}

/// Returns the arguments for a viewer process. Each process uses its own source addresses.
fn viewers_of(plan: &Plan, edge: SocketAddr, viewers: u64, offset_max: Duration, number: u64) -> String {
    let [offset_ms, join_ms, watch_ms] =
        [offset_max, plan.join_within, plan.watch].map(|span| span.as_millis());
    format!(
        "--viewers --clients {viewers} --offsets 0s..{offset_ms}ms --join-within {join_ms}ms --duration {watch_ms}ms \
         --source 127.0.{}.0/24 http://{edge}/live/{CHANNEL}/manifest.mpd",
        number + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttfb_is_per_second_and_needs_enough_responses() {
        let mut figures = Figures::default();
        for (unix_s, responses) in [(99, 100), (100, 40), (101, 19), (102, 20), (105, 100)] {
            let second = figures.second(unix_s);
            (1..=responses).for_each(|number| second.ttfb.record(number * 1000));
        }
        let found = ttfb_p95(&figures, 100_400_000..104_900_000);
        let of = found.iter().map(|second| (second.at_s, second.responses, second.p95_ms.floor()));
        assert_eq!(of.collect::<Vec<_>>(), [(0, 40, 38.0), (2, 20, 19.0)]);
    }
}
