//! The client networks and their true properties, used to judge the controller's decisions.

use std::time::Duration;

use thalweg_netem::scenario::{Scenario, read};

/// The paths, one per network.
const PATHS: &str = include_str!("networks.toml");

/// BBR's true effect on a network, which follows from its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// CUBIC treats losses as congestion and leaves most of the path unused; BBR does not.
    Gains,
    /// BBR retransmits far more than CUBIC.
    Loses,
    /// Slow, and no faster with BBR.
    Slow,
    /// Neither slow nor faster with BBR.
    Healthy,
}

impl Truth {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Truth::Gains => "gains",
            Truth::Loses => "loses",
            Truth::Slow => "slow, no gain",
            Truth::Healthy => "healthy",
        }
    }
}

/// A client network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Name of the network's path.
    pub name: &'static str,
    /// BBR's true effect on the network.
    pub truth: Truth,
    /// Number of concurrent viewers.
    pub viewers: usize,
    /// Responses per connection.
    pub responses: u32,
    /// Mean pause of a viewer after each response.
    pub pause: Duration,
}

const fn network(name: &'static str, truth: Truth, viewers: usize, responses: u32, pause_ms: u64) -> Network {
    Network { name, truth, viewers, responses, pause: Duration::from_millis(pause_ms) }
}

const fn healthy(name: &'static str) -> Network {
    network(name, Truth::Healthy, 3, 2, 2000)
}

/// All networks, in scenario order.
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
    network("overseas", Truth::Gains, 7, 2, 200),
    network("radio", Truth::Gains, 7, 2, 200),
    network("policed", Truth::Loses, 2, 1, 1000),
    network("bloated", Truth::Slow, 4, 2, 300),
];

/// Returns the scenario with all networks' paths.
pub fn scenario() -> Scenario {
    read(PATHS, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("the built-in scenario is tested")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_netem::scenario::{Capacity, Path};

    /// Returns the rate, in bits per second, to which loss limits a CUBIC connection. CUBIC is at
    /// least as fast as Reno, whose rate this is (Mathis et al., CCR 27(3), 1997), with TCP
    /// segments of 1,448 bytes.
    fn by_loss(path: &Path) -> f64 {
        1448.0 * 8.0 / path.round_trip_min().as_secs_f64() * (1.5 / path.down.loss.mean()).sqrt()
    }

    #[test]
    fn truth_follows_from_the_paths() {
        let scenario = scenario();
        let names: Vec<_> = scenario.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, NETWORKS.map(|network| network.name));
        for (path, network) in scenario.paths.iter().zip(NETWORKS) {
            let Capacity::Rate(rate) = path.down.capacity else { panic!("{} needs a rate", path.name) };
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
