//! The client networks and their true properties, used to judge the controller's decisions.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use thalweg_netem::emulation::Family;
use thalweg_netem::scenario::{Alteration, Change, Loss, Path, Scenario, read};

/// The paths, one per network.
const PATHS: &str = include_str!("networks.toml");
/// The PoPs. [`Network::pop`] is an index into this list.
pub const POPS: [&str; 2] = ["east", "west"];
/// The network that changes halfway through.
const TURNING: &str = "turning";
/// Loss on that network's path after the change.
const LOSS_AFTER: f64 = 0.02;

/// BBR's true effect on a network, which follows from its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// CUBIC treats losses as congestion and leaves most of the path unused; BBR does not.
    Gains,
    /// Healthy in the first half; in the second, it gains like [`Gains`](Self::Gains).
    GainsLater,
    /// BBR retransmits far more than CUBIC.
    Loses,
    /// Slow, and no faster with BBR.
    Slow,
    /// Slow, and the effect does not follow from the path: it depends on how long slow start takes.
    Open,
    /// Neither slow nor faster with BBR.
    Healthy,
}

impl Truth {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Truth::Gains => "gains",
            Truth::GainsLater => "gains in the second half",
            Truth::Loses => "loses",
            Truth::Slow => "slow, no gain",
            Truth::Open => "slow, effect open",
            Truth::Healthy => "healthy",
        }
    }

    /// Whether declaring the network helped would be wrong.
    pub fn is_without_gain(self) -> bool {
        matches!(self, Truth::Loses | Truth::Slow | Truth::Healthy)
    }
}

/// A client network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Name of the network's path.
    pub name: &'static str,
    /// The PoP that serves the network, an index into [`POPS`].
    pub pop: usize,
    /// Address family of its viewers: the network is a /24 or a /56.
    pub family: Family,
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
    let pause = Duration::from_millis(pause_ms);
    Network { name, pop: 0, family: Family::Four, truth, viewers, responses, pause }
}

const fn healthy(name: &'static str) -> Network {
    network(name, Truth::Healthy, 2, 2, 2000)
}

impl Network {
    const fn in_west(self) -> Self {
        Self { pop: 1, ..self }
    }

    const fn with_ipv6(self) -> Self {
        Self { family: Family::Six, ..self }
    }

    /// Returns the prefix of the network's path in CIDR notation.
    pub fn prefix(&self, path: &Path) -> String {
        self.family.prefix(path)
    }
}

/// Paths and traffic of the networks. Only in the mixed world does the congestion control matter;
/// in the others, a network that is declared helped is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Networks as an operator has them: most healthy, some slow for different reasons.
    #[default]
    Mixed,
    /// All networks have the same clean path.
    Identical,
    /// The viewers of each network share a bottleneck: what one gains, the others lose.
    Shared,
}

impl World {
    /// Returns all networks, in scenario order. Their names, PoPs and families are those of
    /// [`NETWORKS`] in every world.
    pub fn networks(self) -> [Network; NETWORKS.len()] {
        let with = |truth, viewers, pause_ms| {
            let pause = Duration::from_millis(pause_ms);
            NETWORKS.map(|network| Network { truth, viewers, responses: 2, pause, ..network })
        };
        match self {
            World::Mixed => NETWORKS,
            World::Identical => with(Truth::Healthy, 3, 1000),
            World::Shared => with(Truth::Slow, 6, 300),
        }
    }

    /// Returns the network of the mixed world whose path all networks have.
    fn model(self) -> Option<&'static str> {
        match self {
            World::Mixed => None,
            World::Identical => Some("dsl"),
            World::Shared => Some("crowded"),
        }
    }
}

/// All networks of the mixed world, in scenario order.
pub const NETWORKS: [Network; 24] = [
    healthy("campus"),
    healthy("fibre").with_ipv6(),
    healthy("cable"),
    healthy("dsl").with_ipv6(),
    healthy("lte"),
    healthy("city").with_ipv6(),
    healthy("region"),
    healthy("country").with_ipv6(),
    healthy("coast"),
    network("overseas", Truth::Gains, 7, 2, 200),
    network("policed", Truth::Loses, 2, 1, 1000).with_ipv6(),
    network("crowded", Truth::Slow, 6, 2, 300),
    healthy("office").in_west(),
    healthy("suburb").in_west().with_ipv6(),
    healthy("cable, old").in_west(),
    healthy("dsl, slow").in_west().with_ipv6(),
    healthy("lte, rural").in_west(),
    healthy("town").in_west().with_ipv6(),
    healthy("province").in_west(),
    healthy("island").in_west().with_ipv6(),
    network(TURNING, Truth::GainsLater, 6, 2, 300).in_west(),
    network("radio", Truth::Gains, 7, 2, 200).in_west().with_ipv6(),
    network("bloated", Truth::Slow, 4, 2, 300).in_west(),
    network("antipodes", Truth::Open, 2, 2, 1000).in_west().with_ipv6(),
];

/// Returns the networks of a PoP, with their indices in [`NETWORKS`].
pub fn of_pop(pop: usize) -> impl Iterator<Item = (usize, &'static Network)> {
    NETWORKS.iter().enumerate().filter(move |(_, network)| network.pop == pop)
}

/// Returns the scenario with all networks' paths. In the mixed world, the turning network changes
/// at `turns_at`, which is measured from the start of the viewers.
pub fn scenario(world: World, turns_at: Duration) -> Scenario {
    let mut scenario =
        read(PATHS, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("the built-in scenario is tested");
    if let Some(model) = world.model() {
        let model = scenario.paths.iter().find(|path| path.name == model);
        let model = model.expect("the built-in scenario is tested").clone();
        for path in &mut scenario.paths {
            (path.down, path.up) = (model.down.clone(), model.up.clone());
        }
        return scenario;
    }
    let down = Alteration { loss: Some(Loss::random(LOSS_AFTER)), ..Alteration::default() };
    let change = Change { at: turns_at, down, up: Alteration::default() };
    let turning = scenario.paths.iter_mut().find(|path| path.name == TURNING);
    turning.expect("the built-in scenario is tested").changes.push(change);
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_netem::scenario::Capacity;

    /// Returns the rate, in bits per second, to which loss limits a CUBIC connection. CUBIC is at
    /// least as fast as Reno, whose rate this is (Mathis et al., CCR 27(3), 1997), with TCP
    /// segments of 1,448 bytes.
    fn by_loss(path: &Path, loss: f64) -> f64 {
        1448.0 * 8.0 / path.round_trip_min().as_secs_f64() * (1.5 / loss).sqrt()
    }

    #[test]
    fn truth_follows_from_the_paths() {
        World::value_variants().iter().for_each(|world| check_truth(*world));
    }

    fn check_truth(world: World) {
        let scenario = scenario(world, Duration::ZERO);
        let names: Vec<_> = scenario.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, NETWORKS.map(|network| network.name));
        for (path, network) in scenario.paths.iter().zip(world.networks()) {
            let Capacity::Rate(rate) = path.down.capacity else { panic!("{} needs a rate", path.name) };
            let fair = rate as f64 / network.viewers as f64;
            let bdp_bytes = rate as f64 / 8.0 * path.round_trip_min().as_secs_f64();
            let queue_bdp = path.down.queue.bytes as f64 / bdp_bytes;
            let loss = path.down.loss.mean();
            let gains = |loss| by_loss(path, loss) < fair / 1.5;
            match network.truth {
                Truth::Gains => assert!(gains(loss), "{}: {}", path.name, by_loss(path, loss)),
                Truth::GainsLater => {
                    let [change] = path.changes.as_slice() else { panic!("{} must change once", path.name) };
                    assert!(loss == 0.0 && gains(change.down.loss.unwrap().mean()), "{}", path.name);
                }
                Truth::Loses => assert!(queue_bdp < 0.25, "{}: {queue_bdp}", path.name),
                Truth::Slow | Truth::Healthy | Truth::Open => {
                    assert!(loss == 0.0 && queue_bdp > 1.0, "{}: {queue_bdp}", path.name);
                }
            }
        }
    }

    #[test]
    fn each_pop_has_networks_of_both_families() {
        for pop in 0..POPS.len() {
            for family in [Family::Four, Family::Six] {
                assert!(of_pop(pop).filter(|(_, network)| network.family == family).count() >= 4);
            }
            assert_eq!(of_pop(pop).count(), NETWORKS.len() / POPS.len());
        }
    }
}
