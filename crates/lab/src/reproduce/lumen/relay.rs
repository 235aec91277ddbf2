//! Chunk delay through two tiers: a backend behind a shield produces a segment chunk by chunk, and
//! clients request it from an edge as production starts.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use thalweg_load::Clock;
use tokio::task::JoinSet;

use super::joiners::ask;
use super::servers;
use super::stamps::Stamps;
use super::{Bench, Cache, SEGMENT};

/// A chunk as received by one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The cache used in both tiers.
    pub cache: Cache,
    /// Segment number.
    pub segment: usize,
    /// Index of the chunk in the segment, counted from 0.
    pub chunk: usize,
    /// Time from the backend sending the chunk (or the client's request, if later) to the client
    /// receiving the chunk's last byte.
    pub delay: Duration,
}

/// Measures all segments, alternating between the caches.
pub(super) async fn measure(
    bench: &Bench<'_>,
    backend: SocketAddr,
    chunks: &mut Vec<Chunk>,
) -> anyhow::Result<()> {
    let mut tiers = Vec::new();
    for cache in Cache::ALL {
        let (shield, address) = servers::start(bench, cache, backend, "shield")?;
        let (edge, address) = servers::start(bench, cache, address, "edge")?;
        tiers.push((cache, address, shield, edge));
    }
    for segment in 0..bench.plan.segments {
        for (cache, edge, ..) in &tiers {
            (bench.log)(&format!(
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

/// Relays one segment to `clients` clients. Returns the index and delay of each chunk at each
/// client.
async fn relay(edge: SocketAddr, number: usize, clients: usize) -> anyhow::Result<Vec<(usize, Duration)>> {
    let clock = Clock::start();
    let mut running = JoinSet::new();
    for _ in 0..clients {
        running.spawn(async move {
            let mut stamps = Stamps::new(SEGMENT.chunk_bytes);
            let exchange = ask(edge, SEGMENT, number, &mut stamps).await?;
            let requested_us = clock.unix_us(exchange.sent);
            let delay_us =
                |(sent_us, arrived)| clock.unix_us(arrived).saturating_sub(requested_us.max(sent_us));
            let delays = stamps.arrivals.into_iter().map(|arrived| Duration::from_micros(delay_us(arrived)));
            anyhow::Ok(delays.enumerate().collect::<Vec<_>>())
        });
    }
    let mut delays = Vec::new();
    while let Some(done) = running.join_next().await {
        delays.extend(done??);
    }
    Ok(delays)
}
