//! One run: viewers arrive in steps at a fresh origin, whose connections to the storage, processor
//! time and memory are sampled every second.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use thalweg_load::connection::{Protocols, Timeouts, Trust};
use thalweg_load::engine::{self, Clients, Load, Snapshot};
use thalweg_load::figures::{Figures as LoadFigures, Time};
use thalweg_load::schedule::{Population, Ramp as LoadRamp};
use thalweg_load::sources::Sources;
use thalweg_load::target::Target;
use thalweg_load::viewer::crowd::CrowdPlan;
use thalweg_load::viewer::shared::Behaviour;
use thalweg_load::viewer::spread::Offsets;

use super::content::Film;
use super::storage::Storage;
use super::{Lab, NEAR, Run, servers};
use crate::reproduce::usage::{TICKS_PER_S, used};

/// Media that viewers fetch ahead of their playhead: more than the film, so that they request one
/// segment after another without a pause, as the publishers' load generator does by default
/// (github.com/unifiedstreaming/streaming-load-testing).
const AHEAD: Duration = Duration::from_secs(24 * 3600);
/// End of the film where no viewer starts, so that none reaches the end in a run.
const LAST_START_BEFORE_END: Duration = Duration::from_secs(240);
/// Time limit for each step of a request.
const TIMEOUTS: Timeouts = Timeouts::each(Duration::from_secs(30));
/// Threads of viewers.
const THREADS: usize = 1;
/// States of TCP connections in `/proc/net/tcp` (include/net/tcp_states.h).
const ESTABLISHED: &str = "01";
const TIME_WAIT: &str = "06";

/// Figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Complete requests of all viewers.
    pub requests: u64,
    /// Failed requests.
    pub errors: u64,
    /// First failure, if any.
    pub failure: Option<String>,
    /// Content received, in bytes.
    pub content_bytes: u64,
    /// Measured time, in seconds.
    pub measured_s: f64,
    /// Response times of manifests: MPDs and playlists.
    pub manifests: Option<Times>,
    /// Response times of segments.
    pub segments: Option<Times>,
    /// Stalled time divided by stalled plus played time.
    pub stall_ratio: f64,
    /// Connections that the origin opened to the storage.
    pub opened: u64,
    /// Processor time that the origin used, in seconds.
    pub cpu_s: f64,
    /// The same, second by second.
    pub seconds: Vec<Second>,
}

/// Response times from the request to the last byte, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of responses.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// One second of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Time since the start, in seconds.
    pub at_s: f64,
    /// Users who have arrived.
    pub users: u64,
    /// Content received per second, in Mbit/s.
    pub mbit_per_s: f64,
    /// 95th percentile of the response times of segments, in milliseconds, if any were complete.
    pub segment_p95_ms: Option<f64>,
    /// Open connections to the storage.
    pub established: u64,
    /// Closed connections to the storage whose ports are still in use.
    pub waiting: u64,
    /// Processors that the origin used.
    pub cores: f64,
    /// Memory of the origin.
    pub memory_bytes: u64,
}

impl Figures {
    /// Returns the content received per second, in Mbit/s.
    pub fn mbit_per_s(&self) -> f64 {
        self.content_bytes as f64 * 8e-6 / self.measured_s.max(f64::MIN_POSITIVE)
    }

    /// Returns the origin's processor time per gigabyte of content, in seconds.
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s * 1e9 / (self.content_bytes as f64).max(1.0)
    }

    /// Returns the highest value of a quantity over all seconds.
    pub fn peak(&self, of: impl Fn(&Second) -> u64) -> u64 {
        self.seconds.iter().map(of).max().unwrap_or(0)
    }
}

impl Times {
    fn of(times_us: Option<&Histogram<u64>>) -> Option<Self> {
        let times = times_us.filter(|times| !times.is_empty())?;
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        let mean_ms = times.mean() / 1e3;
        Some(Self { count: times.len(), mean_ms, p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) })
    }
}

/// Measures a run. A signal ends it early and is returned with the figures so far.
pub(super) fn measure(
    lab: &Lab<'_>,
    run: &Run,
    storage: &Storage,
    film: &Film,
) -> anyhow::Result<(Figures, Option<Signal>)> {
    let origin = servers::origin(lab, storage, run.arm)?;
    let process = origin.process.id();
    let load = load(run, origin.address, film)?;
    let opened_before = active_opens(process).context("cannot read the count of opened connections")?;
    let mut sampler = Sampler::start(process, storage.address);
    let ended = lab.handler.forward_next();
    let viewers = || async {
        let mut signal = None;
        let interrupted = async {
            match ended.await {
                Ok(arrived) => signal = Some(arrived),
                // Another receiver was registered.
                Err(_) => std::future::pending().await,
            }
        };
        let watched = engine::run(&load, interrupted, |snapshot| sampler.sample(snapshot)).await;
        (watched, signal)
    };
    let (watched, signal) = lab.emulation.run_on(NEAR, viewers)?;
    let watched = watched?;
    let opened = active_opens(process).unwrap_or(opened_before) - opened_before;
    Ok((figures(&watched, sampler, opened), signal))
}

fn load(run: &Run, origin: SocketAddr, film: &Film) -> anyhow::Result<Load> {
    let ramp = run.conditions.ramp;
    let url = format!("http://{origin}{}", servers::manifest(run.conditions.format));
    let protocols = Protocols::new(false, Trust::Any);
    let target = Target::new(&url, &[], &protocols).map_err(anyhow::Error::msg)?;
    let offsets = Offsets::Even(Duration::ZERO, film.duration.saturating_sub(LAST_START_BEFORE_END));
    let behaviour = Behaviour { threshold: None, ahead: AHEAD, range_bytes: None, cmcd: false };
    let crowd = CrowdPlan {
        targets: vec![target],
        offsets,
        sources: Sources::default(),
        timeouts: TIMEOUTS,
        behaviour,
    };
    let text = format!("{}/{}s..{}", ramp.step, ramp.every_s, ramp.users);
    let arrivals: LoadRamp = text.parse().map_err(anyhow::Error::msg)?;
    let population = Population::new(0, Duration::ZERO, Some(arrivals), &[]).map_err(anyhow::Error::msg)?;
    Ok(Load {
        clients: Clients::Viewers(crowd),
        population,
        rate: None,
        duration: Some(ramp.duration()),
        requests: None,
        warm_up: Duration::ZERO,
        threads: THREADS,
        arguments: Vec::new(),
    })
}

fn figures(watched: &LoadFigures, sampler: Sampler, opened_by_all: u64) -> Figures {
    // All processes on the near side share the count: subtract the viewers' connections, and the
    // one that checks the manifest before the run.
    let of_viewers = watched.time(Time::Connect).map_or(0, Histogram::len) + 1;
    let examples = watched.examples.values();
    Figures {
        requests: watched.requests,
        errors: watched.errors_total(),
        failure: examples.min_by_key(|(at_us, _)| *at_us).map(|(_, detail)| detail.clone()),
        content_bytes: watched.content_bytes,
        measured_s: watched.measured_s(),
        manifests: Times::of(watched.time(Time::Manifest)),
        segments: Times::of(watched.time(Time::Segment)),
        stall_ratio: watched.viewers.unwrap_or_default().totals.stall_ratio(),
        opened: opened_by_all.saturating_sub(of_viewers),
        cpu_s: sampler.ticks.saturating_sub(sampler.first_ticks) as f64 / TICKS_PER_S,
        seconds: sampler.seconds,
    }
}

/// Samples the origin every second.
struct Sampler {
    process: u32,
    storage: SocketAddr,
    at: Instant,
    first_ticks: u64,
    ticks: u64,
    seconds: Vec<Second>,
}

impl Sampler {
    fn start(process: u32, storage: SocketAddr) -> Self {
        let ticks = used(process).map_or(0, |(ticks, _)| ticks);
        Self { process, storage, at: Instant::now(), first_ticks: ticks, ticks, seconds: Vec::new() }
    }

    fn sample(&mut self, snapshot: &Snapshot<'_>) {
        let now = Instant::now();
        let (ticks, memory_bytes) = used(self.process).unwrap_or((self.ticks, 0));
        let span_s = (now - self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let cores = ticks.saturating_sub(self.ticks) as f64 / TICKS_PER_S / span_s;
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.process)).unwrap_or_default();
        let count = |state| connections(&table, self.storage, state);
        self.seconds.push(Second {
            at_s: snapshot.elapsed.as_secs_f64(),
            users: snapshot.figures.clients,
            mbit_per_s: snapshot.per_s(|figures| figures.content_bytes) * 8e-6,
            segment_p95_ms: snapshot
                .since(Time::Segment)
                .map(|times| times.value_at_quantile(0.95) as f64 / 1e3),
            established: count(ESTABLISHED),
            waiting: count(TIME_WAIT),
            cores,
            memory_bytes,
        });
        (self.at, self.ticks) = (now, ticks);
    }
}

/// Counts the connections to `remote` in this state in the text of `/proc/net/tcp` (proc_net(5)):
/// the third field is the remote address, as hexadecimal words in the machine's byte order.
fn connections(table: &str, remote: SocketAddr, state: &str) -> u64 {
    let IpAddr::V4(address) = remote.ip() else { return 0 };
    let address = u32::from_ne_bytes(address.octets());
    let remote = format!("{address:08X}:{:04X}", remote.port());
    let is_counted = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next() == Some(&remote) && fields.next() == Some(state)
    };
    table.lines().skip(1).filter(is_counted).count() as u64
}

/// Returns how many connections were opened from a process's network namespace.
fn active_opens(process: u32) -> Option<u64> {
    opens_in(&fs::read_to_string(format!("/proc/{process}/net/snmp")).ok()?)
}

/// Reads `ActiveOpens` (RFC 4022) from two lines: the names, and the values in the same order.
fn opens_in(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|name| name == "ActiveOpens")?;
    values.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_tables_are_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000
   1: 010012C6:9C40 FE0012C6:2328 01 00000000
   2: 010012C6:9C41 FE0012C6:2328 06 00000000
   3: 010012C6:9C42 FE0012C6:2329 01 00000000
";
        let storage: SocketAddr = "198.18.0.254:9000".parse().unwrap();
        let counts = [ESTABLISHED, TIME_WAIT, "0A"].map(|state| connections(table, storage, state));
        assert_eq!(counts, [1, 1, 0]);
        let snmp = "Ip: a b\nIp: 1 2\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 42 7\n";
        assert_eq!((opens_in(snmp), opens_in("Tcp: ActiveOpens\n")), (Some(42), None));
    }

    #[test]
    fn own_connections_are_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = active_opens(std::process::id()).unwrap();
        let kept = std::net::TcpStream::connect(address).unwrap();
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert_eq!(connections(&table, address, ESTABLISHED), 1);
        assert!(active_opens(std::process::id()).unwrap() > before);
        drop(kept);
    }
}
