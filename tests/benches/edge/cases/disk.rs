//! Hits from disk: more content than Thalweg's memory can hold.
//!
//! The kernel's page cache holds all content for every server, so the case compares the cost of
//! sending a file. After a start, Thalweg reads and verifies each block on first use, and moves
//! small responses back to memory. First uses (with Thalweg restarted before each round) and later
//! uses are measured separately.

use std::sync::Arc;

use anyhow::Result;

use super::{Bench, CONNECTIONS, REQUESTS, SIZES, hits_of, in_turn};
use crate::load::{self, Client, Paths};
use crate::servers::{Kind, Peer, Store, has_disk};
use crate::table::Table;

const ROUNDS: usize = 5;
/// Number of responses of each size, and requests per round. All 1 KB responses together would fit
/// into memory, so each one is requested only once per round.
const RESPONSES: [usize; 4] = [6_000, 1_000, 100, 30];
const REQUESTS_IN_ROUND: [usize; 4] = [6_000, 4_000, 1_000, 300];
/// Maximum percentage of misses: a store may refuse a response that arrives while the disk is busy.
const MISSED_PERCENT_MAX: usize = 5;
/// Maximum number of attempts to fill a store, which may refuse responses that arrive faster than
/// its disk writes. (On ext4 without a journal, creating files takes ten times as long if thousands
/// of files were removed within the last minutes, for example by a previous run.)
const FILLS_MAX: usize = 12;
/// Connections used to fill the stores, few enough that all responses in progress fit into
/// Thalweg's memory.
const FILLING: usize = 2;

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Table>> {
    if !has_disk()? {
        println!("disk: skipped, `thalweg edge` has no --disk\n");
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
        super::hits::add_targets(&mut table, length);
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

/// Requests all responses until the store contains most of them.
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

/// Returns paths that cycle through all responses, so that the time between two uses of a response
/// is as long as possible.
fn paths(length: usize, responses: usize) -> Paths {
    Arc::new(move |number| format!("/bytes/{length}/{}", number % responses))
}
