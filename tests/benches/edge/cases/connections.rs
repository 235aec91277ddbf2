//! Ten thousand connections: memory per idle connection, and cost of a hit on each connection in
//! turn.
//!
//! Each round starts new servers, because a process rarely returns memory to the system.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Bench, CONNECTIONS, figures};
use crate::load::{self, Client, Paths};
use crate::servers::{Kind, Peer, Store};
use crate::table::{Metric, Table};

const IDLE: usize = 10_000;
const ROUNDS: usize = 3;
const LENGTH: usize = 1_000;
const PATH: &str = "/bytes/1000/0";
/// Requests per connection, for the metrics of active connections.
const TURNS: usize = 3;
const MEMORY: usize = 0;
const MEMORY_KIB_MAX: f64 = 4.0;
/// Maximum CPU time of a quiet server per `QUIET_TIME`.
const QUIET_CPU: Duration = Duration::from_millis(2);
const QUIET_TIME: Duration = Duration::from_millis(100);
const QUIET_WAIT_MAX: Duration = Duration::from_secs(3);

static METRICS: [Metric; 6] = [
    Metric { key: "rss_kib_per_idle_connection", name: "RSS KiB/idle connection", decimals: 2 },
    Metric { key: "active_cpu_us_per_request", name: "active: CPU µs/request", decimals: 1 },
    Metric { key: "active_requests_per_s", name: "requests/s", decimals: 0 },
    Metric { key: "active_latency_p50_us", name: "p50 µs", decimals: 0 },
    Metric { key: "active_latency_p99_us", name: "p99 µs", decimals: 0 },
    Metric { key: "rss_mib", name: "RSS MiB", decimals: 1 },
];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let title = format!("{IDLE} connections, then hits of 1 KB on each in turn, {CONNECTIONS} at a time");
    let mut table = Table::new("idle", title, &METRICS, &Kind::PROXIES);
    for _ in 0..bench.number(ROUNDS, 1) {
        for kind in Kind::PROXIES {
            let peer = bench.site.start(kind, Store::Memory)?;
            table.add(kind, round_of(bench, &peer).await?);
        }
    }
    table.at_most(MEMORY, MEMORY_KIB_MAX);
    println!("{table}");
    Ok(vec![table])
}

async fn round_of(bench: &Bench, peer: &Peer) -> Result<Vec<f64>> {
    let paths: Paths = Arc::new(|_| PATH.to_owned());
    // Serve some requests first, so that memory that the server also needs without idle connections
    // is not counted.
    load::once(peer.address(), PATH).await?;
    let mut few = Client::connect_all(peer.address(), CONNECTIONS).await?;
    load::run(&mut few, CONNECTIONS, 10 * CONNECTIONS, LENGTH as u64, &paths).await?;
    drop(few);
    quiet(peer).await;
    let (rss, before) = (peer.rss_bytes(), bench.backend.requests());
    let mut clients = Vec::with_capacity(IDLE);
    while clients.len() < IDLE {
        let mut more = Client::connect_all(peer.address(), CONNECTIONS.min(IDLE - clients.len())).await?;
        let count = more.len();
        load::run(&mut more, count, count, LENGTH as u64, &paths).await?;
        clients.append(&mut more);
    }
    quiet(peer).await;
    let idle_bytes = peer.rss_bytes().saturating_sub(rss);
    let cpu = peer.cpu_ns();
    let outcome = load::run(&mut clients, CONNECTIONS, TURNS * IDLE, LENGTH as u64, &paths).await?;
    let active = figures(peer, peer.cpu_ns() - cpu, &outcome);
    ensure!(bench.backend.requests() == before, "some requests were not hits");
    let [cpu_us, per_s, _, p50, p99, rss] = active[..] else {
        unreachable!("figures returns one value per metric")
    };
    Ok(vec![idle_bytes as f64 / 1024.0 / IDLE as f64, cpu_us, per_s, p50, p99, rss])
}

/// Waits until the server is quiet, because it has processed everything that it received.
async fn quiet(peer: &Peer) {
    let deadline = Instant::now() + QUIET_WAIT_MAX;
    loop {
        let cpu = peer.cpu_ns();
        tokio::time::sleep(QUIET_TIME).await;
        if u128::from(peer.cpu_ns() - cpu) <= QUIET_CPU.as_nanos() || Instant::now() > deadline {
            return;
        }
    }
}
