//! Hits from disk: more content than our memory holds.
//!
//! The kernel's page cache has all of it, for every server: what is compared is what each does to send a file. Ours reads
//! and verifies each block at its first use since a start, and brings what is small back to memory: the first use, ours
//! started anew before each round, and later ones are measured each for itself.

use std::sync::Arc;

use anyhow::Result;

use super::{Bench, CONNECTIONS, REQUESTS, SIZES, hits_of, in_turn};
use crate::load::{self, Client, Paths};
use crate::servers::{Kind, Peer, Store, has_disk};
use crate::table::Table;

const ROUNDS: usize = 5;
/// Responses of each size, and requests in a round. Responses of 1 KB would all find room in our memory: each is asked
/// for once a round.
const RESPONSES: [usize; 4] = [6_000, 1_000, 100, 30];
const REQUESTS_IN_ROUND: [usize; 4] = [6_000, 4_000, 1_000, 300];
/// Requests that may be no hits: a store may have refused a response that came while its disk was busy.
const MISSED_PERCENT_MAX: usize = 5;
/// Times that a store is filled at most: it may refuse what comes faster than its disk writes. (An ext4 without a journal
/// takes ten times as long for a new file where thousands were removed within minutes, as a run before this one does.)
const FILLS_MAX: usize = 12;
/// Connections while the stores are filled: our memory must have room for what comes at a time.
const FILLING: usize = 2;

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    if !has_disk()? {
        println!("disk: left out, `thalweg edge` has no --disk\n");
        return Ok(Vec::new());
    }
    let mut peers = bench.site.start_all(&Kind::PROXIES, Store::Disk)?;
    for peer in &peers.0 {
        fill(bench, peer).await?;
    }
    peers.0.retain(|peer| peer.kind != Kind::Thalweg);
    let mut tables = Vec::new();
    let warm = bench.site.start(Kind::Thalweg, Store::Disk)?;
    for (((name, length), responses), requests) in SIZES.into_iter().zip(RESPONSES).zip(REQUESTS_IN_ROUND) {
        let requests = bench.number(requests, requests / 2);
        let paths = paths(length, responses);
        hits_of(bench, &warm, responses, length, &paths, MISSED_PERCENT_MAX).await?;
        let title = format!("{name} from disk, {responses} responses, {CONNECTIONS} connections");
        let mut table = Table::new("disk", title, &REQUESTS, &Kind::PROXIES);
        in_turn(&mut table, bench.number(ROUNDS, 2), async |kind, _| {
            let peer = if kind == Kind::Thalweg { &warm } else { peers.get(kind) };
            hits_of(bench, peer, requests, length, &paths, MISSED_PERCENT_MAX).await
        })
        .await?;
        super::hits::judge(&mut table, length);
        println!("{table}");
        tables.push(table);
    }
    drop(warm);
    for (((name, length), responses), requests) in SIZES.into_iter().zip(RESPONSES).zip(REQUESTS_IN_ROUND) {
        let requests = requests.min(responses);
        let paths = paths(length, responses);
        let title = format!("{name} from disk, first use since our start, {CONNECTIONS} connections");
        let mut table = Table::new("disk_first_use", title, &REQUESTS, &Kind::PROXIES);
        in_turn(&mut table, bench.number(ROUNDS, 2), async |kind, _| {
            if kind == Kind::Thalweg {
                let anew = bench.site.start(kind, Store::Disk)?;
                return hits_of(bench, &anew, requests, length, &paths, MISSED_PERCENT_MAX).await;
            }
            hits_of(bench, peers.get(kind), requests, length, &paths, MISSED_PERCENT_MAX).await
        })
        .await?;
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

/// Asks for all responses until the store has most of them.
async fn fill(bench: &Bench, peer: &Peer) -> Result<()> {
    for _ in 0..FILLS_MAX {
        let before = bench.backend.requests();
        for ((_, length), responses) in SIZES.into_iter().zip(RESPONSES) {
            let mut clients = Client::connect_all(peer.address(), FILLING).await?;
            load::run(&mut clients, FILLING, responses, length as u64, &paths(length, responses)).await?;
        }
        if bench.backend.requests() - before <= RESPONSES[3] * MISSED_PERCENT_MAX / 100 {
            return Ok(());
        }
    }
    Ok(())
}

/// One after the other: each response is as long ago as can be.
fn paths(length: usize, responses: usize) -> Paths {
    Arc::new(move |number| format!("/bytes/{length}/{}", number % responses))
}
