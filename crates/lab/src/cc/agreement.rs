//! Agreement of the edge's goodput with the client's, which both measure on the same machine's
//! clock.
//!
//! The client times a response from the request to its last byte, the edge from its first byte to
//! the acknowledgement of its last one. Both times contain one round trip, so they are the same but
//! for the edge's service time and a delayed acknowledgement.

use std::time::Duration;

use super::{Cell, Report, Sample};

/// Maximum difference of the two times, as a share of the client's.
pub const SHARE_MAX: f64 = 0.05;

/// The edge's measurements in one cell beside the client's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Number of samples that the edge measured.
    pub measured: usize,
    /// Number of samples whose times differ by at most [`SHARE_MAX`] or one round trip.
    pub agreeing: usize,
    /// Mean of ln(the edge's goodput / the client's).
    pub bias_ln: f64,
}

/// Compares the edge's goodput with the client's in a cell; `None` if the edge measured no sample.
pub fn agreement(report: &Report, cell: &Cell) -> Option<Agreement> {
    let round_trip = report.plan.scenario.paths.get(cell.path)?.round_trip_min();
    let samples = report.samples_of(cell).iter();
    let offs: Vec<_> = samples.filter_map(|sample| off(sample, cell.request.bytes)).collect();
    if offs.is_empty() {
        return None;
    }
    Some(Agreement {
        measured: offs.len(),
        agreeing: offs.iter().filter(|off| off.is_within(round_trip)).count(),
        bias_ln: offs.iter().map(|off| off.ln).sum::<f64>() / offs.len() as f64,
    })
}

/// Returns the largest difference of bias between two algorithms on the same path and size: the
/// effect on log goodput that a comparison of the two would report although there is none. `None`
/// without two measured algorithms.
pub fn arm_bias_ln(report: &Report) -> Option<f64> {
    let bias = |cell: &Cell| agreement(report, cell).map(|agreement| agreement.bias_ln);
    let differences = report.plan.cells().flat_map(|cell| {
        let others = report.plan.algorithms.iter().filter(|other| **other != cell.algorithm);
        let others: Vec<_> = others.map(|it| Cell { algorithm: it.clone(), ..cell.clone() }).collect();
        others.into_iter().filter_map(move |other| Some((bias(&cell)? - bias(&other)?).abs()))
    });
    differences.reduce(f64::max)
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
    }

    #[test]
    fn arm_bias_is_the_largest_difference_between_algorithms() {
        let mut report = Report::new(outcomes::plan(true));
        assert_eq!(arm_bias_ln(&report), None);
        let cells: Vec<_> = report.plan.cells().filter(|cell| cell.path == 0).collect();
        for cell in cells.iter().filter(|cell| cell.request == cells[0].request) {
            let edge_ms = if cell.algorithm == "bbr" { 1000 } else { 2000 };
            report.samples.insert(cell.clone(), vec![sample(1000, edge_ms, 1_000_000)]);
        }
        assert!((arm_bias_ln(&report).unwrap() - 2_f64.ln()).abs() < 1e-4);
    }
}
