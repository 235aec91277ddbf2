//! Scenarios: a server and several client prefixes, each reached over its own path.
//!
//! A scenario is parsed from TOML (`text.rs`), which may refer to named paths (`library.rs`). The
//! parser fills in all defaults and checks all limits, so a parsed [`Scenario`] can be emulated as
//! it is.
//!
//! **Invariant:** each direction of a path is a bottleneck with a queue, followed by a line that
//! loses and delays packets. Loss happens after the bottleneck, so a lost packet still uses
//! capacity, as on a radio link behind a base station's queue.

mod library;
mod text;
mod trace;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

pub use library::{Named, library, named};
pub use text::{Error, Share, combine, read};
pub use trace::{Step, Trace};

/// Maximum paths per scenario.
pub const PATHS_MAX: usize = 64;
/// Minimum size of a queue specified in bandwidth-delay products: ten full-sized packets.
pub const QUEUE_BYTES_MIN: u64 = 10 * 1500;
/// Queue size of a direction without a rate limit. Such a queue never fills.
const QUEUE_BYTES_DEFAULT: u64 = 1 << 20;

/// A server and the paths to its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The server's IPv4 address, the same for all clients.
    pub server4: Ipv4Addr,
    /// The server's IPv6 address, the same for all clients.
    pub server6: Ipv6Addr,
    /// Seed of the random losses and jitter.
    pub seed: u64,
    /// One path per client prefix; at least one.
    pub paths: Vec<Path>,
}

/// The network between one client prefix and the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Name in reports; unique in a scenario.
    pub name: String,
    /// The clients' IPv4 prefix, a /24.
    pub prefix4: Ipv4Addr,
    /// The clients' IPv6 prefix, a /56.
    pub prefix6: Ipv6Addr,
    /// Direction from the server to the clients.
    pub down: Direction,
    /// Direction from the clients to the server.
    pub up: Direction,
    /// Changes during the run, ordered by time.
    pub changes: Vec<Change>,
}

/// One direction of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// One-way delay of every packet, not including the time in the bottleneck.
    pub delay: Duration,
    /// Maximum random delay added to `delay`; the mean is half of it. Jitter never reorders
    /// packets.
    pub jitter: Duration,
    /// Capacity of the bottleneck.
    pub capacity: Capacity,
    /// Queue before the bottleneck.
    pub queue: Queue,
    /// Loss after the bottleneck.
    pub loss: Loss,
}

/// Capacity of a bottleneck. Rates count the bits of whole IP packets.
#[derive(Debug, Clone, PartialEq)]
pub enum Capacity {
    /// No limit.
    Unlimited,
    /// A constant number of bits per second.
    Rate(u64),
    /// A trace, repeated from the start when it ends.
    Trace(Trace),
}

/// A queue before a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Maximum size, in bytes of IP packets.
    pub bytes: u64,
    /// Queue discipline, which decides when to drop packets.
    pub discipline: Discipline,
}

/// Queue disciplines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Drops arriving packets when full.
    DropTail,
    /// Controlled delay (RFC 8289) with its standard target of 5 ms and interval of 100 ms.
    CoDel,
}

/// Packet loss, modelled as a two-state Markov chain (Gilbert and Elliott). Loss without bursts
/// never enters the bad state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// Probability that a packet is lost in the good state.
    pub good: f64,
    /// Probability that a packet is lost in the bad state.
    pub bad: f64,
    /// Transition probability from good to bad, per packet.
    pub enter: f64,
    /// Transition probability from bad to good, per packet.
    pub leave: f64,
}

/// A change to a path during the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Time of the change, measured from the start of the emulation.
    pub at: Duration,
    /// New properties of the direction from the server to the clients.
    pub down: Alteration,
    /// New properties of the direction from the clients to the server.
    pub up: Alteration,
}

/// New properties of one direction; `None` leaves a property unchanged. A queue specified in
/// bandwidth-delay products keeps its size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Alteration {
    /// The new delay.
    pub delay: Option<Duration>,
    /// The new jitter.
    pub jitter: Option<Duration>,
    /// The new rate in bits per second.
    pub rate_bits_per_s: Option<u64>,
    /// The new loss.
    pub loss: Option<Loss>,
}

/// Returns the default IPv4 prefix of path `number`, counted from one, in the benchmarking range
/// (RFC 2544).
fn prefix4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, 0)
}

/// Returns the default IPv6 prefix of path `number` in the documentation range (RFC 3849).
fn prefix6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, u16::from(number) << 8, 0, 0, 0, 0)
}

/// Assigns the default prefixes to all paths. The scenario must have at most [`PATHS_MAX`] paths.
pub fn renumber(scenario: &mut Scenario) {
    for (path, number) in scenario.paths.iter_mut().zip(1..=PATHS_MAX as u8) {
        (path.prefix4, path.prefix6) = (prefix4(number), prefix6(number));
    }
}

impl Loss {
    /// No loss.
    pub const NONE: Self = Self::random(0.0);

    /// Creates a loss that hits each packet independently with the given probability.
    pub const fn random(probability: f64) -> Self {
        Self { good: probability, bad: probability, enter: 0.0, leave: 1.0 }
    }

    /// Returns the long-run share of lost packets.
    pub fn mean(&self) -> f64 {
        if self.enter == 0.0 {
            return self.good;
        }
        let share_bad = self.enter / (self.enter + self.leave);
        self.good * (1.0 - share_bad) + self.bad * share_bad
    }

    /// Returns the factor by which bursts increase the variance of a measured loss share, compared
    /// with independent losses. This many packets carry as much information about the mean as one
    /// packet would if losses were independent.
    pub fn clustering(&self) -> f64 {
        let mean = self.mean();
        if self.enter == 0.0 || mean <= 0.0 || mean >= 1.0 {
            return 1.0;
        }
        // The chain's second eigenvalue, `kept`, is the correlation between the states of
        // consecutive packets. The covariance of two losses k packets apart is (bad − good)² ·
        // share bad · share good · kept^k, summed here over all k ≠ 0.
        let share_bad = self.enter / (self.enter + self.leave);
        let kept = 1.0 - self.enter - self.leave;
        let covariance = (self.bad - self.good).powi(2) * share_bad * (1.0 - share_bad);
        1.0 + 2.0 * covariance * kept / (1.0 - kept) / (mean * (1.0 - mean))
    }
}

impl Capacity {
    /// Returns the long-run mean rate in bits per second, or `None` if unlimited.
    pub fn mean_bits_per_s(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Rate(bits_per_s) => Some(*bits_per_s as f64),
            Self::Trace(trace) => Some(trace.mean_bits_per_s()),
        }
    }
}

impl Scenario {
    /// Returns the changes of all paths, each with the path's index, ordered by time.
    pub fn changes(&self) -> Vec<(usize, Change)> {
        let mut changes: Vec<_> = self
            .paths
            .iter()
            .enumerate()
            .flat_map(|(index, path)| path.changes.iter().map(move |change| (index, change.clone())))
            .collect();
        changes.sort_by_key(|(_, change)| change.at);
        changes
    }
}

impl Path {
    /// Returns the clients' default IPv4 address: the first in the prefix.
    pub fn client4(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.prefix4.to_bits() | 1)
    }

    /// Returns the clients' default IPv6 address: the first in the prefix.
    pub fn client6(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.prefix6.to_bits() | 1)
    }

    /// Returns the minimum round-trip time: both delays, without jitter or queueing.
    pub fn round_trip_min(&self) -> Duration {
        self.down.delay + self.up.delay
    }
}

#[cfg(test)]
mod tests;
