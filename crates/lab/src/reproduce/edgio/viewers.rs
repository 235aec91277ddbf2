//! Viewers in all networks: each connects from a random address in its network and requests a few
//! responses per connection.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_load::connection::{Connection, Timeouts};
use thalweg_load::response::Unread;
use thalweg_load::{ErrorKind, Failure};
use thalweg_netem::emulation::Family;
use thalweg_netem::scenario::{Path, Scenario};
use tokio::time::sleep;

use super::networks::{Network, POPS};
use super::parts::{EDGES, port};

/// Time limit for each step of a request.
const PATIENCE: Duration = Duration::from_secs(30);
const TIMEOUTS: Timeouts = Timeouts::each(PATIENCE);
/// Response size in bytes: one second of media at 2.4 Mbit/s.
pub const RESPONSE_BYTES: u64 = 300_000;
/// Pause after a failure, so that a persistent failure causes no connection storm.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Maximum number of failure messages kept.
const FAILURES_KEPT_MAX: usize = 20;

/// One response, as measured by its viewer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// Index of the viewer's network in [`NETWORKS`](super::networks::NETWORKS).
    pub network: usize,
    /// Time from the start of the measurement to the response's last byte.
    pub at: Duration,
    /// Time from the request to the response's last byte.
    pub time: Duration,
}

impl Response {
    /// Returns the goodput in bits of content per second.
    pub fn goodput_bits_per_s(&self) -> f64 {
        RESPONSE_BYTES as f64 * 8.0 / self.time.as_secs_f64()
    }
}

/// Results of all viewers.
#[derive(Debug, Default)]
pub struct ViewerResults {
    /// All complete responses.
    pub responses: Vec<Response>,
    /// Number of failures.
    pub failed: u64,
    /// Messages of the first failures.
    pub failures: Vec<String>,
}

impl ViewerResults {
    fn record_failure(&mut self, network: &str, failure: &Failure) {
        self.failed += 1;
        if self.failures.len() < FAILURES_KEPT_MAX {
            self.failures.push(format!("{network}: {failure}"));
        }
    }
}

/// Returns the request target for the content.
pub fn target() -> String {
    format!("/lab/content?bytes={RESPONSE_BYTES}")
}

/// Requests the content once from each edge, so that the edge stores it.
///
/// # Errors
///
/// Returns an error if a request fails.
pub async fn warm(scenario: &Scenario) -> Result<(), Failure> {
    for pop in 0..POPS.len() {
        for edge in 0..EDGES {
            let server = SocketAddr::from((scenario.server4, port(pop, edge)));
            let mut connection = Connection::open(&server.into(), None, TIMEOUTS).await?;
            fetch(&mut connection).await?;
        }
    }
    Ok(())
}

/// Runs the viewers of all networks until the future is dropped.
pub async fn watch(
    networks: &[Network],
    scenario: &Scenario,
    started: Instant,
    seen: &RefCell<ViewerResults>,
) {
    let all = networks.iter().zip(&scenario.paths).enumerate();
    let viewers = all.flat_map(|(number, (network, path))| {
        (0..network.viewers).map(move |viewer| {
            let seed = scenario.seed ^ ((number as u64) << 32 | viewer as u64);
            let viewer = Viewer { number, network, path, scenario, started, seen };
            viewer.watch(StdRng::seed_from_u64(seed))
        })
    });
    join_all(viewers).await;
}

struct Viewer<'a> {
    number: usize,
    network: &'a Network,
    path: &'a Path,
    scenario: &'a Scenario,
    started: Instant,
    seen: &'a RefCell<ViewerResults>,
}

impl Viewer<'_> {
    async fn watch(self, mut random: StdRng) {
        // Spread out the viewers' starts.
        self.pause(&mut random).await;
        loop {
            if let Err(failure) = self.connection(&mut random).await {
                self.seen.borrow_mut().record_failure(self.network.name, &failure);
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Opens one connection from a random address in the network to one of the PoP's edges, and
    /// requests its share of responses.
    async fn connection(&self, random: &mut StdRng) -> Result<(), Failure> {
        let port = port(self.network.pop, random.random_range(0..EDGES));
        let (client, server) = self.addresses(random);
        let server = SocketAddr::new(server, port);
        let mut connection = Connection::open(&server.into(), Some(client), TIMEOUTS).await?;
        for _ in 0..self.network.responses {
            let time = fetch(&mut connection).await?;
            let response = Response { network: self.number, at: self.started.elapsed(), time };
            self.seen.borrow_mut().responses.push(response);
            self.pause(random).await;
        }
        Ok(())
    }

    /// Returns a random address in the network, and the server's address of the same family. IPv6
    /// clients are in different /64s of their /56, as households are.
    fn addresses(&self, random: &mut StdRng) -> (IpAddr, IpAddr) {
        let host = random.random_range(1..=254_u32);
        match self.network.family {
            Family::Four => {
                let client = Ipv4Addr::from_bits(self.path.prefix4.to_bits() | host);
                (client.into(), self.scenario.server4.into())
            }
            Family::Six => {
                let subnet = u128::from(host) << 64;
                let client = Ipv6Addr::from_bits(self.path.prefix6.to_bits() | subnet | 1);
                (client.into(), self.scenario.server6.into())
            }
        }
    }

    /// Sleeps for 0.5 to 1.5 times the network's mean pause.
    async fn pause(&self, random: &mut StdRng) {
        sleep(self.network.pause.mul_f64(random.random_range(0.5..1.5))).await;
    }
}

/// Fetches one response and returns the time it took.
async fn fetch(connection: &mut Connection) -> Result<Duration, Failure> {
    let exchange = connection.get("lab", &target(), "", &mut Unread).await?;
    if (exchange.status, exchange.content_bytes) != (200, RESPONSE_BYTES) {
        let detail = format!("status {} with {} bytes", exchange.status, exchange.content_bytes);
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    Ok(exchange.last_byte - exchange.sent)
}
