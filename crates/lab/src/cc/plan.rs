//! The matrix and the order in which it is measured.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::scenario::{PATHS_MAX, Path, Scenario};

/// Content of which ranges are asked for.
pub const RANGED_BYTES: u64 = 5_000_000;
/// Responses of one size.
const BYTES_MAX: u64 = 1_000_000_000;
/// Samples of one cell.
pub const SAMPLES_MAX: usize = 10_000;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// Content bytes of the response.
    pub bytes: u64,
    /// Whether these are a range within [`RANGED_BYTES`], at a place of its own for each sample.
    pub is_range: bool,
}

/// One field of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The path, by its number in the scenario.
    pub path: usize,
    /// What is asked for.
    pub ask: Ask,
    /// The congestion control by its kernel name.
    pub algorithm: String,
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The paths of which each has a row.
    pub scenario: Scenario,
    /// What is asked for over each.
    pub asks: Vec<Ask>,
    /// The kernel's names of what is compared.
    pub algorithms: Vec<String>,
    /// Of each cell.
    pub samples: usize,
    /// How many copies of each path are used side by side.
    pub lanes: usize,
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Ask {
    /// As people write it: `1200kB`, or `512kB range`.
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
    /// # Errors
    /// If there is nothing to compare, or more than may be.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |message: String| Err(Error(message));
        if self.algorithms.is_empty() || self.asks.is_empty() || self.samples == 0 || self.lanes == 0 {
            return fail(
                "nothing to measure: at least one algorithm, one size, one sample and one lane".to_owned(),
            );
        }
        if self.samples > SAMPLES_MAX {
            return fail(format!("{} samples: at most {SAMPLES_MAX}", self.samples));
        }
        if self.scenario.paths.len() * self.lanes > PATHS_MAX {
            let paths = self.scenario.paths.len();
            return fail(format!("{} lanes of {paths} paths: at most {PATHS_MAX} in all", self.lanes));
        }
        for (index, algorithm) in self.algorithms.iter().enumerate() {
            if self.algorithms[..index].contains(algorithm) {
                return fail(format!("{algorithm} is named twice"));
            }
        }
        for (index, ask) in self.asks.iter().enumerate() {
            if self.asks[..index].contains(ask) {
                return fail(format!("{} is asked for twice", ask.name()));
            }
            let bytes_max = if ask.is_range { RANGED_BYTES } else { BYTES_MAX };
            if ask.bytes == 0 || ask.bytes > bytes_max {
                return fail(format!("{}: from 1B to {bytes_max}B", ask.name()));
            }
        }
        Ok(())
    }

    /// The paths with their copies: those of the path of number `n` are the `lanes` ones from `n * lanes` on.
    pub fn lanes(&self) -> Scenario {
        let copy = |path: &Path, lane| Path { name: format!("{}/{}", path.name, lane + 1), ..path.clone() };
        let paths = self.scenario.paths.iter();
        let paths = paths.flat_map(|path| (0..self.lanes).map(move |lane| copy(path, lane))).collect();
        let mut scenario = Scenario { paths, ..self.scenario.clone() };
        crate::scenario::renumber(&mut scenario);
        scenario
    }

    /// All samples of one path, as cells in the order in which its lanes take them: in rounds with each cell once, each
    /// in an order of its own, so that what changes with time meets all alike.
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
        self.asks.iter().flat_map(move |ask| {
            self.algorithms.iter().map(move |algorithm| Cell {
                path,
                ask: *ask,
                algorithm: algorithm.clone(),
            })
        })
    }

    /// All fields of the matrix.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        (0..self.scenario.paths.len()).flat_map(|path| self.cells_of(path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scenario;

    fn plan(samples: usize, lanes: usize) -> Plan {
        let text = "[[path]]\nuse = 'long-haul'\n[[path]]\nuse = 'lte'";
        let asks = [(1_200_000, false), (512_000, true)].map(|(bytes, is_range)| Ask { bytes, is_range });
        Plan {
            scenario: scenario::read(text, &|_| unreachable!("it names no file")).unwrap(),
            asks: asks.to_vec(),
            algorithms: ["bbr", "cubic", "reno"].map(str::to_owned).to_vec(),
            samples,
            lanes,
        }
    }

    #[test]
    fn each_round_has_each_cell_once_and_an_order_of_its_own() {
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
        assert_eq!(order, plan.order(1), "the seed says which");
        let mut counts = BTreeMap::new();
        (0..2).flat_map(|path| plan.order(path)).for_each(|cell| *counts.entry(cell).or_insert(0) += 1);
        assert!(plan.cells().all(|cell| counts.get(&cell) == Some(&20)));
    }

    #[test]
    fn lanes_are_copies_with_prefixes_of_their_own() {
        let lanes = plan(1, 3).lanes();
        let names: Vec<_> = lanes.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, ["long-haul/1", "long-haul/2", "long-haul/3", "lte/1", "lte/2", "lte/3"]);
        assert_eq!(lanes.paths[5].prefix4, std::net::Ipv4Addr::new(198, 18, 6, 0));
        assert_eq!(lanes.paths[1].down, lanes.paths[0].down);
    }

    #[test]
    fn what_cannot_be_carried_out() {
        assert!(plan(1, 32).check().is_ok());
        assert_eq!(plan(1, 33).check().unwrap_err().to_string(), "33 lanes of 2 paths: at most 64 in all");
        assert!(plan(0, 1).check().is_err());
        let mut large = plan(1, 1);
        large.asks.push(Ask { bytes: 6_000_000, is_range: true });
        assert_eq!(large.check().unwrap_err().to_string(), "6MB range: from 1B to 5000000B");
        let mut twice = plan(1, 1);
        twice.algorithms.push("bbr".to_owned());
        assert_eq!(twice.check().unwrap_err().to_string(), "bbr is named twice");
        twice.algorithms.pop();
        twice.asks.push(twice.asks[0]);
        assert_eq!(twice.check().unwrap_err().to_string(), "1200kB is asked for twice");
    }
}
