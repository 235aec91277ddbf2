//! Joiners: a first client starts a fill, and others ask for the same while it goes on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use thalweg_http::ResponseHead;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::servers::{self, Backend};
use super::{Bench, Cache, Fill, SEGMENT, SHORT};
use crate::load::Failure;
use crate::load::connection::{Connection, Exchange, Timeouts};
use crate::load::response::{Sink, Unread};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of all requests.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, head: PATIENCE, content: PATIENCE };

/// One joiner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Joiner {
    /// Which cache it asked.
    pub cache: Cache,
    /// What it joined.
    pub fill: Fill,
    /// In which round.
    pub round: usize,
    /// When it asked, from when the first client had its head.
    pub joined: Duration,
    /// From its request to the first byte of the response.
    pub ttfb: Duration,
    /// Whether it asked once the first client had all: then it joined nothing.
    pub is_late: bool,
}

/// All rounds of all fills, the caches in turn.
pub(super) async fn measure(
    bench: &Bench<'_>,
    backend: &Backend,
    joiners: &mut Vec<Joiner>,
) -> anyhow::Result<()> {
    let mut caches = Vec::new();
    for cache in Cache::ALL {
        caches.push((cache, servers::start(bench, cache, backend.address(), "joined")?));
    }
    for round in 0..bench.plan.rounds {
        for fill in [SHORT, SEGMENT] {
            for (cache, (_running, address)) in &caches {
                (bench.tell)(&format!(
                    "joiners of a fill ({}) at {}, {} of {}",
                    fill.name,
                    cache.name(),
                    round + 1,
                    bench.plan.rounds
                ));
                let joined = join(*address, fill, round, bench.plan.joiners).await;
                let joined =
                    joined.with_context(|| format!("joiners of {} at {}", fill.name, cache.name()))?;
                joiners.extend(joined.into_iter().map(|wait| {
                    let Wait { joined, ttfb, is_late } = wait;
                    Joiner { cache: *cache, fill, round, joined, ttfb, is_late }
                }));
            }
        }
    }
    Ok(())
}

/// When a joiner asked, how long it waited, and whether that was too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    joined: Duration,
    ttfb: Duration,
    is_late: bool,
}

/// One fill that is joined by so many, evenly over its time.
async fn join(server: SocketAddr, fill: Fill, round: usize, count: usize) -> anyhow::Result<Vec<Wait>> {
    let (head_came, filling) = oneshot::channel();
    let mut running = JoinSet::new();
    running.spawn(
        async move { anyhow::Ok((None, ask(server, fill, round, &mut First(Some(head_came))).await?)) },
    );
    // Where there is no head there is an error, which the first client tells.
    if let Ok(begun) = filling.await {
        for index in 0..count {
            running.spawn(async move {
                let share = (index as f64 + 0.5) / count as f64;
                sleep_until((begun + fill.duration().mul_f64(share)).into()).await;
                Ok((Some(begun), ask(server, fill, round, &mut Unread).await?))
            });
        }
    }
    let (mut ended, mut joined) = (None, Vec::new());
    while let Some(done) = running.join_next().await {
        match done?? {
            (None, first) => ended = Some(first.last_byte),
            (Some(begun), exchange) => joined.push((begun, exchange)),
        }
    }
    let wait = |(begun, Exchange { sent, first_byte, .. }): (Instant, Exchange)| Wait {
        joined: sent.saturating_duration_since(begun),
        ttfb: first_byte - sent,
        is_late: ended.is_some_and(|ended| sent > ended),
    };
    let mut waits: Vec<_> = joined.into_iter().map(wait).collect();
    waits.sort_unstable();
    Ok(waits)
}

/// Asks for it over a connection of its own; all of it has to come.
pub(super) async fn ask(
    server: SocketAddr,
    fill: Fill,
    number: usize,
    sink: &mut impl Sink,
) -> anyhow::Result<Exchange> {
    let request = format!("GET {} HTTP/1.1\r\nHost: {server}\r\n\r\n", fill.target(number));
    let mut connection = Connection::open(&server.into(), None, TIMEOUTS).await?;
    let exchange = connection.exchange(request.as_bytes(), sink).await.map_err(|broken| broken.failure)?;
    let Exchange { status, content_bytes, .. } = exchange;
    ensure!(
        status == 200 && content_bytes == fill.bytes(),
        "status {status} with {content_bytes} bytes of content instead of {}",
        fill.bytes()
    );
    Ok(exchange)
}

/// The first client, which tells when its head comes and lets the content go.
struct First(Option<oneshot::Sender<Instant>>);

impl Sink for First {
    fn head(&mut self, _: &ResponseHead) -> Result<(), Failure> {
        if let Some(head_came) = self.0.take() {
            // Nobody waits for it once the measurement is given up.
            let _ = head_came.send(Instant::now());
        }
        Ok(())
    }

    fn is_reading(&self) -> bool {
        false
    }

    fn read(&mut self, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn arrived(&mut self, _: Instant, _: u64) {}

    fn chunk(&mut self, _: Instant) {}
}
