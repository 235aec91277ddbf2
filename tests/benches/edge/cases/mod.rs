//! The cases and the code that they share: rounds in which the servers take turns, and metrics over
//! many requests.

pub(crate) mod connections;
pub(crate) mod disk;
pub(crate) mod hits;
pub(crate) mod joiners;
pub(crate) mod misses;
pub(crate) mod relay;

use anyhow::{Context, Result, ensure};

use crate::backend::Backend;
use crate::load::{self, Client, Outcome, Paths};
use crate::servers::{Kind, Peer, Site};
use crate::table::{Metric, Table};

/// Content sizes: name and bytes.
pub(crate) const SIZES: [(&str, usize); 4] =
    [("1 KB", 1_000), ("100 KB", 100_000), ("1.2 MB", 1_200_000), ("5 MB", 5_000_000)];
/// Client connections in cases that do not vary their number.
pub(crate) const CONNECTIONS: usize = 64;

/// Inputs of every case.
pub(crate) struct Bench {
    pub(crate) site: Site,
    pub(crate) backend: Backend,
    pub(crate) quick: bool,
}

impl Bench {
    /// Returns a number of rounds or requests: `full`, or `quick` with `--quick`.
    pub(crate) fn number(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

/// Index of CPU time among the values of [`figures`].
pub(crate) const CPU: usize = 0;

/// The metrics returned by [`figures`], in order.
pub(crate) static REQUESTS: [Metric; 6] = [
    Metric { key: "cpu_us_per_request", name: "CPU µs/request", decimals: 1 },
    Metric { key: "requests_per_s", name: "requests/s", decimals: 0 },
    Metric { key: "gbit_per_s", name: "Gbit/s", decimals: 2 },
    Metric { key: "latency_p50_us", name: "p50 µs", decimals: 0 },
    Metric { key: "latency_p99_us", name: "p99 µs", decimals: 0 },
    Metric { key: "rss_mib", name: "RSS MiB", decimals: 1 },
];

/// Returns the values for [`REQUESTS`], given the server's CPU time `cpu_ns`.
pub(crate) fn figures(peer: &Peer, cpu_ns: u64, outcome: &Outcome) -> Vec<f64> {
    let seconds = outcome.elapsed.as_secs_f64();
    let micros = |quantile| outcome.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    vec![
        cpu_ns as f64 / 1e3 / outcome.requests as f64,
        outcome.requests as f64 / seconds,
        outcome.content_bytes as f64 * 8.0 / 1e9 / seconds,
        micros(0.5),
        micros(0.99),
        mib(peer.rss_bytes()),
    ]
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs rounds in which the table's servers take turns. The order is reversed after each round.
pub(crate) async fn in_turn(
    table: &mut Table,
    rounds: usize,
    measure: impl AsyncFn(Kind, usize) -> Result<Vec<f64>>,
) -> Result<()> {
    let mut kinds = table.kinds();
    for round in 0..rounds {
        for kind in &kinds {
            table.add(*kind, measure(*kind, round).await.with_context(|| kind.name())?);
        }
        kinds.reverse();
    }
    Ok(())
}

/// Measures hits on [`CONNECTIONS`] connections. Returns an error if more than `missed_percent_max`
/// percent of the requests were misses.
pub(crate) async fn hits_of(
    bench: &Bench,
    peer: &Peer,
    requests: usize,
    length: usize,
    paths: &Paths,
    missed_percent_max: usize,
) -> Result<Vec<f64>> {
    let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
    let (cpu, before) = (peer.cpu_ns(), bench.backend.requests());
    let outcome = load::run(&mut clients, CONNECTIONS, requests, length as u64, paths).await?;
    let figures = figures(peer, peer.cpu_ns() - cpu, &outcome);
    peer.empty_log()?;
    let missed = bench.backend.requests() - before;
    ensure!(missed * 100 <= requests * missed_percent_max, "{missed} of {requests} requests were not hits");
    Ok(figures)
}
