//! Scenarios: a server, and clients of several prefixes, each behind a path of its own.
//!
//! Pure: a scenario is read from text (`text.rs`) or is a named path of the library (`library.rs`), and is whole and
//! within its limits once it is one.
//!
//! **Invariant:** one direction of a path is a bottleneck of some capacity with its queue, then a line that loses and
//! delays. What is lost has used the capacity, as on a radio link behind a base station's queue.

mod library;
mod text;
mod trace;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

pub use library::{Named, library, named};
pub use text::{Error, read, together};
pub use trace::{Step, Trace};

/// Paths of one scenario.
pub const PATHS_MAX: usize = 64;
/// What a queue holds at least where it is given as a part of the bandwidth-delay product: ten full packets.
pub const QUEUE_BYTES_MIN: u64 = 10 * 1500;
/// The queue of a direction without a limit of its rate is never full.
const QUEUE_BYTES_DEFAULT: u64 = 1 << 20;

/// A server and the paths to its clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The server's IPv4 address, the same for all clients.
    pub server4: Ipv4Addr,
    /// Its IPv6 address.
    pub server6: Ipv6Addr,
    /// What the losses and the jitter are drawn from.
    pub seed: u64,
    /// One for each client prefix, at least one.
    pub paths: Vec<Path>,
}

/// What lies between one client prefix and the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Its name in reports, the only one of that name.
    pub name: String,
    /// The clients' IPv4 prefix, a /24.
    pub prefix4: Ipv4Addr,
    /// The clients' IPv6 prefix, a /56.
    pub prefix6: Ipv6Addr,
    /// From the server to the clients.
    pub down: Direction,
    /// From the clients to the server.
    pub up: Direction,
    /// What becomes different while it runs, in order of time.
    pub changes: Vec<Change>,
}

/// One direction of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// What every packet takes at least, beside what the bottleneck takes.
    pub delay: Duration,
    /// Beside that packets take up to so much more, half of it in the middle; none overtakes another.
    pub jitter: Duration,
    /// What the bottleneck carries.
    pub capacity: Capacity,
    /// Where packets wait for it.
    pub queue: Queue,
    /// What is lost behind it.
    pub loss: Loss,
}

/// What a bottleneck carries, in bits of IP packets.
#[derive(Debug, Clone, PartialEq)]
pub enum Capacity {
    /// Everything, at once.
    Unlimited,
    /// So many bits per second.
    Rate(u64),
    /// What the trace says, which begins anew at its end.
    Trace(Trace),
}

/// A queue before a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// What it holds at most, in bytes of IP packets.
    pub bytes: u64,
    /// What it drops before it is full.
    pub discipline: Discipline,
}

/// How a queue is managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// What comes when it is full is dropped.
    DropTail,
    /// Controlled delay (RFC 8289) with its standard target of 5 ms and interval of 100 ms.
    CoDel,
}

/// Loss of packets as a chain of two states (Gilbert and Elliott). Loss without bursts never enters the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// Probability that a packet is lost in the good state.
    pub good: f64,
    /// The same in the bad state.
    pub bad: f64,
    /// Probability, with each packet, to go from good to bad.
    pub enter: f64,
    /// And from bad to good.
    pub leave: f64,
}

/// What becomes different at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// When, from the start.
    pub at: Duration,
    /// From the server to the clients.
    pub down: Alteration,
    /// From the clients to the server.
    pub up: Alteration,
}

/// What becomes different of a direction; the rest stays. A queue given as a part of the bandwidth-delay product keeps its
/// size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Alteration {
    /// The delay from now on.
    pub delay: Option<Duration>,
    /// The jitter from now on.
    pub jitter: Option<Duration>,
    /// The rate from now on, in bits per second.
    pub rate_bits_per_s: Option<u64>,
    /// The loss from now on.
    pub loss: Option<Loss>,
}

/// The IPv4 prefix of the path of that number, from one, unless it has another (RFC 2544: for tests of networks).
fn prefix4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, 0)
}

/// The same of IPv6 (RFC 3849: for documentation).
fn prefix6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, u16::from(number) << 8, 0, 0, 0, 0)
}

/// Gives paths prefixes of their own, of which there are at most [`PATHS_MAX`].
pub fn renumber(scenario: &mut Scenario) {
    for (path, number) in scenario.paths.iter_mut().zip(1..=PATHS_MAX as u8) {
        (path.prefix4, path.prefix6) = (prefix4(number), prefix6(number));
    }
}

impl Loss {
    /// No loss at all.
    pub const NONE: Self = Self::random(0.0);

    /// Each packet is lost with this probability, whatever became of the others.
    pub const fn random(probability: f64) -> Self {
        Self { good: probability, bad: probability, enter: 0.0, leave: 1.0 }
    }

    /// The share of packets that is lost in the long run.
    pub fn mean(&self) -> f64 {
        if self.enter == 0.0 {
            return self.good;
        }
        let share_bad = self.enter / (self.enter + self.leave);
        self.good * (1.0 - share_bad) + self.bad * share_bad
    }

    /// How many packets tell as much of the mean as one would if each were lost by itself: the variance of the share that is
    /// lost of many packets is so many times that of independent losses.
    pub fn clustering(&self) -> f64 {
        let mean = self.mean();
        if self.enter == 0.0 || mean <= 0.0 || mean >= 1.0 {
            return 1.0;
        }
        // The chain's second eigenvalue is how much of the state is left with each packet; the covariance of two losses
        // k packets apart is (bad − good)² · share of bad · share of good · eigenvalue^k, summed over all k on both sides.
        let share_bad = self.enter / (self.enter + self.leave);
        let kept = 1.0 - self.enter - self.leave;
        let covariance = (self.bad - self.good).powi(2) * share_bad * (1.0 - share_bad);
        1.0 + 2.0 * covariance * kept / (1.0 - kept) / (mean * (1.0 - mean))
    }
}

impl Capacity {
    /// Bits per second in the long run; `None` without a limit.
    pub fn mean_bits_per_s(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Rate(bits_per_s) => Some(*bits_per_s as f64),
            Self::Trace(trace) => Some(trace.mean_bits_per_s()),
        }
    }
}

impl Scenario {
    /// The changes of all paths, with the path's number, in order of time.
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
    /// The address of the prefix that a client has unless it takes another: the first.
    pub fn client4(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.prefix4.to_bits() | 1)
    }

    /// The same of the IPv6 prefix.
    pub fn client6(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.prefix6.to_bits() | 1)
    }

    /// The round trip of a small packet that waits in no queue.
    pub fn round_trip_min(&self) -> Duration {
        self.down.delay + self.up.delay
    }
}

#[cfg(test)]
mod tests;
