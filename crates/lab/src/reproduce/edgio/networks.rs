//! The networks of clients and what is true of them, by which it is judged what the controller finds. Pure.

use std::time::Duration;

use crate::scenario::{Path, Scenario, read};

/// The paths, one for each network.
const PATHS: &str = include_str!("networks.toml");

/// What BBR does for a network, by how its path is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// CUBIC takes losses for congestion and leaves most of the path unused; BBR does not.
    Gains,
    /// BBR sends far more again.
    Loses,
    /// Slow, and no better with BBR.
    Slow,
    /// Neither slow nor better with BBR.
    Healthy,
}

impl Truth {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Truth::Gains => "gains",
            Truth::Loses => "loses",
            Truth::Slow => "slow, no gain",
            Truth::Healthy => "healthy",
        }
    }
}

/// A network of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// That of its path.
    pub name: &'static str,
    /// What BBR does for it.
    pub truth: Truth,
    /// Viewers at a time.
    pub viewers: usize,
    /// Responses of a connection.
    pub responses: u32,
    /// What a viewer waits after each, on average.
    pub pause: Duration,
}

const fn network(name: &'static str, truth: Truth, viewers: usize, responses: u32, pause_ms: u64) -> Network {
    Network { name, truth, viewers, responses, pause: Duration::from_millis(pause_ms) }
}

const fn healthy(name: &'static str) -> Network {
    network(name, Truth::Healthy, 3, 2, 2000)
}

/// All networks, in the order of the scenario's paths.
pub const NETWORKS: [Network; 16] = [
    healthy("campus"),
    healthy("fibre"),
    healthy("cable 1"),
    healthy("cable 2"),
    healthy("dsl 1"),
    healthy("dsl 2"),
    healthy("lte 1"),
    healthy("lte 2"),
    healthy("city"),
    healthy("region"),
    healthy("country"),
    healthy("coast"),
    network("overseas", Truth::Gains, 7, 4, 200),
    network("radio", Truth::Gains, 7, 4, 200),
    network("policed", Truth::Loses, 2, 1, 1000),
    network("bloated", Truth::Slow, 4, 2, 300),
];

/// Their paths.
pub fn scenario() -> Scenario {
    read(PATHS, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("it is tested")
}

/// The network of clients of a path, as records have it.
pub fn prefix(path: &Path) -> String {
    format!("{}/24", path.prefix4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Capacity;

    /// Bits per second that loss leaves to a connection of CUBIC: no less than what it leaves to Reno (Mathis et al., CCR 27(3),
    /// 1997), with TCP segments of 1,448 bytes.
    fn by_loss(path: &Path) -> f64 {
        1448.0 * 8.0 / path.round_trip_min().as_secs_f64() * (1.5 / path.down.loss.mean()).sqrt()
    }

    #[test]
    fn the_truth_is_that_of_the_paths() {
        let scenario = scenario();
        let names: Vec<_> = scenario.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, NETWORKS.map(|network| network.name));
        for (path, network) in scenario.paths.iter().zip(NETWORKS) {
            let Capacity::Rate(rate) = path.down.capacity else { panic!("{} has a rate", path.name) };
            let fair = rate as f64 / network.viewers as f64;
            let bdp_bytes = rate as f64 / 8.0 * path.round_trip_min().as_secs_f64();
            let queue_bdp = path.down.queue.bytes as f64 / bdp_bytes;
            match network.truth {
                Truth::Gains => assert!(by_loss(path) < fair / 1.5, "{}: {}", path.name, by_loss(path)),
                Truth::Loses => assert!(queue_bdp < 0.25, "{}: {queue_bdp}", path.name),
                Truth::Slow | Truth::Healthy => {
                    assert!(path.down.loss.mean() == 0.0 && queue_bdp > 1.0, "{}: {queue_bdp}", path.name);
                }
            }
        }
    }
}
