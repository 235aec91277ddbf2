//! Varnish Software's publication (2019): VCL that chooses the congestion control of client
//! connections for video chunks.

use thalweg_netem::scenario::{Loss, Path, Scenario, read};

use crate::cc::statistics::ratio;
use crate::cc::{Cell, Plan, Report, Request};

use super::{Headline, PublishedRatio, PublishedValue, left_out};

/// Publisher, year and subject.
pub const TITLE: &str = "Varnish Software, 2019: BBR chosen in VCL for video chunks";
/// Parameters that the publication leaves open, and our choices.
pub const OPEN: &str = "\
Left open by the publication: the loss, and the bottleneck's rate and buffer. Chosen: losses of 0, 0.1, 0.5 and 1 %, 40 Mbit/s, \
and 2 MB with drop-tail. The publication added 200 ms of latency on Wi-Fi and used chunks of 1.2 and 5 MB, 100 samples each, and \
fair queueing; here, 200 ms is the whole round trip, and BBR paces itself, as in Linux since 4.13. The 95 % intervals of the \
ratios of means are Fieller's.";
/// Published ratio: requests take two to three times as long with the other algorithms as with BBR.
const TIMES: PublishedValue = PublishedValue::Between(2.0, 3.0);
/// The published ratio, for the charts.
pub const RATIO: PublishedRatio = PublishedRatio { to: "bbr", published: TIMES };
/// Loss rates to measure; the publication gives none.
const LOSSES: [(&str, f64); 4] = [("0%", 0.0), ("0.1%", 0.001), ("0.5%", 0.005), ("1%", 0.01)];

/// Returns the plan. If `is_quick` is set, it has only the lowest and highest loss, the smaller
/// chunk and few samples.
pub fn plan(is_quick: bool) -> Plan {
    let text = "[[path]]\nuse = \"long-haul\"\n";
    let scenario =
        read(text, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("named paths are valid scenarios");
    let losses = if is_quick { vec![LOSSES[0], LOSSES[3]] } else { LOSSES.to_vec() };
    let sizes: &[u64] = if is_quick { &[1_200_000] } else { &[1_200_000, 5_000_000] };
    Plan {
        scenario: at_losses(&scenario, &losses),
        requests: sizes.iter().map(|bytes| Request { bytes: *bytes, is_range: false }).collect(),
        algorithms: ["bbr", "cubic", "reno"].map(str::to_owned).to_vec(),
        samples: if is_quick { 4 } else { 100 },
        lanes: 4,
    }
}

/// Copies each path once per loss rate. Each copy loses packets towards the clients at that rate
/// instead of the path's own, and the rate's string is appended to its name.
pub fn at_losses(scenario: &Scenario, losses: &[(&str, f64)]) -> Scenario {
    let with = |path: &Path, (text, loss): (&str, f64)| {
        let mut path = path.clone();
        path.name = format!("{} {text}", path.name);
        path.down.loss = Loss::random(loss);
        path
    };
    let paths = scenario.paths.iter().flat_map(|path| losses.iter().map(move |loss| with(path, *loss)));
    Scenario { paths: paths.collect(), ..scenario.clone() }
}

/// Returns the ratio of request times with the other algorithms to those with BBR, per path and
/// size.
pub fn headlines(report: &Report) -> Vec<Headline> {
    let taken = |path: usize, request: Request, algorithm: &str| -> (Vec<f64>, usize) {
        let cell = Cell { path, request, algorithm: algorithm.to_owned() };
        (report.seconds_of(&cell), report.failures_of(&cell).len())
    };
    let mut headlines = Vec::new();
    for (index, path) in report.plan.scenario.paths.iter().enumerate() {
        for request in &report.plan.requests {
            let (bbr, bbr_failed) = taken(index, *request, "bbr");
            for other in report.plan.algorithms.iter().filter(|algorithm| *algorithm != "bbr") {
                let (times, failed) = taken(index, *request, other);
                let ratio = (!times.is_empty() && !bbr.is_empty()).then(|| ratio(&times, &bbr));
                let caveat = [(other.as_str(), failed, &times), ("bbr", bbr_failed, &bbr)]
                    .into_iter()
                    .filter_map(|(name, failed, taken)| {
                        left_out(failed as u64, (failed + taken.len()) as u64, &format!("{name} failed"))
                    });
                let caveat: Vec<_> = caveat.collect();
                headlines.push(Headline {
                    what: format!("{other} / bbr, {}, {}", request.name(), path.name),
                    published: TIMES,
                    here: ratio.as_ref().map(|ratio| ratio.ratio),
                    interval: ratio.and_then(|ratio| ratio.interval),
                    caveat: (!caveat.is_empty()).then(|| caveat.join(", ")),
                });
            }
        }
    }
    headlines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::cc::Sample;

    #[test]
    fn full_plan_matches_the_publication() {
        let whole = plan(false);
        whole.check().unwrap();
        assert_eq!((whole.samples, whole.cells().count()), (100, 4 * 2 * 3));
        assert!(whole.scenario.paths.iter().all(|path| path.round_trip_min() == Duration::from_millis(200)));
        assert!(plan(true).check().is_ok());
    }

    #[test]
    fn headline_is_time_relative_to_bbr() {
        let plan = plan(true);
        let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
        for cell in plan.cells() {
            let seconds = match (cell.algorithm.as_str(), cell.path) {
                ("bbr", _) => 2.0,
                ("reno", 1) => 12.0,
                _ => 5.0,
            };
            let sample = |seconds| Sample {
                total: Duration::from_secs_f64(seconds),
                connect: Duration::ZERO,
                ttfb: Duration::ZERO,
                retransmits: 0,
                edge_bytes_per_s: None,
                progress: Vec::new(),
            };
            samples.insert(cell, vec![sample(seconds - 0.1), sample(seconds + 0.1)]);
        }
        let mut report = Report { samples, ..Report::new(plan) };
        let whole = headlines(&report);
        let here: Vec<_> = whole.iter().filter_map(|headline| Some(headline.here?.round())).collect();
        assert_eq!(here, [3.0, 3.0, 3.0, 6.0]);
        assert!((whole[3].ratio().unwrap() - 2.0).abs() < 1e-9 && whole[0].ratio() == Some(1.0));
        assert!(whole.iter().all(|headline| {
            let ((least, most), here) = (headline.interval.unwrap(), headline.here.unwrap());
            least < here && here < most && headline.caveat.is_none()
        }));
        let [clean_bbr, lossy_reno] = [("bbr", 0), ("reno", 1)].map(|(algorithm, path)| {
            let is_it = |cell: &Cell| cell.algorithm == algorithm && cell.path == path;
            report.plan.cells().find(is_it).unwrap()
        });
        report.failures.insert(clean_bbr, vec!["late".to_owned()]);
        report.samples.remove(&lossy_reno);
        report.failures.insert(lossy_reno, vec!["late".to_owned(); 2]);
        let broken = headlines(&report);
        assert_eq!(broken.len(), 4, "every headline must remain");
        assert_eq!((broken[0].here, broken[0].caveat.as_deref()), (whole[0].here, Some("1 of 3 bbr failed")));
        assert_eq!((broken[3].here, broken[3].caveat.as_deref()), (None, Some("2 of 2 reno failed")));
    }
}
