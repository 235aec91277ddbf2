//! Agreement of the edge's goodput with the client's, which both measure on the same machine's
//! clock.
//!
//! The client times a response from the request to its last byte, the edge from its first byte to
//! the acknowledgement of its last one. Both times contain one round trip, so they are the same but
//! for the edge's service time and a delayed acknowledgement.

use std::time::Duration;

use super::statistics::{Mean, mean_difference, quantile_of_sorted, supported_quantile};
use super::{Cell, Report, Request, Sample};

/// Maximum difference of the two times, as a share of the client's.
pub const SHARE_MAX: f64 = 0.05;

/// The edge's measurements beside the client's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Number of samples that the edge measured.
    pub measured: usize,
    /// Number of samples whose times differ by at most [`SHARE_MAX`] or one round trip.
    pub agreeing: usize,
    /// Median of the absolute difference of the two times, in milliseconds.
    pub off_p50_ms: f64,
    /// 95th percentile of the absolute difference, if there are enough samples for a
    /// distribution-free interval.
    pub off_p95_ms: Option<f64>,
    /// Mean of ln(the edge's goodput / the client's).
    pub bias_ln: f64,
}

/// Compares the edge's goodput with the client's in a cell; `None` if the edge measured no sample.
pub fn agreement(report: &Report, cell: &Cell) -> Option<Agreement> {
    of(report, cell.path, std::iter::once(cell.clone()))
}

/// Compares the edge's goodput with the client's on a path, for all algorithms together. Together,
/// they have enough samples for more percentiles.
pub fn agreement_on(report: &Report, path: usize, request: Request) -> Option<Agreement> {
    let cell = |algorithm: &String| Cell { path, request, algorithm: algorithm.clone() };
    of(report, path, report.plan.algorithms.iter().map(cell))
}

fn of(report: &Report, path: usize, cells: impl Iterator<Item = Cell>) -> Option<Agreement> {
    let round_trip = report.plan.scenario.paths.get(path)?.round_trip_min();
    let mut offs = Vec::new();
    for cell in cells {
        let samples = report.samples_of(&cell).iter();
        offs.extend(samples.filter_map(|sample| off(sample, cell.request.bytes)));
    }
    let mut off_ms: Vec<f64> = offs.iter().map(|off| off.time.as_secs_f64() * 1e3).collect();
    off_ms.sort_unstable_by(f64::total_cmp);
    (!offs.is_empty()).then(|| Agreement {
        measured: offs.len(),
        agreeing: offs.iter().filter(|off| off.is_within(round_trip)).count(),
        off_p50_ms: quantile_of_sorted(&off_ms, 0.5),
        off_p95_ms: supported_quantile(&off_ms, 0.95),
        bias_ln: offs.iter().map(|off| off.ln).sum::<f64>() / offs.len() as f64,
    })
}

/// The difference of bias between two algorithms at one size: the effect on log goodput that a
/// comparison of the two by the edge's figures would report although there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmBias {
    /// What was requested.
    pub request: Request,
    /// The two algorithms.
    pub algorithms: [String; 2],
    /// The mean over all paths that have samples of both, in ln goodput.
    pub ln: Mean,
}

/// Returns the bias between each two algorithms at each size. A single path has too few samples for
/// a bias that is far smaller than their spread, so paths are pooled.
pub fn arm_biases(report: &Report) -> Vec<ArmBias> {
    let plan = &report.plan;
    let lns = |path: usize, request: Request, algorithm: &String| -> Vec<f64> {
        let cell = Cell { path, request, algorithm: algorithm.clone() };
        report.samples_of(&cell).iter().filter_map(|sample| Some(off(sample, request.bytes)?.ln)).collect()
    };
    let mut biases = Vec::new();
    for &request in &plan.requests {
        for (at, first) in plan.algorithms.iter().enumerate() {
            for second in &plan.algorithms[at + 1..] {
                let pairs: Vec<_> = (0..plan.scenario.paths.len())
                    .map(|path| (lns(path, request, first), lns(path, request, second)))
                    .filter(|(first, second)| !first.is_empty() && !second.is_empty())
                    .collect();
                if !pairs.is_empty() {
                    let algorithms = [first.clone(), second.clone()];
                    biases.push(ArmBias { request, algorithms, ln: mean_difference(&pairs) });
                }
            }
        }
    }
    biases
}

/// The difference of the two measurements of one sample.
struct Off {
    /// ln(the edge's goodput / the client's).
    ln: f64,
    /// The client's time.
    client: Duration,
    /// The absolute difference of the two times.
    time: Duration,
}

impl Off {
    fn is_within(&self, round_trip: Duration) -> bool {
        self.time <= round_trip.max(self.client.mul_f64(SHARE_MAX))
    }
}

fn off(sample: &Sample, bytes: u64) -> Option<Off> {
    let rate = sample.edge_bytes_per_s?;
    let client = sample.transfer();
    let edge = Duration::try_from_secs_f64(bytes as f64 / rate as f64).ok()?;
    let ln = client.as_secs_f64().ln() - edge.as_secs_f64().ln();
    Some(Off { ln, client, time: edge.abs_diff(client) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::Request;
    use crate::reproduce::outcomes;

    fn sample(client_ms: u64, edge_ms: u64, bytes: u64) -> Sample {
        Sample {
            total: Duration::from_millis(20 + client_ms),
            connect: Duration::from_millis(20),
            ttfb: Duration::ZERO,
            retransmits: 0,
            edge_bytes_per_s: Some(bytes * 1000 / edge_ms),
            progress: Vec::new(),
        }
    }

    #[test]
    fn times_agree_within_a_share_or_a_round_trip() {
        let mut report = Report::new(outcomes::plan(true));
        let round_trip_ms = report.plan.scenario.paths[0].round_trip_min().as_millis() as u64;
        let bytes = 1_000_000;
        let cell = Cell { path: 0, request: Request { bytes, is_range: false }, algorithm: "bbr".to_owned() };
        assert_eq!(agreement(&report, &cell), None);
        let long = 40 * round_trip_ms;
        let samples = [
            sample(2 * round_trip_ms, 3 * round_trip_ms - 1, bytes),
            sample(2 * round_trip_ms, 3 * round_trip_ms + 1, bytes),
            sample(long, long + long / 20 - 1, bytes),
            sample(long, long + long / 20 + 1, bytes),
        ];
        report.samples.insert(cell.clone(), samples.to_vec());
        let found = agreement(&report, &cell).unwrap();
        assert_eq!((found.measured, found.agreeing), (4, 2));
        assert!(found.bias_ln < 0.0);
        // The differences are around one round trip, and around two (5 % of 40).
        let off = found.off_p50_ms / round_trip_ms as f64;
        assert!((1.0..2.0).contains(&off) && found.off_p95_ms.is_none(), "{found:?}");
    }

    #[test]
    fn algorithms_of_a_path_are_compared_together() {
        let mut report = Report::new(outcomes::plan(true));
        let request = Request { bytes: 1_000_000, is_range: false };
        let differences_ms = [("bbr", 4), ("cubic", 8), ("reno", 12)];
        for (algorithm, off_ms) in differences_ms {
            let cell = Cell { path: 0, request, algorithm: algorithm.to_owned() };
            let samples = vec![sample(1000, 1000 + off_ms, request.bytes); 24];
            report.samples.insert(cell, samples);
        }
        let found = agreement_on(&report, 0, request).unwrap();
        assert_eq!(
            (found.measured, found.off_p50_ms.round(), found.off_p95_ms.map(f64::round)),
            (72, 8.0, Some(12.0))
        );
        let alone = agreement(&report, &report.plan.cells().find(|cell| cell.request == request).unwrap());
        assert_eq!(alone.map(|found| (found.off_p50_ms.round(), found.off_p95_ms)), Some((4.0, None)));
        assert_eq!(agreement_on(&report, 1, request), None);
    }

    /// On one path the edge's figures favour BBR by ln 2, on the other by nothing.
    #[test]
    fn bias_between_algorithms_is_pooled_over_paths() {
        let mut report = Report::new(outcomes::plan(true));
        assert_eq!(arm_biases(&report), []);
        let request = report.plan.requests[2];
        for cell in report.plan.cells().filter(|cell| cell.request == request) {
            let edge_ms = if cell.algorithm == "bbr" && cell.path == 0 { 1000 } else { 2000 };
            let samples = [0, 20, 40].map(|more| sample(1000, edge_ms + more, request.bytes));
            report.samples.insert(cell, samples.to_vec());
        }
        let biases = arm_biases(&report);
        let found: Vec<_> = biases.iter().map(|bias| bias.algorithms.join(" ")).collect();
        assert_eq!(found, ["bbr cubic", "bbr reno", "cubic reno"]);
        for (bias, expected) in biases.iter().zip([2_f64.ln() / 2.0, 2_f64.ln() / 2.0, 0.0]) {
            assert!((bias.ln.mean - expected).abs() < 0.01, "{bias:?}");
            assert!((0.005..0.03).contains(&bias.ln.margin.unwrap()), "{bias:?}");
        }
    }
}
