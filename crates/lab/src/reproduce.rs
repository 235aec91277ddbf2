//! The field's published results, measured again: what was published, what is measured here by the same method, and the ratio.
//!
//! **Invariant:** a publication's method is followed as far as it says; what it leaves open, and what was chosen, is told beside
//! the figures.

use std::fmt::Write as _;

use crate::cc::statistics::mean;
use crate::cc::{Ask, Cell, Plan, Report};
use crate::scenario::{Loss, Path, Scenario, read};

/// A published system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its short name.
    pub name: &'static str,
    /// Who published what.
    pub title: &'static str,
    /// What is missing here to measure it; `None` where nothing is.
    pub missing: Option<&'static str>,
}

/// All of them.
pub const ALL: [Published; 5] = [
    Published {
        name: "varnish",
        title: "Varnish Software, 2019: BBR chosen in VCL for video chunks",
        missing: None,
    },
    Published {
        name: "lumen",
        title: "Lumen, 2021: low-latency DASH through a content network",
        missing: Some("the scenario of 50,000 live viewers, and the histogram of the cache lock's wait"),
    },
    Published {
        name: "unified",
        title: "Unified Streaming, 2020: an origin on cloud storage",
        missing: Some("an origin on object storage"),
    },
    Published {
        name: "spotify",
        title: "Spotify, 2018: smoother streaming with BBR",
        missing: Some("the experiment engine, and playback of many viewers over paths"),
    },
    Published {
        name: "edgio",
        title: "Edgio, 2021: congestion control tuned by client network",
        missing: Some("telemetry of all sockets, and the controller"),
    },
];

/// A headline figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// What it is of.
    pub what: String,
    /// What was published: a range, or twice the same.
    pub published: (f64, f64),
    /// What was measured.
    pub here: f64,
}

/// What Varnish's publication says of requests' latency: two to three times lower with BBR than with the others.
const VARNISH_TIMES: (f64, f64) = (2.0, 3.0);
/// Losses that are measured, as the publication gives none.
const VARNISH_LOSSES: [f64; 4] = [0.0, 0.001, 0.005, 0.01];
/// What it leaves open, and what was chosen.
pub const VARNISH_OPEN: &str = "\
Left open by the publication: the loss, the rate of the bottleneck and its buffer. Chosen: losses of 0, 0.1, 0.5 and 1 %, 40 Mbit/s, 2 MB \
with drop-tail. Published are 200 ms of added latency on Wi-Fi, chunks of 1.2 and 5 MB, 100 samples each, fair queueing; here 200 ms are \
the whole round trip, and BBR paces by itself, as Linux does since 4.13.";

/// The plan of Varnish's publication; `is_quick` for a first look: the outer losses, the smaller chunk, few samples.
pub fn varnish(is_quick: bool) -> Plan {
    let text = "[[path]]\nuse = \"long-haul\"\n";
    let scenario =
        read(text, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("the library's paths are tested");
    let losses = if is_quick { vec![VARNISH_LOSSES[0], VARNISH_LOSSES[3]] } else { VARNISH_LOSSES.to_vec() };
    let sizes: &[u64] = if is_quick { &[1_200_000] } else { &[1_200_000, 5_000_000] };
    Plan {
        scenario: at_losses(&scenario, &losses),
        asks: sizes.iter().map(|bytes| Ask { bytes: *bytes, is_range: false }).collect(),
        algorithms: ["bbr", "cubic", "reno"].map(str::to_owned).to_vec(),
        samples: if is_quick { 4 } else { 100 },
        lanes: 4,
    }
}

/// Each path once with each of these losses towards the clients, in place of its own.
pub fn at_losses(scenario: &Scenario, losses: &[f64]) -> Scenario {
    let with = |path: &Path, loss: f64| {
        let mut path = path.clone();
        path.name = format!("{} {}%", path.name, loss * 100.0);
        path.down.loss = Loss::random(loss);
        path
    };
    let paths = scenario.paths.iter().flat_map(|path| losses.iter().map(move |loss| with(path, *loss)));
    Scenario { paths: paths.collect(), ..scenario.clone() }
}

/// How many times longer requests took with the others than with BBR, of each path and size.
pub fn varnish_headlines(report: &Report) -> Vec<Headline> {
    let mean_s = |path: usize, ask: Ask, algorithm: &str| {
        let samples = report.samples.get(&Cell { path, ask, algorithm: algorithm.to_owned() })?;
        let seconds: Vec<f64> = samples.iter().map(|sample| sample.total.as_secs_f64()).collect();
        Some(mean(&seconds).mean)
    };
    let mut headlines = Vec::new();
    for (index, path) in report.plan.scenario.paths.iter().enumerate() {
        for ask in &report.plan.asks {
            let Some(bbr_s) = mean_s(index, *ask, "bbr") else { continue };
            for other in report.plan.algorithms.iter().filter(|algorithm| *algorithm != "bbr") {
                if let Some(other_s) = mean_s(index, *ask, other) {
                    headlines.push(Headline {
                        what: format!("{other} / bbr, {}, {}", ask.name(), path.name),
                        published: VARNISH_TIMES,
                        here: other_s / bbr_s,
                    });
                }
            }
        }
    }
    headlines
}

/// The columns of headlines.
pub const COLUMNS: [&str; 4] = ["", "published", "here", "here / published"];

/// A headline in words, of these columns. The ratio is to the nearer end of what was published; within it is 1.
pub fn words(headline: &Headline) -> [String; 4] {
    let (least, most) = headline.published;
    let published = if least == most { format!("{least:.2}") } else { format!("{least:.2} to {most:.2}") };
    let ratio = headline.here / headline.here.clamp(least, most);
    [headline.what.clone(), published, format!("{:.2}", headline.here), format!("{ratio:.2}")]
}

/// Headlines for a terminal.
pub fn table(headlines: &[Headline]) -> String {
    let mut text = String::new();
    for cells in std::iter::once(COLUMNS.map(str::to_owned)).chain(headlines.iter().map(words)) {
        let _ = writeln!(text, "{:<38}{:>14}{:>8}{:>18}", cells[0], cells[1], cells[2], cells[3]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::cc::Sample;

    #[test]
    fn the_plan_is_the_publications() {
        let plan = varnish(false);
        plan.check().unwrap();
        assert_eq!((plan.samples, plan.cells().count()), (100, 4 * 2 * 3));
        assert!(plan.scenario.paths.iter().all(|path| path.round_trip_min() == Duration::from_millis(200)));
        assert!(varnish(true).check().is_ok());
    }

    #[test]
    fn a_headline_is_the_others_time_by_bbrs() {
        let plan = varnish(true);
        let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
        for cell in plan.cells() {
            let seconds = match (cell.algorithm.as_str(), cell.path) {
                ("bbr", _) => 2.0,
                ("reno", 1) => 12.0,
                _ => 5.0,
            };
            let sample = Sample {
                total: Duration::from_secs_f64(seconds),
                connect: Duration::ZERO,
                ttfb: Duration::ZERO,
                retransmits: 0,
                progress: Vec::new(),
            };
            samples.insert(cell, vec![sample]);
        }
        let headlines = varnish_headlines(&Report { samples, ..Report::new(plan) });
        let here: Vec<_> = headlines.iter().map(|headline| headline.here).collect();
        assert_eq!(here, [2.5, 2.5, 2.5, 6.0]);
        assert_eq!(words(&headlines[3])[1..], ["2.00 to 3.00", "6.00", "2.00"]);
        assert_eq!(words(&headlines[0])[3], "1.00");
    }
}
