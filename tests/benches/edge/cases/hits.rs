//! Hits from memory: the same response, over and over.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::{Bench, CONNECTIONS, CPU, REQUESTS, SIZES, figures, in_turn};
use crate::load::{self, Client};
use crate::servers::{Kind, Peer, Store};
use crate::table::Table;

const KINDS: [Kind; 5] = [Kind::Thalweg, Kind::Nginx, Kind::NginxFiles, Kind::Varnish, Kind::TrafficServer];
const ROUNDS: usize = 7;
/// Requests in a round, for each size: some tenths of a second of CPU time.
const REQUESTS_IN_ROUND: [usize; 4] = [16_000, 8_000, 1_600, 480];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    let peers = bench.site.start_all(&KINDS, Store::Memory)?;
    let mut tables = Vec::new();
    for ((name, length), requests) in SIZES.into_iter().zip(REQUESTS_IN_ROUND) {
        let requests = bench.number(requests, requests / 2);
        let title = format!("{name} from memory, {CONNECTIONS} connections");
        let mut table = Table::new("hits", title, &REQUESTS, &KINDS);
        for peer in &peers {
            load::once(peer.address(), &path(length)).await?;
            measure(peer, requests / 4, length).await?;
        }
        let before = bench.backend.requests();
        in_turn(&mut table, &peers, bench.number(ROUNDS, 3), async |peer, _| {
            measure(peer, requests, length).await
        })
        .await?;
        ensure!(bench.backend.requests() == before, "{name}: not all were hits");
        judge(&mut table, length);
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

fn path(length: usize) -> String {
    format!("/bytes/{length}/0")
}

async fn measure(peer: &Peer, requests: usize, length: usize) -> Result<Vec<f64>> {
    let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
    let cpu = peer.server.cpu_ns();
    let path = path(length);
    let outcome = load::run(
        &mut clients,
        CONNECTIONS,
        requests,
        length as u64,
        &(Arc::new(move |_| path.clone()) as _),
    )
    .await?;
    Ok(figures(&peer.server, peer.server.cpu_ns() - cpu, &outcome))
}

/// The targets of hits of this length.
pub(crate) fn judge(table: &mut Table, length: usize) {
    let is_segment = length >= 1_000_000;
    table.at_most_of(CPU, Kind::Nginx, if is_segment { 1.0 } else { 0.6 });
    if is_segment {
        table.at_most_of(CPU, Kind::Varnish, 0.35);
    }
}
