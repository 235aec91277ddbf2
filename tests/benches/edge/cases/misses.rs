//! Misses: each request is for a new response. The stores fill up, so the servers also evict.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Result, ensure};

use super::{Bench, CONNECTIONS, REQUESTS, SIZES, figures, in_turn};
use crate::load::{self, Client};
use crate::servers::{Kind, Store};
use crate::table::Table;

const ROUNDS: usize = 5;
/// Requests per round for each measured size.
const REQUESTS_IN_ROUND: [usize; 2] = [6_000, 3_000];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let peers = bench.site.start_all(&Kind::PROXIES, Store::Memory)?;
    let next = Arc::new(AtomicUsize::new(0));
    let mut tables = Vec::new();
    for ((name, length), requests) in SIZES.into_iter().zip(REQUESTS_IN_ROUND) {
        let requests = bench.number(requests, requests / 4);
        let title = format!("{name}, {CONNECTIONS} connections");
        let mut table = Table::new("misses", title, &REQUESTS, &Kind::PROXIES);
        let measure = async |peer: &crate::servers::Peer| {
            let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
            let (cpu, before) = (peer.cpu_ns(), bench.backend.requests());
            let next = next.clone();
            let new = move |_| format!("/bytes/{length}/{}", next.fetch_add(1, Relaxed));
            let outcome =
                load::run(&mut clients, CONNECTIONS, requests, length as u64, &(Arc::new(new) as _)).await?;
            ensure!(bench.backend.requests() - before >= requests, "{name}: some requests were not misses");
            peer.empty_log()?;
            Ok(figures(peer, peer.cpu_ns() - cpu, &outcome))
        };
        for peer in &peers.0 {
            measure(peer).await?;
        }
        in_turn(&mut table, bench.number(ROUNDS, 2), async |kind, _| measure(peers.get(kind)).await).await?;
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}
