//! Results of a comparison: samples, failures, and whether the emulation was reliable.

use std::collections::BTreeMap;

use thalweg_netem::emulation::{LATENESS_MAX, Lateness};

use super::{Cell, Plan, Sample};

/// Results of a comparison.
#[derive(Debug)]
pub struct Report {
    /// The measured plan.
    pub plan: Plan,
    /// Samples by cell; cells without samples are missing.
    pub samples: BTreeMap<Cell, Vec<Sample>>,
    /// For each cell with failed samples, the reason for each failure.
    pub failures: BTreeMap<Cell, Vec<String>>,
    /// The signal number, if a signal ended the run early.
    pub interrupted: Option<i32>,
    /// Lateness and packet loss of the emulator itself, across all paths.
    pub lateness: Lateness,
    /// Lateness on each path, in plan order.
    pub paths: Vec<Lateness>,
}

impl Report {
    /// Creates a report without measurements.
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

    /// Returns the samples of a cell.
    pub fn samples_of(&self, cell: &Cell) -> &[Sample] {
        self.samples.get(cell).map_or(&[], Vec::as_slice)
    }

    /// Returns the total time of each of the cell's samples, in seconds.
    pub fn seconds_of(&self, cell: &Cell) -> Vec<f64> {
        self.samples_of(cell).iter().map(|sample| sample.total.as_secs_f64()).collect()
    }

    /// Returns the reasons for the cell's failures.
    pub fn failures_of(&self, cell: &Cell) -> &[String] {
        self.failures.get(cell).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of planned samples.
    pub fn planned(&self) -> usize {
        self.plan.cells().count() * self.plan.samples
    }

    /// Returns the number of successful samples.
    pub fn taken(&self) -> usize {
        self.samples.values().map(Vec::len).sum()
    }

    /// Returns the number of failed samples.
    pub fn failed(&self) -> usize {
        self.failures.values().map(Vec::len).sum()
    }

    /// Returns the paths on which the emulation was too late, with their lateness.
    pub fn late_paths(&self) -> impl Iterator<Item = (&str, Lateness)> {
        let names = self.plan.scenario.paths.iter().map(|path| path.name.as_str());
        names.zip(self.paths.iter().copied()).filter(|(_, lateness)| lateness.is_late())
    }

    /// Returns the paths on which the emulator itself lost more packets than allowed.
    pub fn missing_paths(&self) -> impl Iterator<Item = (&str, Lateness)> {
        let names = self.plan.scenario.paths.iter().map(|path| path.name.as_str());
        names.zip(self.paths.iter().copied()).filter(|(_, lateness)| lateness.is_missing())
    }

    /// Returns whether the figures can be trusted: the emulation was on time, overall and on each
    /// path, and the emulator itself lost almost no packets.
    pub fn is_on_time(&self) -> bool {
        let is_late = self.lateness.p999 > LATENESS_MAX || self.late_paths().next().is_some();
        // An overall excess of missed packets implies an excess on at least one path.
        !is_late && self.missing_paths().next().is_none()
    }

    /// Returns the program's exit status: 128 plus the signal number after a signal; 1 if samples
    /// failed or the figures cannot be trusted; otherwise 0.
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
    fn lateness_is_judged_per_path() {
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
    fn exit_status_reflects_failures_and_signals() {
        let mut report = Report::new(varnish::plan(true));
        let cell = report.plan.cells().next().unwrap();
        report.failures.insert(cell, vec!["x".to_owned(); 3]);
        assert_eq!((report.planned(), report.taken(), report.failed(), report.exit_status()), (24, 0, 3, 1));
        report.interrupted = Some(2);
        assert_eq!(report.exit_status(), 130);
    }
}
