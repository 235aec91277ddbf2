//! What a reproduction of Edgio's publication has found: what became of each network, the rounds as charts, and what has to hold.

mod json;

use std::fmt::Write as _;

use super::chart::{Axes, Line, Point, lines};
use super::published;
use crate::emulation::{LATENESS_MAX, MISSED_MAX};
use crate::reproduce::edgio::networks::{NETWORKS, Network, scenario};
use crate::reproduce::edgio::outcome::{Event, Outcome};
use crate::reproduce::edgio::told::{Arms, Lows, Percent, Points, Round};
use crate::reproduce::edgio::{
    AGENT_SETTINGS, CONTROLLER_SETTINGS, EDGE_SETTINGS, Early, OPEN, TITLE, viewers,
};
use crate::reproduce::{columns, number};
use crate::scenario::Path;
pub use json::json;

/// Bits of a megabit.
const MBIT: f64 = 1e6;

const NETWORKS_TITLE: &str = "What became of each network";
const COLUMNS: [&str; 9] = [
    "network",
    "path",
    "in truth",
    "what became of it, at s",
    "connections",
    "goodput, steered to held out",
    "sent again",
    "viewers before",
    "after",
];
const OF_NETWORKS: &str = "\
Truth is by how the path is made; the controller does not know it. Connections, steered and held out, and what they show are of the trial, \
as the controller told it last, with intervals of 95 % that hold at every look. Viewers: the median of their own goodput, Mbit/s, in the \
rounds before and after.";

/// Each network in words, of these [`COLUMNS`].
fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let [before, after] = outcome.times();
    let paths = scenario().paths;
    let row = |(index, (network, path)): (usize, (&Network, &Path))| {
        let trial = outcome.networks.get(index).and_then(|(_, known)| known.entry.as_ref());
        let told = |times: Option<(_, _)>| {
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
            told(before),
            told(after),
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

/// What has to hold, each on a line, and which networks were told to be helped without being so.
fn of_checks(outcome: &Outcome) -> Vec<String> {
    let checks = outcome.checks();
    let mut lines: Vec<_> = checks
        .iter()
        .map(|check| {
            format!("{}: {} ({})", if check.holds { "holds" } else { "FAILS" }, check.what, check.told)
        })
        .collect();
    let false_ones = outcome.false_ones();
    let told = if false_ones.is_empty() { "none".to_owned() } else { false_ones.join(", ") };
    lines.push(format!("told to be helped, but do not gain in truth: {told}"));
    lines
}

/// How many viewers' responses there were, and how many failed.
fn of_responses(outcome: &Outcome) -> String {
    let viewers::Seen { responses, failed, failures } = &outcome.seen;
    let failures = if failures.is_empty() { String::new() } else { format!(": {}", failures.join("; ")) };
    let (whole, before, after) = (responses.len(), outcome.before().len(), outcome.after().len());
    format!("{whole} responses, {failed} failed{failures}. {before} rounds before, {after} after.")
}

/// Why it is not to be trusted as a whole.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let late = outcome.lateness;
    let mut warnings: Vec<_> = outcome.early.iter().map(Early::words).collect();
    if late.is_late() {
        warnings.push(format!(
            "The emulation was late at the 99.9th percentile: {} us, at most {} us are allowed. The machine was too busy for figures to be \
             trusted.",
            late.p999.as_micros(),
            LATENESS_MAX.as_micros()
        ));
    }
    if late.is_missing() {
        let of = late.missed + late.packets;
        let allowed = 1.0 / MISSED_MAX;
        warnings.push(format!(
            "The emulator itself lost packets: {} of {of}, one of {allowed} is allowed.",
            late.missed
        ));
    }
    warnings
}

/// All that was set, as flags.
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

/// For a terminal.
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!("{NETWORKS_TITLE}\n{}\n", columns(&COLUMNS, &rows(outcome)));
    for line in
        of_checks(outcome).into_iter().chain([of_responses(outcome), settings()]).chain(warnings(outcome))
    {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The page.
pub fn page(outcome: &Outcome) -> String {
    let mut page = published(TITLE, OPEN, &outcome.headlines());
    warnings(outcome).iter().for_each(|warning| page.paragraph("warning", warning));
    page.heading("What has to hold");
    of_checks(outcome).iter().for_each(|line| page.paragraph("", line));
    page.heading("Rates over all connections, round by round");
    page.paragraph("note", "Of each window, over all connections of all networks, as the controller has it.");
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
    page.paragraph("note", &format!("Other than the defaults: {}.", settings()));
    page.finish()
}

/// The low percentiles of each round.
fn rates(outcome: &Outcome, title: &str, of: impl Fn(&Round) -> Arms) -> String {
    let line = |name: &str, low: fn(Lows) -> f64| {
        let told = outcome.rounds.iter().filter_map(|round| Some((outcome.at_s(round), of(round).all?)));
        line(name, told.map(|(at_s, lows)| (at_s, low(lows) * 8.0 / MBIT)))
    };
    let both = [line("p5", |lows| lows.p5), line("p10", |lows| lows.p10)];
    lines(Axes { title, x: "seconds", y: "Mbit/s" }, &both)
}

/// How many networks were steered in each round, and how many of them were new.
fn members(outcome: &Outcome) -> String {
    let of = |count: fn(&Round) -> f64| {
        outcome.rounds.iter().map(move |round| (outcome.at_s(round), count(round)))
    };
    let both =
        [line("kept", of(|round| round.kept as f64)), line("new", of(|round| round.entered.len() as f64))];
    lines(Axes { title: "Networks that are steered", x: "seconds", y: "networks" }, &both)
}

fn line(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Line {
    Line { name: name.to_owned(), points: points.map(|(x, y)| Point { x, y, band: (y, y) }).collect() }
}

/// Each response of viewers as CSV, one a line.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = "network,at_us,time_us,bytes\n".to_owned();
    for response in &outcome.seen.responses {
        let name = NETWORKS[response.network].name;
        let (at, time) = (response.at.as_micros(), response.time.as_micros());
        let _ = writeln!(text, "{name},{at},{time},{}", viewers::RESPONSE_BYTES);
    }
    text
}

#[cfg(test)]
mod tests;
