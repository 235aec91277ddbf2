//! Report of the Unified Streaming reproduction: gains and response times under all conditions,
//! charts over the time of a run, and the comparison with nginx.

mod charts;

use std::fmt::Write as _;

use serde::Serialize;
use thalweg_netem::emulation::{LATENESS_MAX, MISSED_MAX};

use super::{DocumentEarly, DocumentHeadline, document_headlines, published};
use crate::reproduce::unified::limit::Round;
use crate::reproduce::unified::outcome::{Check, Gain, mean_times};
use crate::reproduce::unified::{Arm, Conditions, Figures, OPEN, Outcome, Run, TITLE, Times};
use crate::reproduce::{EarlyEnd, columns, number};

/// Version of the JSON format.
const VERSION: u32 = 1;
const MIB: f64 = 1024.0 * 1024.0;

const RUNS: [&str; 15] = [
    "conditions, connections",
    "rounds",
    "Mbit/s",
    "gain %",
    "manifest p50 ms",
    "p95 ms",
    "p99 ms",
    "segment p50 ms",
    "p95 ms",
    "p99 ms",
    "opened",
    "open at most",
    "CPU s/GB",
    "MiB",
    "errors",
];
const RUNS_TITLE: &str = "Viewers, with a connection per storage request (fresh) and with pooled connections";
const OF_RUNS: &str = "\
Means over rounds. Response times are from the request to the last byte. Opened: TCP connections that the origin opened to the \
storage, and the most that were open at once. CPU: the origin's processor time per gigabyte of content. MiB: the origin's memory at most.";
const LIMIT: [&str; 4] = ["round", "origin Mbit/s", "nginx Mbit/s", "origin / nginx"];
const LIMIT_TITLE: &str = "The same byte ranges from the origin and through nginx";
const CHECKS: [&str; 3] = ["check", "holds", "evidence"];

fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let each = outcome.plan.conditions().flat_map(|conditions| Arm::ALL.map(|arm| (conditions, arm)));
    each.filter_map(|(conditions, arm)| row(outcome, conditions, arm)).collect()
}

fn row(outcome: &Outcome, conditions: Conditions, arm: Arm) -> Option<Vec<String>> {
    let rounds = outcome.rounds(conditions, arm);
    let mean = |of: &dyn Fn(&Figures) -> f64| {
        outcome.mean(conditions, arm, |figures| Some(of(figures))).map_or_else(dash, number)
    };
    let times = |of: fn(&Figures) -> Option<Times>| match mean_times(rounds.iter().filter_map(|one| of(one)))
    {
        Some(Times { p50_ms, p95_ms, p99_ms, .. }) => [p50_ms, p95_ms, p99_ms].map(number),
        None => [dash(), dash(), dash()],
    };
    let gain = outcome.gain(conditions).filter(|_| arm == Arm::Pooled);
    let mut row = vec![
        format!("{}, {}", conditions.words(), arm.name()),
        rounds.len().to_string(),
        mean(&Figures::mbit_per_s),
        gain.map_or_else(dash, |gain| format!("{:+.1}", gain.throughput_percent)),
    ];
    row.extend(times(|figures| figures.manifests));
    row.extend(times(|figures| figures.segments));
    row.extend([
        mean(&|figures| figures.opened as f64),
        mean(&|figures| figures.peak(|second| second.established) as f64),
        mean(&Figures::cpu_s_per_gb),
        mean(&|figures| figures.peak(|second| second.memory_bytes) as f64 / MIB),
        rounds.iter().map(|figures| figures.errors).sum::<u64>().to_string(),
    ]);
    (!rounds.is_empty()).then_some(row)
}

fn dash() -> String {
    "-".to_owned()
}

fn limit_rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |(index, round): (usize, &Round)| {
        let [ours, nginxs] =
            [round.origin_bytes_per_s, round.nginx_bytes_per_s].map(|bytes| number(bytes * 8e-6));
        vec![(index + 1).to_string(), ours, nginxs, number(round.ratio())]
    };
    outcome.limit.iter().enumerate().map(row).collect()
}

fn check_rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let row =
        |Check { what, holds, evidence }| vec![what, if holds { "yes" } else { "NO" }.to_owned(), evidence];
    outcome.checks().into_iter().map(row).collect()
}

/// Describes a late emulation, if it was late.
fn lateness(outcome: &Outcome) -> Option<String> {
    let lateness = outcome.lateness;
    (lateness.is_late() || lateness.is_missing()).then(|| {
        format!(
            "The emulation was late: 99.9 % of packets by up to {:.1} ms (limit {} ms), and it missed {:.4} % of them (limit {} %). \
             The delays apply to both arms and to nginx, but the machine was too busy for exact response times.",
            lateness.p999.as_secs_f64() * 1e3,
            LATENESS_MAX.as_millis(),
            lateness.missed_share() * 100.0,
            MISSED_MAX * 100.0
        )
    })
}

/// Returns what a reader must know before the figures.
fn warnings(outcome: &Outcome) -> impl Iterator<Item = String> {
    [outcome.early.as_ref().map(EarlyEnd::words), lateness(outcome)].into_iter().flatten()
}

/// Renders the tables for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let mut notes = String::new();
    for note in warnings(outcome) {
        let _ = writeln!(notes, "{note}");
    }
    format!(
        "{RUNS_TITLE}\n{}\n{LIMIT_TITLE}\n{}\n{}\n{notes}",
        columns(&RUNS, &rows(outcome)),
        columns(&LIMIT, &limit_rows(outcome)),
        columns(&CHECKS, &check_rows(outcome))
    )
}

/// Renders the HTML page.
pub fn page(outcome: &Outcome) -> String {
    let mut page = published(TITLE, OPEN, &outcome.headlines());
    for note in warnings(outcome) {
        page.paragraph("warning", &note);
    }
    page.heading("Checks");
    page.table(&CHECKS, &check_rows(outcome));
    page.heading(RUNS_TITLE);
    page.paragraph("note", OF_RUNS);
    page.table(&RUNS, &rows(outcome));
    charts::gains(&mut page, outcome);
    page.heading(LIMIT_TITLE);
    page.table(&LIMIT, &limit_rows(outcome));
    charts::over_time(&mut page, outcome);
    page.finish()
}

/// Renders every second of every run as CSV.
pub fn csv(outcome: &Outcome) -> String {
    let mut text =
        "store,format,step,every_s,users_max,round,connections,at_s,users,mbit_per_s,segment_p95_ms,\
                    established,waiting,cores,memory_bytes\n"
            .to_owned();
    for (Run { conditions, round, arm }, figures) in &outcome.runs {
        let Conditions { store, format, ramp } = conditions;
        for second in &figures.seconds {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{:.1},{},{:.3},{},{},{},{:.2},{}",
                store.name(),
                format.name(),
                ramp.step,
                ramp.every_s,
                ramp.users,
                round + 1,
                arm.name(),
                second.at_s,
                second.users,
                second.mbit_per_s,
                second.segment_p95_ms.map_or_else(String::new, |ms| format!("{ms:.1}")),
                second.established,
                second.waiting,
                second.cores,
                second.memory_bytes
            );
        }
    }
    text
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    early: DocumentEarly<'a>,
    headlines: Vec<DocumentHeadline>,
    checks: Vec<Check>,
    is_on_time: bool,
    lateness_us: u64,
    packets_missed: u64,
    gains: Vec<DocumentGain>,
    runs: Vec<DocumentRun>,
    limit: &'a [Round],
}

#[derive(Serialize)]
struct DocumentGain {
    #[serde(flatten)]
    conditions: Conditions,
    #[serde(flatten)]
    gain: Gain,
}

#[derive(Serialize)]
struct DocumentRun {
    #[serde(flatten)]
    conditions: Conditions,
    connections: Arm,
    round: usize,
    requests: u64,
    errors: u64,
    mbit_per_s: f64,
    manifests: Option<Times>,
    segments: Option<Times>,
    stall_ratio: f64,
    connections_opened: u64,
    connections_open_max: u64,
    cpu_s: f64,
    memory_bytes_max: u64,
}

/// Renders the tables as JSON.
pub fn json(outcome: &Outcome) -> String {
    let run = |(run, figures): (&Run, &Figures)| DocumentRun {
        conditions: run.conditions,
        connections: run.arm,
        round: run.round + 1,
        requests: figures.requests,
        errors: figures.errors,
        mbit_per_s: figures.mbit_per_s(),
        manifests: figures.manifests,
        segments: figures.segments,
        stall_ratio: figures.stall_ratio,
        connections_opened: figures.opened,
        connections_open_max: figures.peak(|second| second.established),
        cpu_s: figures.cpu_s,
        memory_bytes_max: figures.peak(|second| second.memory_bytes),
    };
    let gain = |conditions| Some(DocumentGain { conditions, gain: outcome.gain(conditions)? });
    let lateness = outcome.lateness;
    let document = Document {
        version: VERSION,
        early: outcome.early.as_ref().into(),
        headlines: document_headlines(&outcome.headlines()),
        checks: outcome.checks(),
        is_on_time: !lateness.is_late() && !lateness.is_missing(),
        lateness_us: u64::try_from(lateness.p999.as_micros()).unwrap_or(u64::MAX),
        packets_missed: lateness.missed,
        gains: outcome.plan.conditions().filter_map(gain).collect(),
        runs: outcome.runs.iter().map(run).collect(),
        limit: &outcome.limit,
    };
    serde_json::to_string_pretty(&document).expect("serializing numbers and strings cannot fail") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::unified::outcome::tests::complete;
    use crate::reproduce::unified::viewing::Second;

    #[test]
    fn report_has_published_values_beside_those_measured_here() {
        let mut outcome = complete();
        for figures in outcome.runs.values_mut() {
            figures.seconds = [1.0, 2.0].map(|at_s| Second { at_s, users: 5, ..Second::default() }).to_vec();
        }
        let text = table(&outcome);
        let row = "versitygw, dash, 2 users every 1 s, up to 14, pooled       1    96.0   +20.0";
        assert!(text.contains(row), "{text}");
        let html = page(&outcome);
        assert_eq!(html.matches("published: 24 %").count(), 1, "the chart of gains in throughput");
        assert_eq!(html.matches("published: 27 %").count(), 1);
        assert!(!html.contains("Incomplete") && !html.contains("cannot draw"));
        assert_eq!(csv(&outcome).lines().count(), 1 + 4 * 2);
        let document: serde_json::Value = serde_json::from_str(&json(&outcome)).unwrap();
        assert_eq!(document["headlines"][1]["published"], "27.0");
        assert_eq!(document["gains"][0]["store"], "versitygw");
        assert_eq!(document["runs"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn partial_results_are_reported_with_the_failure() {
        let mut outcome = complete();
        outcome.runs.retain(|run, _| run.arm == Arm::Fresh);
        outcome.early = Some(EarlyEnd::Failed("nginx: status 502".to_owned()));
        let document: serde_json::Value = serde_json::from_str(&json(&outcome)).unwrap();
        assert_eq!((&document["failed"], outcome.exit_status()), (&"nginx: status 502".into(), 1));
        assert!(document["headlines"][0]["here"].is_null());
        assert!(page(&outcome).contains("nginx: status 502") && table(&outcome).contains("fresh"));
    }
}
