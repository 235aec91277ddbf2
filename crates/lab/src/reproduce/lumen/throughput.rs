//! What one edge sends: clients that ask for a large segment again and again.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::Bench;
use super::processes::{LoadProcess, arguments, attend};
use super::servers::{self, Backend};
use super::usage::{Meter, Usage};
use crate::load::report::from_json;

/// Clients at once.
const CLIENTS: usize = 32;
/// Bytes of what they ask for.
const BYTES: u64 = 5_000_000;
/// Until all is stored and connections are there.
const WARM_UP: Duration = Duration::from_secs(1);
/// More than it is told to take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Content that came.
    pub gbit_per_s: f64,
    /// What the edge used.
    pub edge: Usage,
    /// What the clients used.
    pub clients: Usage,
}

pub(super) async fn measure(bench: &Bench<'_>, backend: &Backend) -> anyhow::Result<Throughput> {
    (bench.tell)("throughput of one edge");
    let (edge, address) = servers::edge(bench.needs, backend.address())?;
    let whole = bench.plan.throughput + WARM_UP;
    let (whole_ms, warm_up_ms) = (whole.as_millis(), WARM_UP.as_millis());
    let text = format!(
        "load --clients {CLIENTS} --duration {whole_ms}ms --warm-up {warm_up_ms}ms http://{address}/large?bytes={BYTES}"
    );
    let mut all = [LoadProcess::start(&bench.scratch, "throughput", &arguments(&text))?];
    let (mut edge_meter, mut clients_meter, begun) = (Meter::default(), Meter::default(), Instant::now());
    attend(&mut all, &[0], whole + PATIENCE, |all| {
        let now = Instant::now();
        if (WARM_UP..whole).contains(&(now - begun)) {
            edge_meter.look(now, [edge.id()].into_iter());
            clients_meter.look(now, all.iter().map(LoadProcess::id));
        }
    })
    .await?;
    let figures = from_json(&all[0].figures()?).context("the figures of the load")?;
    Ok(Throughput {
        gbit_per_s: figures.content_bytes as f64 * 8e-9 / figures.measured_s().max(f64::MIN_POSITIVE),
        edge: edge_meter.usage(),
        clients: clients_meter.usage(),
    })
}
