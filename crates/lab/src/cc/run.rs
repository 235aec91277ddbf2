//! The edge, the lanes and the samples.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::vec;

use anyhow::{Context, ensure};
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use tokio::sync::oneshot;

use super::client::{ALGORITHM_FIELD, RETRANSMITS_FIELD, TOLD_AT, Way, take, target};
use super::plan::RANGED_BYTES;
use super::{Ask, Cell, Plan, Report};
use crate::emulation::{Emulation, Ending, Lateness, Side};
use crate::load::Failure;
use crate::process::Running;

/// The port of the edge.
const PORT: u16 = 80;

/// Carries the plan out. `thalweg` is the program whose edge is measured; `tell` hears, from a thread of its own, how many samples
/// are done. A signal ends the sampling, and what is there by then is the report; before that it ends the process.
///
/// # Errors
/// If it cannot begin: there is no emulation, or the edge does not start or has not what is asked for.
pub fn run(plan: &Plan, thalweg: &Path, tell: &(dyn Fn(usize, usize) + Sync)) -> anyhow::Result<Report> {
    plan.check()?;
    let lanes = plan.lanes();
    let ending = Ending::prepare()?;
    let emulation = Emulation::start(&lanes)?;
    let ends = ending.of(&emulation);
    let servers = Servers::start(&emulation, thalweg)?;
    emulation.run_on(Side::Server, || warm(&emulation, plan))??;
    let ended = ends.tell_instead();
    let mut report = emulation.run_on(Side::Clients, || Sampling::of(plan, &emulation).run(ended, tell))?;
    drop(servers);
    emulation.count_missed();
    let lateness_of = |lanes: Range<usize>| Lateness::of(lanes.flat_map(|lane| emulation.ways(lane)));
    report.lateness = lateness_of(0..lanes.paths.len());
    report.paths = (0..plan.scenario.paths.len())
        .map(|path| lateness_of(path * plan.lanes..(path + 1) * plan.lanes))
        .collect();
    Ok(report)
}

/// Samples as they are taken, all lanes on one thread: each lane waits for the network nearly all the time.
struct Sampling<'a> {
    emulation: &'a Emulation,
    /// The cells that are left of each path.
    orders: Vec<RefCell<vec::IntoIter<Cell>>>,
    report: RefCell<Report>,
    all: usize,
}

impl<'a> Sampling<'a> {
    fn of(plan: &Plan, emulation: &'a Emulation) -> Self {
        let paths = 0..plan.scenario.paths.len();
        let orders: Vec<_> = paths.map(|path| plan.order(path)).collect();
        Self {
            emulation,
            all: orders.iter().map(Vec::len).sum(),
            orders: orders.into_iter().map(|order| RefCell::new(order.into_iter())).collect(),
            report: RefCell::new(Report::new(plan.clone())),
        }
    }

    /// Takes all samples, or those until the signal.
    async fn run(self, ended: oneshot::Receiver<Signal>, tell: &(dyn Fn(usize, usize) + Sync)) -> Report {
        let lanes = (0..self.emulation.scenario().paths.len()).map(|lane| self.lane(lane, tell));
        let interrupted = tokio::select! {
            _ = join_all(lanes) => None,
            Ok(signal) = ended => Some(signal.as_raw()),
        };
        Report { interrupted, ..self.report.into_inner() }
    }

    async fn lane(&self, lane: usize, tell: &(dyn Fn(usize, usize) + Sync)) {
        let scenario = self.emulation.scenario();
        let lanes = self.report.borrow().plan.lanes;
        let order = &self.orders[lane / lanes];
        let client = scenario.paths[lane].client4().into();
        let way = Way { client, server: (scenario.server4, PORT).into() };
        let mut random = StdRng::seed_from_u64(!scenario.seed ^ lane as u64);
        let next = || order.borrow_mut().next();
        while let Some(cell) = next() {
            let range_start = random.random_range(0..=RANGED_BYTES.saturating_sub(cell.ask.bytes));
            let taken = take(way, cell.ask, range_start, &cell.algorithm).await;
            let mut report = self.report.borrow_mut();
            let path = &scenario.paths[lane].name;
            match taken {
                Ok(sample) => {
                    tracing::debug!(path, algorithm = cell.algorithm, time = ?sample.total, "sample");
                    report.samples.entry(cell).or_default().push(sample);
                }
                Err(Failure { detail, .. }) => {
                    tracing::debug!(path, algorithm = cell.algorithm, detail, "failed");
                    report.failures.entry(cell).or_default().push(detail);
                }
            }
            tell(report.taken() + report.failed(), self.all);
        }
    }
}

/// Has the edge store what will be asked for, by a client beside it.
async fn warm(emulation: &Emulation, plan: &Plan) -> anyhow::Result<()> {
    let server = emulation.scenario().server4;
    let way = Way { client: server.into(), server: (server, PORT).into() };
    let whole =
        |ask: &Ask| Ask { bytes: if ask.is_range { RANGED_BYTES } else { ask.bytes }, is_range: false };
    for algorithm in &plan.algorithms {
        for ask in plan.asks.iter().map(whole) {
            let taken = take(way, ask, 0, algorithm).await;
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
        command.args([
            "edge",
            "--listen",
            &format!("[::]:{PORT}"),
            "--admin",
            "127.0.0.1:0",
            "--state",
            "off",
        ]);
        command.arg("--policy").arg(policy);
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
