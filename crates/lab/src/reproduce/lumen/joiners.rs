//! Joiners: clients that request content while a fill of the same content, started by a first
//! client, is in progress.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use thalweg_http::ResponseHead;
use thalweg_load::Failure;
use thalweg_load::connection::{Connection, Exchange, Timeouts};
use thalweg_load::response::{Sink, Unread};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::servers;
use super::{Bench, Cache, Fill, SEGMENT, SHORT};

/// Time limit for each step of a request.
const PATIENCE: Duration = Duration::from_secs(30);
const TIMEOUTS: Timeouts = Timeouts::each(PATIENCE);

/// One joiner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Joiner {
    /// The requested cache.
    pub cache: Cache,
    /// The joined fill.
    pub fill: Fill,
    /// Round number.
    pub round: usize,
    /// Time from the first client receiving the head to this joiner's request.
    pub joined: Duration,
    /// Time from the request to the first byte of the response.
    pub ttfb: Duration,
    /// Whether the request was sent after the first client had received the complete response, when
    /// there was no fill left to join.
    pub is_late: bool,
}

/// Measures all rounds of all fills, alternating the caches.
pub(super) async fn measure(
    bench: &Bench<'_>,
    backend: SocketAddr,
    joiners: &mut Vec<Joiner>,
) -> anyhow::Result<()> {
    let mut caches = Vec::new();
    for cache in Cache::ALL {
        caches.push((cache, servers::start(bench, cache, backend, "joined")?));
    }
    for round in 0..bench.plan.rounds {
        for fill in [SHORT, SEGMENT] {
            for (cache, (_running, address)) in &caches {
                (bench.log)(&format!(
                    "joiners of a fill ({}) at {}, {} of {}",
                    fill.name,
                    cache.name(),
                    round + 1,
                    bench.plan.rounds
                ));
                let joined = join(*cache, *address, fill, round, bench.plan.joiners).await;
                joiners
                    .extend(joined.with_context(|| format!("joiners of {} at {}", fill.name, cache.name()))?);
            }
        }
    }
    Ok(())
}

/// Runs one fill with `count` joiners spread evenly over the fill's duration. Returns them in
/// request order.
async fn join(
    cache: Cache,
    server: SocketAddr,
    fill: Fill,
    round: usize,
    count: usize,
) -> anyhow::Result<Vec<Joiner>> {
    let (head_came, filling) = oneshot::channel();
    let mut running = JoinSet::new();
    running.spawn(
        async move { anyhow::Ok((None, ask(server, fill, round, &mut First(Some(head_came))).await?)) },
    );
    // If no head arrives, the first client returns the error.
    if let Ok(started) = filling.await {
        for index in 0..count {
            running.spawn(async move {
                let share = (index as f64 + 0.5) / count as f64;
                sleep_until((started + fill.duration().mul_f64(share)).into()).await;
                Ok((Some(started), ask(server, fill, round, &mut Unread).await?))
            });
        }
    }
    let (mut ended, mut joined) = (None, Vec::new());
    while let Some(done) = running.join_next().await {
        match done?? {
            (None, first) => ended = Some(first.last_byte),
            (Some(started), exchange) => joined.push((started, exchange)),
        }
    }
    let joiner = |(started, Exchange { sent, first_byte, .. }): (Instant, Exchange)| Joiner {
        cache,
        fill,
        round,
        joined: sent.saturating_duration_since(started),
        ttfb: first_byte - sent,
        is_late: ended.is_some_and(|ended| sent > ended),
    };
    let mut joiners: Vec<_> = joined.into_iter().map(joiner).collect();
    joiners.sort_unstable_by_key(|joiner| (joiner.joined, joiner.ttfb));
    Ok(joiners)
}

/// Requests the fill over a new connection and checks that its complete content arrives.
pub(super) async fn ask(
    server: SocketAddr,
    fill: Fill,
    number: usize,
    sink: &mut impl Sink,
) -> anyhow::Result<Exchange> {
    let mut connection = Connection::open(&server.into(), None, TIMEOUTS).await?;
    let exchange = connection.get(&server.to_string(), &fill.target(number), "", sink).await?;
    let Exchange { status, content_bytes, .. } = exchange;
    ensure!(
        status == 200 && content_bytes == fill.bytes(),
        "status {status} with {content_bytes} bytes of content instead of {}",
        fill.bytes()
    );
    Ok(exchange)
}

/// Sink of the first client, which reports when the head arrives and discards the content.
struct First(Option<oneshot::Sender<Instant>>);

impl Sink for First {
    fn head(&mut self, _: &ResponseHead) -> Result<(), Failure> {
        if let Some(head_came) = self.0.take() {
            // Ignore the error: the receiver is dropped if the measurement was abandoned.
            let _ = head_came.send(Instant::now());
        }
        Ok(())
    }
}
