//! The matrix of a comparison, and the order in which its cells are measured.

use anyhow::ensure;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use thalweg_netem::scenario::{PATHS_MAX, Path, Scenario};

/// Size of the content from which ranges are requested.
pub const RANGED_BYTES: u64 = 5_000_000;
/// Maximum response size.
const BYTES_MAX: u64 = 1_000_000_000;
/// Maximum samples per cell.
pub const SAMPLES_MAX: usize = 10_000;

/// A request sent by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Content bytes of the response.
    pub bytes: u64,
    /// Whether to request a range of [`RANGED_BYTES`], at a different position in each sample.
    pub is_range: bool,
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Index of the path in the scenario.
    pub path: usize,
    /// The request sent in this cell.
    pub request: Request,
    /// Kernel name of the congestion control algorithm.
    pub algorithm: String,
}

/// A comparison to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The paths to measure.
    pub scenario: Scenario,
    /// The requests to send over each path.
    pub requests: Vec<Request>,
    /// Kernel names of the algorithms to compare.
    pub algorithms: Vec<String>,
    /// Samples per cell.
    pub samples: usize,
    /// Number of parallel copies of each path.
    pub lanes: usize,
}

impl Request {
    /// Returns the display name: `1200kB`, or `512kB range`.
    pub fn name(&self) -> String {
        let number = match self.bytes {
            bytes if bytes % 1_000_000 == 0 => format!("{}MB", bytes / 1_000_000),
            bytes if bytes % 1000 == 0 => format!("{}kB", bytes / 1000),
            bytes => format!("{bytes}B"),
        };
        if self.is_range { format!("{number} range") } else { number }
    }
}

impl Plan {
    /// Validates the plan.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing to measure, if an entry occurs twice, or if a limit is
    /// exceeded.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.algorithms.is_empty() && !self.requests.is_empty() && self.samples > 0 && self.lanes > 0,
            "nothing to measure: need at least one algorithm, one size, one sample and one lane"
        );
        ensure!(self.samples <= SAMPLES_MAX, "{} samples: at most {SAMPLES_MAX} allowed", self.samples);
        let paths = self.scenario.paths.len();
        ensure!(
            paths * self.lanes <= PATHS_MAX,
            "{} lanes of {paths} paths: at most {PATHS_MAX} in total",
            self.lanes
        );
        for (index, algorithm) in self.algorithms.iter().enumerate() {
            ensure!(!self.algorithms[..index].contains(algorithm), "{algorithm} is given twice");
        }
        for (index, request) in self.requests.iter().enumerate() {
            ensure!(!self.requests[..index].contains(request), "{} is given twice", request.name());
            let bytes_max = if request.is_range { RANGED_BYTES } else { BYTES_MAX };
            ensure!(
                (1..=bytes_max).contains(&request.bytes),
                "{}: must be from 1B to {bytes_max}B",
                request.name()
            );
        }
        Ok(())
    }

    /// Returns the scenario with one copy of each path per lane. The copies of path `n` start at
    /// index `n * lanes`.
    pub fn lanes(&self) -> Scenario {
        let copy = |path: &Path, lane| Path { name: format!("{}/{}", path.name, lane + 1), ..path.clone() };
        let paths = self.scenario.paths.iter();
        let paths = paths.flat_map(|path| (0..self.lanes).map(move |lane| copy(path, lane))).collect();
        let mut scenario = Scenario { paths, ..self.scenario.clone() };
        thalweg_netem::scenario::renumber(&mut scenario);
        scenario
    }

    /// Returns one cell per sample of a path, in measuring order. Each round contains each cell
    /// once in random order, so that changes over time affect all cells alike.
    pub fn order(&self, path: usize) -> Vec<Cell> {
        let mut random = StdRng::seed_from_u64(self.scenario.seed ^ path as u64);
        let mut order = Vec::new();
        for _ in 0..self.samples {
            let mut round: Vec<Cell> = self.cells_of(path).collect();
            round.shuffle(&mut random);
            order.extend(round);
        }
        order
    }

    fn cells_of(&self, path: usize) -> impl Iterator<Item = Cell> {
        self.requests.iter().flat_map(move |request| {
            self.algorithms.iter().map(move |algorithm| Cell {
                path,
                request: *request,
                algorithm: algorithm.clone(),
            })
        })
    }

    /// Returns all cells of the matrix.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        (0..self.scenario.paths.len()).flat_map(|path| self.cells_of(path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use thalweg_netem::scenario;

    fn plan(samples: usize, lanes: usize) -> Plan {
        let text = "[[path]]\nuse = 'long-haul'\n[[path]]\nuse = 'lte'";
        let requests =
            [(1_200_000, false), (512_000, true)].map(|(bytes, is_range)| Request { bytes, is_range });
        Plan {
            scenario: scenario::read(text, &|_| unreachable!("the scenario includes no file")).unwrap(),
            requests: requests.to_vec(),
            algorithms: ["bbr", "cubic", "reno"].map(str::to_owned).to_vec(),
            samples,
            lanes,
        }
    }

    #[test]
    fn each_round_has_each_cell_once_in_a_different_order() {
        let plan = plan(20, 2);
        let order = plan.order(1);
        let rounds: Vec<_> = order.chunks(6).collect();
        for round in &rounds {
            let mut sorted = round.to_vec();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), 6);
        }
        assert!(rounds.windows(2).any(|two| two[0] != two[1]));
        assert_eq!(order, plan.order(1), "the seed determines the order");
        let mut counts = BTreeMap::new();
        (0..2).flat_map(|path| plan.order(path)).for_each(|cell| *counts.entry(cell).or_insert(0) += 1);
        assert!(plan.cells().all(|cell| counts.get(&cell) == Some(&20)));
    }

    #[test]
    fn lanes_are_copies_with_their_own_prefixes() {
        let lanes = plan(1, 3).lanes();
        let names: Vec<_> = lanes.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, ["long-haul/1", "long-haul/2", "long-haul/3", "lte/1", "lte/2", "lte/3"]);
        assert_eq!(lanes.paths[5].prefix4, std::net::Ipv4Addr::new(198, 18, 6, 0));
        assert_eq!(lanes.paths[1].down, lanes.paths[0].down);
    }

    #[test]
    fn invalid_plans_are_rejected() {
        assert!(plan(1, 32).check().is_ok());
        assert_eq!(plan(1, 33).check().unwrap_err().to_string(), "33 lanes of 2 paths: at most 64 in total");
        assert!(plan(0, 1).check().is_err());
        let mut large = plan(1, 1);
        large.requests.push(Request { bytes: 6_000_000, is_range: true });
        assert_eq!(large.check().unwrap_err().to_string(), "6MB range: must be from 1B to 5000000B");
        let mut twice = plan(1, 1);
        twice.algorithms.push("bbr".to_owned());
        assert_eq!(twice.check().unwrap_err().to_string(), "bbr is given twice");
        twice.algorithms.pop();
        twice.requests.push(twice.requests[0]);
        assert_eq!(twice.check().unwrap_err().to_string(), "1200kB is given twice");
    }
}
