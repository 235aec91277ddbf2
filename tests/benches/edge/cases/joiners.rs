//! Time to first byte of clients that join a fill in progress at random moments.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::{Bench, in_turn};
use crate::backend::FILL_TIME;
use crate::load::Client;
use crate::servers::{Kind, Peer, Store};
use crate::table::{Metric, Table};

const CLIENTS: usize = 100;
const ROUNDS: usize = 5;
/// Clients join after the fill has started and before it can complete.
const JOIN_FROM: Duration = Duration::from_millis(50);
const JOIN_TO: Duration = FILL_TIME.saturating_sub(Duration::from_millis(50));
const P99: usize = 1;

static METRICS: [Metric; 3] = [
    Metric { key: "ttfb_p50_ms", name: "TTFB p50 ms", decimals: 2 },
    Metric { key: "ttfb_p99_ms", name: "TTFB p99 ms", decimals: 2 },
    Metric { key: "ttfb_max_ms", name: "max ms", decimals: 2 },
];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let peers = bench.site.start_all(&Kind::PROXIES, Store::Memory)?;
    let title = format!("{CLIENTS} clients join a fill of {} s at random moments", FILL_TIME.as_secs());
    let mut table = Table::new("joiners", title, &METRICS, &Kind::PROXIES);
    in_turn(&mut table, bench.number(ROUNDS, 1), async |kind, round| {
        let peer = peers.get(kind);
        let before = bench.backend.requests();
        let figures = round_of(peer, round).await?;
        ensure!(bench.backend.requests() - before <= CLIENTS, "every request was fetched separately");
        Ok(figures)
    })
    .await?;
    table.at_most_of(P99, Kind::Varnish, 1.0);
    println!("{table}");
    Ok(vec![table])
}

async fn round_of(peer: &Peer, round: usize) -> Result<Vec<f64>> {
    let path = format!("/fill/{round}");
    let mut first = Client::connect(peer.address()).await?;
    let clients = Client::connect_all(peer.address(), CLIENTS).await?;
    let begun = tokio::time::Instant::now();
    first.send_request(&path).await?;
    let mut running = JoinSet::new();
    running.spawn(async move { first.response(|_| ()).await.map(|content| (content, None)) });
    for (number, mut client) in clients.into_iter().enumerate() {
        let at = begun + moment((round * CLIENTS + number) as u64);
        let path = path.clone();
        running.spawn(async move {
            tokio::time::sleep_until(at).await;
            let (sent_at, mut first_byte) = (Instant::now(), None);
            client.send_request(&path).await?;
            let content =
                client.response(|_| first_byte = first_byte.or_else(|| Some(sent_at.elapsed()))).await?;
            Ok((content, first_byte))
        });
    }
    let (mut ttfb_us, mut contents) = (Histogram::<u64>::new(3)?, Vec::new());
    while let Some(ended) = running.join_next().await {
        let (content, first_byte) = ended??;
        contents.push(content);
        if let Some(first_byte) = first_byte {
            ttfb_us.record(u64::try_from(first_byte.as_micros())?)?;
        }
    }
    ensure!(contents.iter().all(|content| *content == contents[0]), "content differs between clients");
    let millis = |quantile| ttfb_us.value_at_quantile(quantile) as f64 / 1e3;
    Ok(vec![millis(0.5), millis(0.99), millis(1.0)])
}

/// Returns the time at which client `number` joins: evenly distributed and deterministic
/// (SplitMix64).
fn moment(number: u64) -> Duration {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
    JOIN_FROM + (JOIN_TO - JOIN_FROM).mul_f64(share)
}
