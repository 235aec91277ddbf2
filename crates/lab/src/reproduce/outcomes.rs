//! Facebook's publication (2019): what clients received, measured at the server by acknowledgement
//! timestamps. Reproduced as a comparison of the edge's goodput with the client's own clock.

use std::time::Duration;

use crate::cc::agreement::{ArmBias, SHARE_MAX, agreement, arm_biases};
use crate::cc::{Plan, Report, Request};
use thalweg_netem::scenario::read;

use super::{Headline, PublishedValue, left_out};

/// Publisher, year and subject.
pub const TITLE: &str = "Facebook, 2019: what clients received, measured at the server";
/// Parameters that the publication leaves open, and our choices.
pub const OPEN: &str = "\
The publication measures goodput at the server, from the first byte sent to the acknowledgement of the last one, but does not compare it with \
the clients' clocks. Here both are on one machine. Chosen: the edge with its default settings; six paths without their jitter, which would only add \
noise to the comparison of two clocks; sizes from 10 kB to 5 MB; three algorithms. \
A sample agrees if the two times differ by at most 5 % or one round trip. The bias between two algorithms is the difference of their mean \
ln(edge's goodput / client's) on the same path and size, averaged over the paths: the effect that a comparison by the edge's figures would report \
although clients saw none. Three pairs of algorithms are compared at each size, and the largest bias must be below the limit. Its interval shows \
how precise it is, not how likely the largest of all is by chance.";
/// Paths to measure, from the shortest round trip to the longest.
const PATHS: [&str; 6] = ["fibre", "cable", "dsl", "lte", "wifi", "long-haul"];
/// Sizes of responses, in bytes.
const SIZES: [u64; 6] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 5_000_000];
/// Minimum share of samples that agree.
const AGREEING_MIN: f64 = 0.99;
/// Maximum bias between two algorithms, in log goodput.
const BIAS_MAX: f64 = 0.02;

/// Returns the plan. If `is_quick` is set, it has only two paths, three sizes and few samples.
pub fn plan(is_quick: bool) -> Plan {
    let names: &[&str] = if is_quick { &["cable", "dsl"] } else { &PATHS };
    let sizes: &[u64] = if is_quick { &[10_000, 100_000, 1_000_000] } else { &SIZES };
    let text: String = names.iter().map(|name| format!("[[path]]\nuse = \"{name}\"\n")).collect();
    let mut scenario =
        read(&text, &|_| Err(std::io::ErrorKind::NotFound.into())).expect("named paths are valid scenarios");
    for path in &mut scenario.paths {
        (path.down.jitter, path.up.jitter) = (Duration::ZERO, Duration::ZERO);
    }
    Plan {
        scenario,
        requests: sizes.iter().map(|bytes| Request { bytes: *bytes, is_range: false }).collect(),
        algorithms: ["bbr", "cubic", "reno"].map(str::to_owned).to_vec(),
        samples: if is_quick { 6 } else { 40 },
        lanes: if is_quick { 4 } else { 2 },
    }
}

/// Returns the share of samples that agree, and the largest bias between two algorithms.
pub fn headlines(report: &Report) -> [Headline; 2] {
    let (mut measured, mut agreeing) = (0, 0);
    for found in report.plan.cells().filter_map(|cell| agreement(report, &cell)) {
        measured += found.measured;
        agreeing += found.agreeing;
    }
    let unmeasured = report.taken() - measured;
    [
        Headline {
            what: format!("share of samples that agree within {} % or one round trip", SHARE_MAX * 100.0),
            published: PublishedValue::Over(AGREEING_MIN),
            here: (measured > 0).then(|| agreeing as f64 / measured as f64),
            interval: None,
            caveat: left_out(unmeasured as u64, report.taken() as u64, "not measured by the edge"),
        },
        bias_headline(largest_bias(report)),
    ]
}

/// Returns the largest bias between two algorithms, over all sizes and pairs.
fn largest_bias(report: &Report) -> Option<ArmBias> {
    arm_biases(report).into_iter().max_by(|a, b| a.ln.mean.abs().total_cmp(&b.ln.mean.abs()))
}

fn bias_headline(bias: Option<ArmBias>) -> Headline {
    let at = bias.as_ref().map_or_else(String::new, |ArmBias { request, algorithms: [a, b], .. }| {
        format!(" (here {a} and {b} at {} bytes)", request.bytes)
    });
    let here = bias.as_ref().map(|bias| bias.ln.mean.abs());
    let margin = bias.and_then(|bias| bias.ln.margin);
    Headline {
        what: format!("largest bias between two algorithms at one size, ln goodput{at}"),
        published: PublishedValue::Under(BIAS_MAX),
        here,
        interval: here.zip(margin).map(|(here, margin)| (here - margin, here + margin)),
        caveat: None,
    }
}

/// Returns the program's exit status: that of the comparison, or 1 if the edge left a sample
/// unmeasured or a limit is exceeded.
pub fn exit_status(report: &Report) -> u8 {
    let [agreeing, bias] = headlines(report);
    let holds = agreeing.caveat.is_none()
        && agreeing.here.is_some_and(|share| share >= AGREEING_MIN)
        && bias.here.is_some_and(|bias| bias < BIAS_MAX);
    report.exit_status().max(u8::from(!holds))
}
