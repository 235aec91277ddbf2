//! Report of the Edgio reproduction: each network's history, charts over rounds, and the checks.

mod json;

use std::fmt::Write as _;

use thalweg_netem::emulation::{LATENESS_MAX, MISSED_MAX};
use thalweg_netem::scenario::Path;

use super::chart::{Axes, Line, lines};
use super::published;
use crate::reproduce::edgio::controller::{LowPercentiles, Percent, Percentiles, Points, Round};
use crate::reproduce::edgio::networks::{NETWORKS, Network, scenario};
use crate::reproduce::edgio::outcome::{Event, Outcome};
use crate::reproduce::edgio::{
    AGENT_SETTINGS, CONTROLLER_SETTINGS, EDGE_SETTINGS, EarlyEnd, OPEN, TITLE, viewers,
};
use crate::reproduce::{columns, number};
pub use json::json;

/// Bits in a megabit.
const MBIT: f64 = 1e6;

const NETWORKS_TITLE: &str = "History of each network";
const COLUMNS: [&str; 9] = [
    "network",
    "path",
    "in truth",
    "history, at s",
    "connections",
    "goodput, steered vs held out",
    "retransmitted",
    "viewers before",
    "after",
];
const OF_NETWORKS: &str = "\
The truth follows from the path's properties, which the controller does not know. Connections (steered and held out) and effects \
are from the trial, as last reported by the controller, with 95 % intervals that are valid at any look. Viewers: their own median \
goodput, Mbit/s, in the rounds before and after.";

/// Returns the rows of the network table, in the order of [`COLUMNS`].
fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let [before, after] = outcome.times();
    let paths = scenario().paths;
    let row = |(index, (network, path)): (usize, (&Network, &Path))| {
        let trial = outcome.networks.get(index).and_then(|(_, known)| known.entry.as_ref());
        let median_in = |times: Option<(_, _)>| {
            let median = times.and_then(|(from, to)| outcome.median_bits_per_s(index, from, to));
            median.map_or_else(none, |median| number(median / MBIT))
        };
        vec![
            network.name.to_owned(),
            of_path(path),
            network.truth.name().to_owned(),
            of_events(&outcome.events(index)),
            trial.map_or_else(none, |trial| format!("{} + {}", trial.treated, trial.held_out)),
            trial.and_then(|trial| trial.goodput).map_or_else(none, of_percent),
            trial.and_then(|trial| trial.retransmitted).map_or_else(none, of_points),
            median_in(before),
            median_in(after),
        ]
    };
    NETWORKS.iter().zip(&paths).enumerate().map(row).collect()
}

fn none() -> String {
    "-".to_owned()
}

fn of_path(path: &Path) -> String {
    let down = &path.down;
    let rate = down.capacity.mean_bits_per_s().unwrap_or_default() / MBIT;
    let loss = down.loss.mean() * 100.0;
    let loss = if loss > 0.0 { format!(", loss {loss} %") } else { String::new() };
    format!("{} ms, {rate} Mbit/s, {} kB{loss}", path.round_trip_min().as_millis(), down.queue.bytes / 1000)
}

fn of_events(events: &[Event]) -> String {
    let of = |event: &Event| match event.what.name() {
        what if what == event.reason => format!("{what} {:.0}", event.at_s),
        what => format!("{what} {:.0} ({})", event.at_s, event.reason),
    };
    if events.is_empty() { none() } else { events.iter().map(of).collect::<Vec<_>>().join(", ") }
}

fn of_percent(effect: Percent) -> String {
    format!("{:+.0} % ({:+.0} to {:+.0})", effect.percent, effect.low, effect.high)
}

fn of_points(effect: Points) -> String {
    format!("{:+.1} points ({:+.1} to {:+.1})", effect.points, effect.low, effect.high)
}

/// Returns one line per check, and one with the networks falsely shown to be helped.
fn of_checks(outcome: &Outcome) -> Vec<String> {
    let checks = outcome.checks();
    let mut lines: Vec<_> = checks
        .iter()
        .map(|check| {
            format!("{}: {} ({})", if check.holds { "holds" } else { "FAILS" }, check.what, check.evidence)
        })
        .collect();
    let falsely_helped = outcome.falsely_helped();
    let names = if falsely_helped.is_empty() { "none".to_owned() } else { falsely_helped.join(", ") };
    lines.push(format!("shown to be helped, but BBR does not help in truth: {names}"));
    lines
}

/// Describes the numbers of received and failed responses.
fn of_responses(outcome: &Outcome) -> String {
    let viewers::ViewerResults { responses, failed, failures } = &outcome.viewer_results;
    let failures = if failures.is_empty() { String::new() } else { format!(": {}", failures.join("; ")) };
    let (whole, before, after) = (responses.len(), outcome.before().len(), outcome.after().len());
    format!("{whole} responses, {failed} failed{failures}. {before} rounds before, {after} after.")
}

/// Returns the reasons not to trust the results.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let late = outcome.lateness;
    let mut warnings: Vec<_> = outcome.early.iter().map(EarlyEnd::words).collect();
    if late.is_late() {
        warnings.push(format!(
            "The emulation was late: 99.9th percentile {} us, limit {} us. The machine was too busy; do not trust the figures.",
            late.p999.as_micros(),
            LATENESS_MAX.as_micros()
        ));
    }
    if late.is_missing() {
        let of = late.missed + late.packets;
        let allowed = 1.0 / MISSED_MAX;
        warnings.push(format!(
            "The emulator itself lost packets: {} of {of}; limit one in {allowed}.",
            late.missed
        ));
    }
    warnings
}

/// Returns all non-default settings as command-line flags.
fn settings() -> String {
    let flags = |set: &[(&str, &str)]| {
        set.iter().map(|(name, value)| format!("--{name} {value}")).collect::<Vec<_>>().join(" ")
    };
    format!(
        "thalweg controller run {}; thalweg edge {}; thalweg agent {}",
        flags(&CONTROLLER_SETTINGS),
        flags(&EDGE_SETTINGS),
        flags(&AGENT_SETTINGS)
    )
}

/// Renders the tables for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!("{NETWORKS_TITLE}\n{}\n", columns(&COLUMNS, &rows(outcome)));
    for line in
        of_checks(outcome).into_iter().chain([of_responses(outcome), settings()]).chain(warnings(outcome))
    {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Renders the HTML page.
pub fn page(outcome: &Outcome) -> String {
    let mut page = published(TITLE, OPEN, &outcome.headlines());
    warnings(outcome).iter().for_each(|warning| page.paragraph("warning", warning));
    page.heading("Checks");
    of_checks(outcome).iter().for_each(|line| page.paragraph("", line));
    page.heading("Rates across all connections, round by round");
    page.paragraph(
        "note",
        "Per window, across all connections of all networks, as the controller reports it.",
    );
    page.chart(&rates(outcome, "Delivery rate", |round| round.delivery_rate));
    page.chart(&rates(outcome, "Goodput", |round| round.goodput));
    page.heading("New and kept networks");
    page.chart(&members(outcome));
    page.heading(NETWORKS_TITLE);
    page.paragraph("note", OF_NETWORKS);
    page.table(&COLUMNS, &rows(outcome));
    for (network, (prefix, known)) in NETWORKS.iter().zip(&outcome.networks) {
        if let Some(said) = known.said.as_ref().filter(|_| known.entry.is_some()) {
            page.paragraph("", &format!("{} ({prefix}) at the end: {said}", network.name));
        }
    }
    page.paragraph("", &of_responses(outcome));
    page.paragraph("note", &format!("Settings other than the defaults: {}.", settings()));
    page.finish()
}

/// Draws the low percentiles of each round.
fn rates(outcome: &Outcome, title: &str, of: impl Fn(&Round) -> Percentiles) -> String {
    let line = |name: &str, low: fn(LowPercentiles) -> f64| {
        let points = outcome.rounds.iter().filter_map(|round| Some((outcome.at_s(round), of(round).all?)));
        Line::plain(name, points.map(|(at_s, lows)| (at_s, low(lows) * 8.0 / MBIT)))
    };
    let both = [line("p5", |lows| lows.p5), line("p10", |lows| lows.p10)];
    lines(Axes { title, x: "seconds", y: "Mbit/s" }, &both)
}

/// Draws the number of steered networks in each round, kept and new.
fn members(outcome: &Outcome) -> String {
    let of = |count: fn(&Round) -> f64| {
        outcome.rounds.iter().map(move |round| (outcome.at_s(round), count(round)))
    };
    let both = [
        Line::plain("kept", of(|round| round.kept as f64)),
        Line::plain("new", of(|round| round.entered.len() as f64)),
    ];
    lines(Axes { title: "Steered networks", x: "seconds", y: "networks" }, &both)
}

/// Renders all viewer responses as CSV, one per line.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = "network,at_us,time_us,bytes\n".to_owned();
    for response in &outcome.viewer_results.responses {
        let name = NETWORKS[response.network].name;
        let (at, time) = (response.at.as_micros(), response.time.as_micros());
        let _ = writeln!(text, "{name},{at},{time},{}", viewers::RESPONSE_BYTES);
    }
    text
}

#[cfg(test)]
mod tests;
