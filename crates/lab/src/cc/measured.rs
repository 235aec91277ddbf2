//! What a comparison has measured, how much of it failed, and whether it can be believed. Pure.

use std::collections::BTreeMap;

use super::{Cell, Plan, Sample};
use crate::emulation::{LATENESS_MAX, Lateness};

/// What was measured.
#[derive(Debug)]
pub struct Report {
    /// What was asked for.
    pub plan: Plan,
    /// The samples of each cell that has any.
    pub samples: BTreeMap<Cell, Vec<Sample>>,
    /// Of each cell of which samples failed, why each did.
    pub failures: BTreeMap<Cell, Vec<String>>,
    /// The number of the signal that ended it before its time.
    pub interrupted: Option<i32>,
    /// How late the emulation was over all, and what it lost.
    pub lateness: Lateness,
    /// How late it was on each path, in the order of the plan's.
    pub paths: Vec<Lateness>,
}

impl Report {
    /// Of a plan of which nothing is measured yet.
    pub fn new(plan: Plan) -> Self {
        let paths = vec![Lateness::default(); plan.scenario.paths.len()];
        Self {
            plan,
            samples: BTreeMap::new(),
            failures: BTreeMap::new(),
            interrupted: None,
            lateness: Lateness::default(),
            paths,
        }
    }

    /// How many samples were asked for.
    pub fn asked(&self) -> usize {
        self.plan.cells().count() * self.plan.samples
    }

    /// How many were taken.
    pub fn taken(&self) -> usize {
        self.samples.values().map(Vec::len).sum()
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.failures.values().map(Vec::len).sum()
    }

    /// Names of the paths on which the emulation was late, and how late.
    pub fn late_paths(&self) -> impl Iterator<Item = (&str, Lateness)> {
        let names = self.plan.scenario.paths.iter().map(|path| path.name.as_str());
        names.zip(self.paths.iter().copied()).filter(|(_, lateness)| lateness.is_late())
    }

    /// Names of the paths on which the emulator itself lost packets, more than it may, and how many.
    pub fn missing_paths(&self) -> impl Iterator<Item = (&str, Lateness)> {
        let names = self.plan.scenario.paths.iter().map(|path| path.name.as_str());
        names.zip(self.paths.iter().copied()).filter(|(_, lateness)| lateness.is_missing())
    }

    /// Whether the emulation was on time, over all and on each path, and lost next to nothing by itself, so that the figures can be
    /// believed.
    pub fn is_on_time(&self) -> bool {
        let is_late = self.lateness.p999 > LATENESS_MAX || self.late_paths().next().is_some();
        // What is missing of all is missing on one of them.
        !is_late && self.missing_paths().next().is_none()
    }

    /// The program's exit status: of a signal as the shell has it, 1 if samples failed or the emulation was late.
    pub fn exit_status(&self) -> u8 {
        match self.interrupted {
            Some(signal) => u8::try_from(128 + signal).unwrap_or(1),
            None => u8::from(self.failed() > 0 || !self.is_on_time()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reproduce::varnish;

    #[test]
    fn a_path_is_late_by_itself() {
        let late = |p999_us, packets| Lateness { p999: Duration::from_micros(p999_us), packets, missed: 0 };
        let mut report = Report::new(varnish::plan(true));
        assert_eq!((report.is_on_time(), report.exit_status()), (true, 0));
        report.lateness = late(800, 100_000);
        report.paths = vec![late(300, 95_000), late(5000, 5000)];
        assert_eq!(report.late_paths().collect::<Vec<_>>(), [("long-haul 1%", late(5000, 5000))]);
        assert_eq!((report.is_on_time(), report.exit_status()), (false, 1));
        report.paths[1] = late(5000, 999);
        assert_eq!((report.is_on_time(), report.exit_status()), (true, 0));
        report.paths[1].missed = 1;
        assert_eq!((report.is_on_time(), report.exit_status()), (false, 1));
        assert!(report.late_paths().next().is_none());
    }

    #[test]
    fn the_status_says_what_became_of_it() {
        let mut report = Report::new(varnish::plan(true));
        let cell = report.plan.cells().next().unwrap();
        report.failures.insert(cell, vec!["x".to_owned(); 3]);
        assert_eq!((report.asked(), report.taken(), report.failed(), report.exit_status()), (24, 0, 3, 1));
        report.interrupted = Some(2);
        assert_eq!(report.exit_status(), 130);
    }
}
