//! Hits from memory: the same response, over and over.

use std::sync::Arc;

use anyhow::Result;

use super::{Bench, CONNECTIONS, CPU, REQUESTS, SIZES, hits_of, in_turn};
use crate::load::{self, Client, Paths};
use crate::servers::{Kind, Store};
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
        let paths: Paths = Arc::new(move |_| format!("/bytes/{length}/0"));
        for peer in &peers.0 {
            load::once(peer.address(), &paths(0)).await?;
            let mut clients = Client::connect_all(peer.address(), CONNECTIONS).await?;
            load::run(&mut clients, CONNECTIONS, requests / 4, length as u64, &paths).await?;
        }
        let title = format!("{name} from memory, {CONNECTIONS} connections");
        let mut table = Table::new("hits", title, &REQUESTS, &KINDS);
        in_turn(&mut table, bench.number(ROUNDS, 3), async |kind, _| {
            hits_of(bench, peers.get(kind), requests, length, &paths, 0).await
        })
        .await?;
        judge(&mut table, length);
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

/// The targets of hits of this length.
pub(crate) fn judge(table: &mut Table, length: usize) {
    let is_segment = length >= 1_000_000;
    table.at_most_of(CPU, Kind::Nginx, if is_segment { 1.0 } else { 0.6 });
    if is_segment {
        table.at_most_of(CPU, Kind::Varnish, 0.35);
    }
}
