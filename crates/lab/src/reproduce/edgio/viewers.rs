//! Viewers of all networks: connections that are kept for a few responses, one after the other, from any address of their network.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::networks::Network;
use crate::load::connection::{Connection, Timeouts};
use crate::load::response::Unread;
use crate::load::{ErrorKind, Failure};
use crate::scenario::Scenario;

/// The longest that any step of a request may take.
const PATIENCE: Duration = Duration::from_secs(30);
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, head: PATIENCE, content: PATIENCE };
/// Bytes of a response: a segment of one second at 2.4 Mbit/s.
pub const RESPONSE_BYTES: u64 = 300_000;
/// After a failure, so that one that lasts is no storm.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Failures of which it is kept what they were.
const FAILURES_TOLD_MAX: usize = 20;

/// A response as its viewer saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// The network, by its number.
    pub network: usize,
    /// When its last byte came, from the beginning on.
    pub at: Duration,
    /// From the request to its last byte.
    pub time: Duration,
}

impl Response {
    /// Bits of content per second.
    pub fn goodput_bits_per_s(&self) -> f64 {
        RESPONSE_BYTES as f64 * 8.0 / self.time.as_secs_f64()
    }
}

/// What viewers saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Each response.
    pub responses: Vec<Response>,
    /// How many were none.
    pub failed: u64,
    /// What the first of these were.
    pub failures: Vec<String>,
}

impl Seen {
    fn note_failure(&mut self, network: &str, failure: &Failure) {
        self.failed += 1;
        if self.failures.len() < FAILURES_TOLD_MAX {
            self.failures.push(format!("{network}: {failure}"));
        }
    }
}

/// Where content is.
pub fn target() -> String {
    format!("/lab/content?bytes={RESPONSE_BYTES}")
}

fn request() -> Vec<u8> {
    format!("GET {} HTTP/1.1\r\nHost: lab\r\n\r\n", target()).into_bytes()
}

/// Asks once, so that an edge has it stored.
///
/// # Errors
/// What went wrong.
pub async fn warm(server: SocketAddr) -> Result<(), Failure> {
    let mut connection = Connection::open(&server.into(), None, TIMEOUTS).await?;
    once(&mut connection).await.map(drop)
}

/// Has the viewers of all networks watch, for as long as this is awaited.
pub async fn watch(
    networks: &[Network],
    scenario: &Scenario,
    server: SocketAddr,
    begun: Instant,
    seen: &RefCell<Seen>,
) {
    let all = networks.iter().zip(&scenario.paths).enumerate();
    let viewers = all.flat_map(|(number, (network, path))| {
        (0..network.viewers).map(move |viewer| {
            let seed = scenario.seed ^ ((number as u64) << 32 | viewer as u64);
            let viewer = Viewer { number, network, prefix: path.prefix4, server, begun, seen };
            viewer.watch(StdRng::seed_from_u64(seed))
        })
    });
    join_all(viewers).await;
}

struct Viewer<'a> {
    number: usize,
    network: &'a Network,
    prefix: Ipv4Addr,
    server: SocketAddr,
    begun: Instant,
    seen: &'a RefCell<Seen>,
}

impl Viewer<'_> {
    async fn watch(self, mut random: StdRng) {
        // Not all at once.
        self.pause(&mut random).await;
        loop {
            if let Err(failure) = self.connection(&mut random).await {
                self.seen.borrow_mut().note_failure(self.network.name, &failure);
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// One connection, from an address of the network that chance chooses.
    async fn connection(&self, random: &mut StdRng) -> Result<(), Failure> {
        let address = Ipv4Addr::from_bits(self.prefix.to_bits() | random.random_range(1..=254));
        let mut connection =
            Connection::open(&self.server.into(), Some(IpAddr::V4(address)), TIMEOUTS).await?;
        for _ in 0..self.network.responses {
            let time = once(&mut connection).await?;
            let response = Response { network: self.number, at: self.begun.elapsed(), time };
            self.seen.borrow_mut().responses.push(response);
            self.pause(random).await;
        }
        Ok(())
    }

    /// Half of the network's pause to one and a half.
    async fn pause(&self, random: &mut StdRng) {
        sleep(self.network.pause.mul_f64(random.random_range(0.5..1.5))).await;
    }
}

/// One response, whole.
async fn once(connection: &mut Connection) -> Result<Duration, Failure> {
    let exchange = connection.exchange(&request(), &mut Unread).await.map_err(|broken| broken.failure)?;
    if (exchange.status, exchange.content_bytes) != (200, RESPONSE_BYTES) {
        let detail = format!("status {} with {} bytes", exchange.status, exchange.content_bytes);
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    Ok(exchange.last_byte - exchange.sent)
}
