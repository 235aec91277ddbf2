//! Live chunk relay: one response in progress, relayed chunk by chunk to many clients.
//!
//! Only thalweg and Varnish are measured: nginx does not share a response in progress, and Traffic
//! Server polls for new data every 50 ms.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Bench, in_turn};
use crate::backend::Backend;
use crate::load::Client;
use crate::servers::{Kind, Peer, Store};
use crate::table::{Metric, Table};

const KINDS: [Kind; 2] = [Kind::Thalweg, Kind::Varnish];
const CLIENTS: usize = 1_000;
const ROUNDS: usize = 5;
/// Half a second of video at 260 kbit/s and at 1 Mbit/s.
const CHUNKS_BYTES: [usize; 2] = [16_000, 64_000];
const CHUNKS: usize = 20;
const CHUNK_TIME: Duration = Duration::from_millis(100);
const CPU: usize = 0;
const CPU_US_MAX: f64 = 8.0;

static METRICS: [Metric; 4] = [
    Metric { key: "cpu_us_per_client_and_chunk", name: "CPU µs/client/chunk", decimals: 1 },
    Metric { key: "delay_p50_ms", name: "delay p50 ms", decimals: 2 },
    Metric { key: "delay_p99_ms", name: "delay p99 ms", decimals: 2 },
    Metric { key: "rss_mib", name: "RSS MiB", decimals: 1 },
];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let peers = bench.site.start_all(&KINDS, Store::Memory)?;
    let mut tables = Vec::new();
    for chunk_bytes in CHUNKS_BYTES {
        let title = format!("chunks of {} KB to {CLIENTS} clients", chunk_bytes / 1000);
        let mut table = Table::new("relay", title, &METRICS, &KINDS);
        in_turn(&mut table, bench.number(ROUNDS, 1), async |kind, round| {
            let peer = peers.get(kind);
            relay(&bench.backend, peer, &format!("/relay/{chunk_bytes}/{round}"), chunk_bytes).await
        })
        .await?;
        table.at_most(CPU, CPU_US_MAX);
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

async fn relay(backend: &Backend, peer: &Peer, path: &str, chunk_bytes: usize) -> Result<Vec<f64>> {
    let mut running = JoinSet::new();
    let (joined, mut all_joined) = watch::channel(0);
    let before = backend.requests();
    for mut client in Client::connect_all(peer.address(), CLIENTS).await? {
        client.send_request(path).await?;
        let joined = joined.clone();
        running.spawn(async move {
            let mut arrived = Vec::with_capacity(CHUNKS + 1);
            let content = client.response(|received| {
                while received >= ((arrived.len() + 1) * chunk_bytes) as u64 {
                    arrived.push(Instant::now());
                    if arrived.len() == 1 {
                        joined.send_modify(|joined| *joined += 1);
                    }
                }
            });
            let content = content.await?;
            anyhow::Ok((content, arrived))
        });
    }
    // Push one chunk that is not measured. Once every client has received it, all have joined.
    while backend.requests() == before {
        tokio::task::yield_now().await;
    }
    backend.push(chunk_bytes)?;
    all_joined.wait_for(|joined| *joined == CLIENTS).await?;
    let cpu = peer.cpu_ns();
    let mut pushed = Vec::new();
    let mut due = tokio::time::Instant::now();
    for _ in 0..CHUNKS {
        due += CHUNK_TIME;
        tokio::time::sleep_until(due).await;
        pushed.push(Instant::now());
        backend.push(chunk_bytes)?;
    }
    tokio::time::sleep_until(due + CHUNK_TIME).await;
    let cpu_ns = peer.cpu_ns() - cpu;
    backend.push(0)?;
    let mut delays_us = Histogram::<u64>::new(3)?;
    while let Some(ended) = running.join_next().await {
        let (content, arrived) = ended??;
        ensure!(content == ((CHUNKS + 1) * chunk_bytes) as u64, "{content} bytes received");
        for (arrived, pushed) in arrived.iter().skip(1).zip(&pushed) {
            delays_us.record(u64::try_from(arrived.duration_since(*pushed).as_micros())?)?;
        }
    }
    let millis = |quantile| delays_us.value_at_quantile(quantile) as f64 / 1e3;
    let chunks = (CLIENTS * CHUNKS) as f64;
    Ok(vec![cpu_ns as f64 / 1e3 / chunks, millis(0.5), millis(0.99), super::mib(peer.rss_bytes())])
}
