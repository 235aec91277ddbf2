//! Hits from memory: repeated requests for the same response, with and without records.
//!
//! There are two load generators: the benchmark's own clients, for all sizes; and wrk, for sizes at
//! which the cost of a record is visible, because wrk uses less CPU per request and keeps more
//! requests waiting at the server. The last case is an edge with a follower, such as an agent.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Bench, CONNECTIONS, CPU, SIZES, hits_of, in_turn};
use crate::load::{self, Client, HOST, Paths};
use crate::servers::{Kind, Peer, Peers, Records, Store};
use crate::table::{Metric, Table};

const KINDS: [Kind; 5] = [Kind::Thalweg, Kind::Nginx, Kind::NginxFiles, Kind::Varnish, Kind::TrafficServer];
const ROUNDS: usize = 7;
/// Requests per round for each size; they take a few tenths of a second of CPU time.
const REQUESTS_IN_ROUND: [usize; 4] = [16_000, 8_000, 1_600, 480];
/// Number of sizes requested by wrk, and wrk's run time per round.
const WRK_SIZES: usize = 2;
const WRK_TIME: Duration = Duration::from_secs(1);
/// Time after a round for a server to write its last records. nginx and varnishncsa buffer records
/// for at most a second, so they write most of them during the round.
const LOG_TIME: Duration = Duration::from_millis(50);
/// Time for which an unfollowed edge keeps producing records, plus a margin.
const UNFOLLOWED_TIME: Duration = Duration::from_secs(62);
/// Name of thalweg's worker thread.
const WORKER: &str = "edge-0";
/// Maximum CPU time of a record, in microseconds per response.
const RECORD_US_MAX: f64 = 2.0;

/// Indices of the metrics that have targets, in addition to [`CPU`].
const CPU_WITHOUT: usize = 1;
const RECORD: usize = 2;

static HITS: [Metric; 8] = [
    Metric { key: "cpu_us_per_request", name: "CPU µs/request", decimals: 1 },
    Metric { key: "cpu_us_per_request_without_records", name: "without records", decimals: 1 },
    Metric { key: "cpu_us_per_record", name: "a record", decimals: 2 },
    Metric { key: "requests_per_s", name: "requests/s", decimals: 0 },
    Metric { key: "gbit_per_s", name: "Gbit/s", decimals: 2 },
    Metric { key: "latency_p50_us", name: "p50 µs", decimals: 0 },
    Metric { key: "latency_p99_us", name: "p99 µs", decimals: 0 },
    Metric { key: "rss_mib", name: "RSS MiB", decimals: 1 },
];

static WRK: [Metric; 4] = [
    Metric { key: "cpu_us_per_request", name: "CPU µs/request", decimals: 1 },
    Metric { key: "cpu_us_per_request_without_records", name: "without records", decimals: 1 },
    Metric { key: "cpu_us_per_record", name: "a record", decimals: 2 },
    Metric { key: "requests_per_s", name: "requests/s", decimals: 0 },
];

static FOLLOWED: [Metric; 3] = [
    Metric { key: "worker_cpu_us_per_request", name: "worker's CPU µs/request", decimals: 1 },
    Metric { key: "worker_cpu_us_per_request_without_records", name: "without records", decimals: 1 },
    Metric { key: "worker_cpu_us_per_record", name: "a record", decimals: 2 },
];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let with = bench.site.start_all(&KINDS, Store::Memory)?;
    let without = bench.site.start_all_with(&KINDS, Store::Memory, Records::Off)?;
    let mut tables = Vec::new();
    wait_until_unfollowed(without.get(Kind::Thalweg)).await?;
    for ((name, length), requests) in SIZES.into_iter().zip(REQUESTS_IN_ROUND) {
        let requests = bench.number(requests, requests / 2);
        let paths: Paths = Arc::new(move |_| path(length));
        for peer in with.0.iter().chain(&without.0) {
            load::once(peer.address(), &path(length)).await?;
            let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
            load::run(&mut clients, CONNECTIONS, requests / 4, length as u64, &paths).await?;
        }
        let title = format!("{name} from memory, {CONNECTIONS} connections");
        let mut table = Table::new("hits", title, &HITS, &KINDS);
        in_turn(&mut table, bench.number(ROUNDS, 3), async |kind, _| {
            let figures = hits_of(bench, with.get(kind), requests, length, &paths, 0).await?;
            let off = hits_of(bench, without.get(kind), requests, length, &paths, 0).await?[CPU];
            Ok([&[figures[CPU], off, figures[CPU] - off], &figures[CPU + 1..]].concat())
        })
        .await?;
        add_targets(&mut table, length);
        table.at_most_of(CPU_WITHOUT, Kind::Nginx, if length >= 1_000_000 { 1.0 } else { 0.6 });
        table.at_most(RECORD, RECORD_US_MAX);
        println!("{table}");
        tables.push(table);
    }
    for (name, length) in SIZES.into_iter().take(WRK_SIZES) {
        tables.push(by_wrk(bench, &with, &without, name, length).await?);
    }
    for peer in &with.0 {
        peer.check_log()?;
    }
    tables.push(followed(bench).await?);
    Ok(tables)
}

fn path(length: usize) -> String {
    format!("/bytes/{length}/0")
}

/// Adds the targets for hits on content of this length.
pub(crate) fn add_targets(table: &mut Table, length: usize) {
    let times = if length >= 1_000_000 {
        1.0
    } else if length >= 10_000 {
        0.8
    } else {
        0.6
    };
    table.at_most_of(CPU, Kind::Nginx, times);
    if length >= 1_000_000 {
        table.at_most_of(CPU, Kind::Varnish, 0.35);
    }
}

async fn by_wrk(bench: &Bench, with: &Peers, without: &Peers, name: &str, length: usize) -> Result<Table> {
    let title = format!("{name} from memory, wrk with {CONNECTIONS} connections");
    let mut table = Table::new("hits_wrk", title, &WRK, &KINDS);
    in_turn(&mut table, bench.number(ROUNDS, 3), async |kind, _| {
        let mut figures = Vec::new();
        for peer in [with.get(kind), without.get(kind)] {
            let (cpu, begun) = (peer.cpu_ns(), Instant::now());
            // Block the runtime deliberately, so that wrk has the clients' core to itself.
            let requests = wrk(&format!("http://{}{}", peer.address(), path(length)))?;
            let per_s = requests / begun.elapsed().as_secs_f64();
            std::thread::sleep(LOG_TIME);
            figures.push(((peer.cpu_ns() - cpu) as f64 / 1e3 / requests, per_s));
            peer.empty_log()?;
        }
        let [(on, per_s), (off, _)] = figures[..] else { unreachable!("one with records, one without") };
        Ok(vec![on, off, on - off, per_s])
    })
    .await?;
    add_targets(&mut table, length);
    table.at_most(RECORD, RECORD_US_MAX);
    println!("{table}");
    Ok(table)
}

/// Runs wrk and returns the number of completed requests.
fn wrk(url: &str) -> Result<f64> {
    let (connections, time) = (CONNECTIONS.to_string(), format!("{}s", WRK_TIME.as_secs()));
    // Send the same Host field as the benchmark's own clients: it is part of the cache key.
    let host = format!("Host: {HOST}");
    let arguments =
        ["--threads", "1", "--connections", &connections, "--duration", &time, "--header", &host, url];
    let output =
        Command::new("wrk").args(arguments).output().context("wrk: tools/setup bench installs it")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && !text.contains("Non-2xx"), "{text}");
    let requests =
        text.lines().find_map(|line| line.split_once(" requests in ")).context("wrk counted no requests")?;
    Ok(requests.0.trim().parse()?)
}

/// Compares an edge that has a follower but no log file with an edge whose follower has
/// disconnected.
async fn followed(bench: &Bench) -> Result<Table> {
    let title = format!("1 KB from memory, {CONNECTIONS} connections, followed");
    let mut table = Table::new("hits_followed", title, &FOLLOWED, &[Kind::Thalweg]);
    let peer = bench.site.start_with(Kind::Thalweg, Store::Memory, Records::Off)?;
    let length = SIZES[0].1;
    let requests = bench.number(REQUESTS_IN_ROUND[0], REQUESTS_IN_ROUND[0] / 2);
    let paths: Paths = Arc::new(move |_| path(length));
    load::once(peer.address(), &path(length)).await?;
    let cpu = async || {
        let cpu = peer.threads_cpu_ns(WORKER);
        hits_of(bench, &peer, requests, length, &paths, 0).await?;
        anyhow::Ok((peer.threads_cpu_ns(WORKER) - cpu) as f64 / 1e3 / requests as f64)
    };
    let admin = peer.admin().context("edge has no admin address")?;
    let follower = TcpStream::connect(admin).await?;
    let following = tokio::spawn(follow(follower));
    let mut with = Vec::new();
    for _ in 0..bench.number(ROUNDS, 3) {
        with.push(cpu().await?);
    }
    following.abort();
    wait_until_unfollowed(&peer).await?;
    for with in with {
        let without = cpu().await?;
        table.add(Kind::Thalweg, vec![with, without, with - without]);
    }
    table.at_most(RECORD, RECORD_US_MAX);
    println!("{table}");
    Ok(table)
}

/// Waits until an unfollowed edge stops producing records, which happens at its first response
/// after the timeout.
async fn wait_until_unfollowed(peer: &Peer) -> Result<()> {
    tokio::time::sleep(UNFOLLOWED_TIME).await;
    load::once(peer.address(), &path(SIZES[0].1)).await?;
    tokio::time::sleep(LOG_TIME).await;
    Ok(())
}

/// Reads all records of an edge.
async fn follow(mut stream: TcpStream) -> Result<()> {
    stream.write_all(b"GET /records HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await?;
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
