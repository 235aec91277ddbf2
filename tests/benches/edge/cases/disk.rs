//! Hits from disk: more content than our memory holds, after a restart that has left it empty.
//!
//! The kernel's page cache has all of it, for every server: what is compared is what each does to send a file.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::{Bench, CONNECTIONS, REQUESTS, SIZES, figures, in_turn};
use crate::load::{self, Client, Paths};
use crate::servers::{Kind, Store, has_disk};
use crate::table::Table;

const ROUNDS: usize = 5;
/// Responses of each size, and requests in a round.
const RESPONSES: [usize; 4] = [2_000, 1_000, 100, 30];
const REQUESTS_IN_ROUND: [usize; 4] = [8_000, 4_000, 1_000, 300];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    if !has_disk()? {
        println!("disk: left out, `thalweg edge` has no --disk\n");
        return Ok(Vec::new());
    }
    let mut peers = bench.site.start_all(&Kind::PROXIES, Store::Disk)?;
    for peer in &peers {
        for ((_, length), responses) in SIZES.into_iter().zip(RESPONSES) {
            let mut clients = Client::connect_all(peer.address(), 8).await?;
            load::run(&mut clients, 8, responses, length as u64, &paths(length, responses)).await?;
        }
    }
    peers.retain(|peer| peer.kind != Kind::Thalweg);
    peers.insert(0, bench.site.start(Kind::Thalweg, Store::Disk)?);
    let mut tables = Vec::new();
    for (((name, length), responses), requests) in SIZES.into_iter().zip(RESPONSES).zip(REQUESTS_IN_ROUND) {
        let requests = bench.number(requests, requests / 2);
        let title = format!("{name} from disk, {responses} responses, {CONNECTIONS} connections");
        let mut table = Table::new("disk", title, &REQUESTS, &Kind::PROXIES);
        let before = bench.backend.requests();
        in_turn(&mut table, &peers, bench.number(ROUNDS, 2), async |peer, _| {
            let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
            let (cpu, paths) = (peer.server.cpu_ns(), paths(length, responses));
            let outcome = load::run(&mut clients, CONNECTIONS, requests, length as u64, &paths).await?;
            Ok(figures(&peer.server, peer.server.cpu_ns() - cpu, &outcome))
        })
        .await?;
        ensure!(bench.backend.requests() == before, "{name}: not all were hits");
        super::hits::judge(&mut table, length);
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

/// One after the other: each response is as long ago as can be.
fn paths(length: usize, responses: usize) -> Paths {
    Arc::new(move |number| format!("/bytes/{length}/{}", number % responses))
}
