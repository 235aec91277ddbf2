//! Report of the Edgio reproduction: each network's history, charts over rounds, and the checks.

mod json;

use std::fmt::Write as _;

use thalweg_netem::emulation::{Family, LATENESS_MAX, MISSED_MAX};
use thalweg_netem::scenario::Path;

use super::chart::{Axes, Line, Mark, lines, marked_lines};
use super::published;
use crate::reproduce::edgio::controller::{LowPercentiles, Percent, Percentiles, Points, Round};
use crate::reproduce::edgio::networks::{NETWORKS, Network, POPS, World, scenario};
use crate::reproduce::edgio::outcome::{DELIVERY_RATE_TIMES, Event, GOODPUT_TIMES, Outcome};
use crate::reproduce::edgio::{AGENT_SETTINGS, EarlyEnd, controller_settings, description, title, viewers};
use crate::reproduce::{PublishedValue, columns, number};
pub use json::json;

/// Bits in a megabit.
const MBIT: f64 = 1e6;

const NETWORKS_TITLE: &str = "History of each network";
const COLUMNS: [&str; 10] = [
    "network",
    "PoP",
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

const OF_RATES: &str = "\
Per window, across all connections of a PoP's networks, as the controller reports it. The published multiples are for one large \
residential provider (delivery rate) and for all traffic (goodput).";

/// Returns the rows of the network table, in the order of [`COLUMNS`].
fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let times: Vec<_> = (0..POPS.len()).map(|pop| outcome.times(pop)).collect();
    let paths = scenario(outcome.plan.world, outcome.plan.duration / 2).paths;
    let row = |(index, (network, path)): (usize, (&Network, &Path))| {
        let [before, after] = times[network.pop];
        let trial = outcome.explanation(index).and_then(|known| known.entry.as_ref());
        let median_in = |times: Option<(_, _)>| {
            let median = times.and_then(|(from, to)| outcome.median_bits_per_s(index, from, to));
            median.map_or_else(none, |median| number(median / MBIT))
        };
        vec![
            network.name.to_owned(),
            POPS[network.pop].to_owned(),
            of_path(path, network),
            network.truth.name().to_owned(),
            of_events(&outcome.events(index)),
            trial.map_or_else(none, |trial| format!("{} + {}", trial.treated, trial.held_out)),
            trial.and_then(|trial| trial.goodput).map_or_else(none, of_percent),
            trial.and_then(|trial| trial.retransmitted).map_or_else(none, of_points),
            median_in(before),
            median_in(after),
        ]
    };
    outcome.plan.world.networks().iter().zip(&paths).enumerate().map(row).collect()
}

fn none() -> String {
    "-".to_owned()
}

fn of_path(path: &Path, network: &Network) -> String {
    let down = &path.down;
    let rate = down.capacity.mean_bits_per_s().unwrap_or_default() / MBIT;
    let loss = down.loss.mean() * 100.0;
    let loss = if loss > 0.0 { format!(", loss {loss} %") } else { String::new() };
    let later = path.changes.iter().filter_map(|change| Some((change.at, change.down.loss?)));
    let later: String = later
        .map(|(at, loss)| format!(", loss {} % after {} s", loss.mean() * 100.0, at.as_secs()))
        .collect();
    let prefix = match network.family {
        Family::Four => "/24",
        Family::Six => "/56",
    };
    let (ms, queue) = (path.round_trip_min().as_millis(), down.queue.bytes / 1000);
    format!("{prefix}, {ms} ms, {rate} Mbit/s, {queue} kB{loss}{later}")
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

/// Returns one line per check.
fn of_checks(outcome: &Outcome) -> Vec<String> {
    let line = |holds, what: &str, evidence: &str| {
        format!("{}: {what} ({evidence})", if holds { "holds" } else { "FAILS" })
    };
    outcome.checks().iter().map(|check| line(check.holds, &check.what, &check.evidence)).collect()
}

/// Describes the numbers of received and failed responses.
fn of_responses(outcome: &Outcome) -> String {
    let viewers::ViewerResults { responses, failed, failures } = &outcome.viewer_results;
    let failures = if failures.is_empty() { String::new() } else { format!(": {}", failures.join("; ")) };
    let rounds = |pop| {
        let (before, after) = (outcome.before(pop).len(), outcome.after(pop).len());
        format!("{}: {before} rounds before, {after} after.", POPS[pop])
    };
    let rounds: Vec<_> = (0..POPS.len()).map(rounds).collect();
    format!("{} responses, {failed} failed{failures}. {}", responses.len(), rounds.join(" "))
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
fn settings(world: World) -> String {
    let flags = |set: &[(&str, &str)]| {
        set.iter().map(|(name, value)| format!("--{name} {value}")).collect::<Vec<_>>().join(" ")
    };
    format!(
        "thalweg controller run {} --congestion-control bbr; thalweg edge --congestion-control cubic; thalweg agent {}",
        flags(&controller_settings(world)),
        flags(&AGENT_SETTINGS)
    )
}

/// Renders the tables for a terminal.
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!("{NETWORKS_TITLE}\n{}\n", columns(&COLUMNS, &rows(outcome)));
    for line in of_checks(outcome)
        .into_iter()
        .chain([of_responses(outcome), settings(outcome.plan.world)])
        .chain(warnings(outcome))
    {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Renders the HTML page.
pub fn page(outcome: &Outcome) -> String {
    let world = outcome.plan.world;
    let mut page = published(title(world), description(world), &outcome.headlines());
    warnings(outcome).iter().for_each(|warning| page.paragraph("warning", warning));
    page.heading("Checks");
    of_checks(outcome).iter().for_each(|line| page.paragraph("", line));
    page.heading("Rates across all connections, round by round");
    page.paragraph("note", OF_RATES);
    for (pop, name) in POPS.iter().enumerate() {
        let charts = [
            rates(outcome, pop, &format!("Delivery rate in {name}"), DELIVERY_RATE_TIMES, |round| {
                round.delivery_rate
            }),
            rates(outcome, pop, &format!("Goodput in {name}"), GOODPUT_TIMES, |round| round.goodput),
            members(outcome, pop, &format!("Steered networks in {name}")),
        ];
        charts.iter().for_each(|chart| page.chart(chart));
    }
    page.heading(NETWORKS_TITLE);
    page.paragraph("note", OF_NETWORKS);
    page.table(&COLUMNS, &rows(outcome));
    for (network, (prefix, known)) in NETWORKS.iter().zip(&outcome.record.networks) {
        if let Some(said) = known.said.as_ref().filter(|_| known.entry.is_some()) {
            page.paragraph("", &format!("{} ({prefix}) at the end: {said}", network.name));
        }
    }
    page.paragraph("", &of_responses(outcome));
    page.paragraph("note", &format!("Settings other than the defaults: {}.", settings(world)));
    page.finish()
}

/// Draws the low percentiles of a PoP's rounds, with the beginning of steering and the published
/// multiple of the 10th percentile before.
fn rates(
    outcome: &Outcome,
    pop: usize,
    title: &str,
    published: f64,
    of: impl Fn(&Round) -> Percentiles,
) -> String {
    let low = |rounds: &[Round], low: fn(LowPercentiles) -> f64| -> Vec<(f64, f64)> {
        let points = rounds.iter().filter_map(|round| Some((outcome.at_s(round), of(round).all?)));
        points.map(|(at_s, lows)| (at_s, low(lows) * 8.0 / MBIT)).collect()
    };
    let rounds = outcome.rounds(pop);
    let [p5, p10] = [low(rounds, |lows| lows.p5), low(rounds, |lows| lows.p10)];
    let most = p10.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let before = low(outcome.before(pop), |lows| lows.p10);
    let mut all = vec![Line::plain("p5", p5.iter().copied()), Line::plain("p10", p10.iter().copied())];
    let mut marks = Vec::new();
    if let (Some((start, _)), Some((end, _))) = (before.last(), p10.last()) {
        let mean = before.iter().map(|(_, rate)| rate).sum::<f64>() / before.len() as f64;
        let level = Line::plain("", [(*start, mean), (*end, mean)].into_iter());
        let published = PublishedValue::Between(published, published);
        marks.push(Mark::times_line(published, &level, "times p10 before"));
        all.push(Line::plain("steering begins", [(*start, 0.0), (*start, most)].into_iter()));
    }
    marked_lines(Axes { title, x: "seconds", y: "Mbit/s" }, &all, &marks)
}

/// Draws the number of steered networks in each of a PoP's rounds, kept and new.
fn members(outcome: &Outcome, pop: usize, title: &str) -> String {
    let of = |count: fn(&Round) -> f64| {
        outcome.rounds(pop).iter().map(move |round| (outcome.at_s(round), count(round)))
    };
    let both = [
        Line::plain("kept", of(|round| round.kept as f64)),
        Line::plain("new", of(|round| round.entered.len() as f64)),
    ];
    lines(Axes { title, x: "seconds", y: "networks" }, &both)
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
