//! Chunks through two tiers: a segment is made behind a shield, and clients of the edge before it ask for it as it begins.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;

use super::joiners::ask;
use super::servers::{self, Backend};
use super::stamps::Stamps;
use super::{Bench, Cache, SEGMENT};
use crate::load::Clock;

/// One chunk at one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// What both tiers are.
    pub cache: Cache,
    /// Of which segment.
    pub segment: usize,
    /// Its number in the segment, from 0 on.
    pub chunk: usize,
    /// From when it was sent by the backend and asked for, to its last byte at the client.
    pub delay: Duration,
}

/// All segments, over both kinds of tiers in turn.
pub(super) async fn measure(
    bench: &Bench<'_>,
    backend: &Backend,
    chunks: &mut Vec<Chunk>,
) -> anyhow::Result<()> {
    let mut tiers = Vec::new();
    for cache in Cache::ALL {
        let (shield, address) = servers::start(bench, cache, backend.address(), "shield")?;
        let (edge, address) = servers::start(bench, cache, address, "edge")?;
        tiers.push((cache, address, shield, edge));
    }
    for segment in 0..bench.plan.segments {
        for (cache, edge, ..) in &tiers {
            (bench.tell)(&format!(
                "chunks over two tiers of {}, {} of {}",
                cache.name(),
                segment + 1,
                bench.plan.segments
            ));
            let delays = relay(*edge, segment, bench.plan.relay_clients).await;
            let delays = delays.with_context(|| format!("chunks over two tiers of {}", cache.name()))?;
            let of = |(chunk, delay)| Chunk { cache: *cache, segment, chunk, delay };
            chunks.extend(delays.into_iter().map(of));
        }
    }
    Ok(())
}

/// One segment to so many clients: the number and the delay of each chunk at each.
async fn relay(edge: SocketAddr, number: usize, clients: usize) -> anyhow::Result<Vec<(usize, Duration)>> {
    let clock = Clock::start();
    let mut running = JoinSet::new();
    for _ in 0..clients {
        running.spawn(async move {
            let mut stamps = Stamps::new(SEGMENT.chunk_bytes);
            let exchange = ask(edge, SEGMENT, number, &mut stamps).await?;
            let asked_us = clock.unix_us(exchange.sent);
            let delay_us = |(sent_us, came)| clock.unix_us(came).saturating_sub(asked_us.max(sent_us));
            let delays = stamps.came.into_iter().map(|came| Duration::from_micros(delay_us(came)));
            anyhow::Ok(delays.enumerate().collect::<Vec<_>>())
        });
    }
    let mut delays = Vec::new();
    while let Some(done) = running.join_next().await {
        delays.extend(done??);
    }
    Ok(delays)
}
