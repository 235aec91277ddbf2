//! Comparison run: starts the edge, then takes samples in parallel lanes.

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
use thalweg_load::Failure;
use thalweg_netem::emulation::{Emulation, Lateness, Side, SignalSetup};
use tokio::sync::oneshot;

use super::client::{
    ALGORITHM_FIELD, COUNTERS_PATH, Endpoints, GOODPUT_FIELD, RETRANSMITS_FIELD, take_sample, target,
};
use super::plan::RANGED_BYTES;
use super::{Cell, Plan, Report, Request};
use crate::process::ChildProcess;

/// The edge's port.
const PORT: u16 = 80;

/// Progress of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    /// Samples taken or failed.
    pub samples: usize,
    /// Planned samples.
    pub planned: usize,
    /// Share of finished samples on the path that is furthest behind. The run ends when this path
    /// is finished.
    pub share: f64,
}

/// Runs the plan against the edge of the program `thalweg`. Calls `progress` on a separate thread
/// after each sample. A signal during sampling ends the run early, and the report contains the
/// samples so far; a signal before sampling terminates the process.
///
/// # Errors
///
/// Returns an error if the emulation or the edge cannot start, or the edge does not serve a planned
/// request.
pub fn run(plan: &Plan, thalweg: &Path, progress: &(dyn Fn(Done) + Sync)) -> anyhow::Result<Report> {
    plan.check()?;
    let lanes = plan.lanes();
    let signals = SignalSetup::install()?;
    let emulation = Emulation::start(&lanes)?;
    let handler = signals.attach(&emulation);
    let servers = Servers::start(&emulation, thalweg)?;
    emulation.run_on(Side::Server, || warm(&emulation, plan))??;
    let ended = handler.forward_next();
    let mut report =
        emulation.run_on(Side::Clients, || Sampling::new(plan, &emulation).run(ended, progress))?;
    drop(servers);
    emulation.count_missed();
    let lateness_of = |lanes: Range<usize>| Lateness::of(lanes.flat_map(|lane| emulation.directions(lane)));
    report.lateness = lateness_of(0..lanes.paths.len());
    report.paths = (0..plan.scenario.paths.len())
        .map(|path| lateness_of(path * plan.lanes..(path + 1) * plan.lanes))
        .collect();
    Ok(report)
}

/// Sampling in all lanes on one thread, which suffices because a lane spends nearly all its time
/// waiting for the network.
struct Sampling<'a> {
    emulation: &'a Emulation,
    /// Remaining samples on each path, in measuring order.
    orders: Vec<RefCell<vec::IntoIter<Cell>>>,
    /// Number of finished samples on each path.
    done: RefCell<Vec<usize>>,
    report: RefCell<Report>,
    all: usize,
}

impl<'a> Sampling<'a> {
    fn new(plan: &Plan, emulation: &'a Emulation) -> Self {
        let paths = 0..plan.scenario.paths.len();
        let orders: Vec<_> = paths.map(|path| plan.order(path)).collect();
        Self {
            emulation,
            all: orders.iter().map(Vec::len).sum(),
            done: RefCell::new(vec![0; orders.len()]),
            orders: orders.into_iter().map(|order| RefCell::new(order.into_iter())).collect(),
            report: RefCell::new(Report::new(plan.clone())),
        }
    }

    /// Takes samples until all are taken or a signal arrives.
    async fn run(self, ended: oneshot::Receiver<Signal>, progress: &(dyn Fn(Done) + Sync)) -> Report {
        let lanes = (0..self.emulation.scenario().paths.len()).map(|lane| self.lane(lane, progress));
        let interrupted = tokio::select! {
            _ = join_all(lanes) => None,
            Ok(signal) = ended => Some(signal.as_raw()),
        };
        Report { interrupted, ..self.report.into_inner() }
    }

    /// Counts a finished sample of a path and returns the progress.
    fn count(&self, path: usize, report: &Report) -> Done {
        let mut done = self.done.borrow_mut();
        done[path] += 1;
        let per_path = self.all / done.len();
        let least = done.iter().min().copied().unwrap_or_default();
        Done {
            samples: report.taken() + report.failed(),
            planned: self.all,
            share: least as f64 / per_path as f64,
        }
    }

    async fn lane(&self, lane: usize, progress: &(dyn Fn(Done) + Sync)) {
        let scenario = self.emulation.scenario();
        let lanes = self.report.borrow().plan.lanes;
        let order = &self.orders[lane / lanes];
        let client = scenario.paths[lane].client4().into();
        let endpoints = Endpoints { client, server: (scenario.server4, PORT).into() };
        let mut random = StdRng::seed_from_u64(!scenario.seed ^ lane as u64);
        let next = || order.borrow_mut().next();
        while let Some(cell) = next() {
            let range_start = random.random_range(0..=RANGED_BYTES.saturating_sub(cell.request.bytes));
            let taken = take_sample(endpoints, cell.request, range_start, &cell.algorithm).await;
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
            progress(self.count(lane / lanes, &report));
        }
    }
}

/// Sends each planned request once from the server's side, so that the edge stores the responses.
async fn warm(emulation: &Emulation, plan: &Plan) -> anyhow::Result<()> {
    let server = emulation.scenario().server4;
    let endpoints = Endpoints { client: server.into(), server: (server, PORT).into() };
    let whole = |request: &Request| Request {
        bytes: if request.is_range { RANGED_BYTES } else { request.bytes },
        is_range: false,
    };
    for algorithm in &plan.algorithms {
        for request in plan.requests.iter().map(whole) {
            let taken = take_sample(endpoints, request, 0, algorithm).await;
            taken.with_context(|| format!("warming the edge with {}", target(request)))?;
        }
    }
    Ok(())
}

/// Server-side processes.
struct Servers {
    _edge: ChildProcess,
    _backend: ChildProcess,
}

impl Servers {
    fn start(emulation: &Emulation, thalweg: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot locate this program's executable")?;
        let mut command = std::process::Command::new(own);
        command.args(["load", "serve", "--listen", "127.0.0.1:0"]);
        let (backend, address) = ChildProcess::start_on(emulation, Side::Server, command)?;
        let policy = emulation.scratch().join("lab.vcl");
        fs::write(&policy, policy_text(address)).context("cannot write the edge's policy")?;
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
        let (edge, address) = ChildProcess::start_on(emulation, Side::Server, command)
            .with_context(|| format!("cannot start the edge of {}", thalweg.display()))?;
        ensure!(address.port() == PORT, "edge listens at {address}, expected port {PORT}");
        Ok(Self { _edge: edge, _backend: backend })
    }
}

/// Returns a policy that sets the congestion control algorithm named in the request and reports the
/// kernel's counters.
fn policy_text(backend: SocketAddr) -> String {
    format!(
        r#"vcl 4.1;
backend lab {{ .host = "{}"; .port = "{}"; }}
sub vcl_recv {{
    if (req.http.{ALGORITHM_FIELD}) {{
        set client.socket.congestion_algorithm = req.http.{ALGORITHM_FIELD};
        unset req.http.{ALGORITHM_FIELD};
    }}
    if (req.url == "{COUNTERS_PATH}") {{ return (synth(200)); }}
}}
sub vcl_backend_response {{ set beresp.ttl = 1d; }}
sub vcl_synth {{
    set resp.http.{ALGORITHM_FIELD} = client.socket.congestion_algorithm;
    set resp.http.{RETRANSMITS_FIELD} = client.socket.tcpi_total_retrans;
    set resp.http.{GOODPUT_FIELD} = client.socket.goodput;
    return (deliver);
}}
"#,
        backend.ip(),
        backend.port()
    )
}
