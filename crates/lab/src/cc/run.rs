//! The edge, the lanes and the samples.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::{ALGORITHM_FIELD, RETRANSMITS_FIELD, TOLD_AT, Way, take, target};
use super::plan::RANGED_BYTES;
use super::{Ask, Cell, Plan, Sample};
use crate::emulation::{Emulation, LATENESS_MAX, Side};
use crate::process::Running;

/// The port of the edge.
const PORT: u16 = 80;

/// What was measured.
#[derive(Debug)]
pub struct Report {
    /// What was asked for.
    pub plan: Plan,
    /// The samples of each cell.
    pub samples: BTreeMap<Cell, Vec<Sample>>,
    /// The emulation's lateness at the 99.9th percentile of all packets.
    pub lateness: Duration,
}

impl Report {
    /// Whether the emulation was on time, so that the figures can be believed.
    pub fn is_on_time(&self) -> bool {
        self.lateness <= LATENESS_MAX
    }
}

/// Carries the plan out. `thalweg` is the program whose edge is measured; `tell` hears, from one thread or another, how many
/// samples are there.
///
/// # Errors
/// If there is no emulation, the edge does not start, or a sample fails.
pub fn run(plan: &Plan, thalweg: &Path, tell: &(dyn Fn(usize, usize) + Sync)) -> anyhow::Result<Report> {
    plan.check()?;
    let lanes = plan.lanes();
    let emulation = Emulation::start(&lanes)?;
    emulation.end_on_signals()?;
    let servers = Servers::start(&emulation, thalweg)?;
    warm(&emulation, plan)?;
    let orders: Vec<_> = (0..plan.scenario.paths.len()).map(|path| plan.order(path)).collect();
    let all: usize = orders.iter().map(Vec::len).sum();
    let next: Vec<_> = orders.iter().map(|_| AtomicUsize::new(0)).collect();
    let (count, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let samples: Mutex<BTreeMap<Cell, Vec<Sample>>> = Mutex::default();
    let work = |lane: usize| -> anyhow::Result<()> {
        let path = lane / plan.lanes;
        let way = way(&emulation, lane);
        let mut random = StdRng::seed_from_u64(!lanes.seed ^ lane as u64);
        while let Some(cell) = orders[path].get(next[path].fetch_add(1, Relaxed))
            && !has_failed.load(Relaxed)
        {
            let range_start = random.random_range(0..=RANGED_BYTES.saturating_sub(cell.ask.bytes));
            let taken = emulation.on(Side::Clients, || take(way, cell.ask, range_start, &cell.algorithm));
            let of = || format!("{} {} {}", lanes.paths[lane].name, cell.ask.name(), cell.algorithm);
            let sample = taken.inspect_err(|_| has_failed.store(true, Relaxed)).with_context(of)?;
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.entry(cell.clone()).or_default().push(sample);
            tell(count.fetch_add(1, Relaxed) + 1, all);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..lanes.paths.len()).map(|lane| scope.spawn(move || work(lane))).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect::<anyhow::Result<()>>()
    })?;
    drop(servers);
    let samples = samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Report { plan: plan.clone(), samples, lateness: lateness(&emulation) })
}

fn way(emulation: &Emulation, lane: usize) -> Way {
    let scenario = emulation.scenario();
    let client = scenario.paths[lane].client4();
    Way { client: (client, 0).into(), server: (scenario.server4, PORT).into() }
}

/// The 99.9th percentile of all packets of all lanes: those of one alone are too few.
fn lateness(emulation: &Emulation) -> Duration {
    let lanes = 0..emulation.scenario().paths.len();
    let ways = lanes.flat_map(|lane| emulation.ways(lane));
    let all = ways.map(|way| way.line.counts().lateness_us).reduce(|mut all, one| {
        all.add(one).expect("all lines note up to the same");
        all
    });
    Duration::from_micros(all.map_or(0, |all| all.value_at_quantile(0.999)))
}

/// Has the edge store what will be asked for, by a client beside it.
fn warm(emulation: &Emulation, plan: &Plan) -> anyhow::Result<()> {
    let server: SocketAddr = (emulation.scenario().server4, PORT).into();
    let way = Way { client: (emulation.scenario().server4, 0).into(), server };
    let whole =
        |ask: &Ask| Ask { bytes: if ask.is_range { RANGED_BYTES } else { ask.bytes }, is_range: false };
    for algorithm in &plan.algorithms {
        for ask in plan.asks.iter().map(whole) {
            let taken = emulation.on(Side::Server, || take(way, ask, 0, algorithm));
            taken.with_context(|| format!("{} from the edge itself", target(ask)))?;
        }
    }
    Ok(())
}

/// What runs on the server's side.
struct Servers {
    _edge: Running,
    _backend: Running,
}

impl Servers {
    fn start(emulation: &Emulation, thalweg: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("this program's own file")?;
        let mut command = std::process::Command::new(own);
        command.args(["load", "serve", "--listen", "127.0.0.1:0"]);
        let (backend, address) = Running::start_on(emulation, Side::Server, command)?;
        let policy = emulation.scratch().join("lab.vcl");
        fs::write(&policy, policy_text(address)).context("the edge's policy")?;
        let mut command = std::process::Command::new(thalweg);
        command.args(["edge", "--listen", &format!("[::]:{PORT}"), "--admin", "127.0.0.1:0", "--policy"]);
        command.arg(policy);
        let (edge, address) = Running::start_on(emulation, Side::Server, command)
            .with_context(|| format!("the edge of {}", thalweg.display()))?;
        ensure!(address.port() == PORT, "the edge listens at {address}");
        Ok(Self { _edge: edge, _backend: backend })
    }
}

/// A policy that gives each connection the algorithm that its request asks for, and tells what the kernel says.
fn policy_text(backend: SocketAddr) -> String {
    format!(
        r#"vcl 4.1;
backend lab {{ .host = "{}"; .port = "{}"; }}
sub vcl_recv {{
    if (req.http.{ALGORITHM_FIELD}) {{
        set client.socket.congestion_algorithm = req.http.{ALGORITHM_FIELD};
        unset req.http.{ALGORITHM_FIELD};
    }}
    if (req.url == "{TOLD_AT}") {{ return (synth(200)); }}
}}
sub vcl_backend_response {{ set beresp.ttl = 1d; }}
sub vcl_synth {{
    set resp.http.{ALGORITHM_FIELD} = client.socket.congestion_algorithm;
    set resp.http.{RETRANSMITS_FIELD} = client.socket.tcpi_total_retrans;
    return (deliver);
}}
"#,
        backend.ip(),
        backend.port()
    )
}
