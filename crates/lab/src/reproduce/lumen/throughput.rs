//! Throughput of one edge: clients request a large segment repeatedly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use thalweg_load::report::from_json;

use super::Bench;
use super::processes::{LoadProcess, attend};
use super::servers;
use crate::reproduce::usage::{Meter, Usage};

/// Number of concurrent clients.
const CLIENTS: usize = 32;
/// Segment size in bytes.
const BYTES: u64 = 5_000_000;
/// Time until the segment is stored and connections are open.
const WARM_UP: Duration = Duration::from_secs(1);
/// Extra time allowed for the process to exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// Throughput of one edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Content received per second.
    pub gbit_per_s: f64,
    /// Resources used by the edge.
    pub edge: Usage,
    /// Resources used by the clients.
    pub clients: Usage,
}

pub(super) async fn measure(bench: &Bench<'_>, backend: SocketAddr) -> anyhow::Result<Throughput> {
    (bench.log)("throughput of one edge");
    let (edge, address) = servers::edge(bench.requirements, backend)?;
    let whole = bench.plan.throughput + WARM_UP;
    let (whole_ms, warm_up_ms) = (whole.as_millis(), WARM_UP.as_millis());
    let text = format!(
        "--clients {CLIENTS} --duration {whole_ms}ms --warm-up {warm_up_ms}ms http://{address}/large?bytes={BYTES}"
    );
    let mut all = [LoadProcess::start(&bench.scratch, "throughput", &text)?];
    let (mut edge_meter, mut clients_meter, started) = (Meter::default(), Meter::default(), Instant::now());
    attend(&mut all, &[0], whole + PATIENCE, |all| {
        let now = Instant::now();
        if (WARM_UP..whole).contains(&(now - started)) {
            edge_meter.sample(now, [edge.id()].into_iter());
            clients_meter.sample(now, all.iter().map(LoadProcess::id));
        }
    })
    .await?;
    let figures = from_json(&all[0].figures()?).context("cannot read the load's figures")?;
    Ok(Throughput {
        gbit_per_s: figures.content_bytes as f64 * 8e-9 / figures.measured_s().max(f64::MIN_POSITIVE),
        edge: edge_meter.usage(),
        clients: clients_meter.usage(),
    })
}
