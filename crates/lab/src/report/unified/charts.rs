//! Charts of the Unified Streaming reproduction: gains by the number of users, with the published
//! values, and the course of runs over time.

use std::collections::BTreeMap;

use crate::report::Page;
use crate::report::chart::{Axes, Line, Mark, lines, marked_lines};
use crate::reproduce::PublishedValue;
use crate::reproduce::unified::outcome::{Gain, RESPONSE_PERCENT, THROUGHPUT_PERCENT};
use crate::reproduce::unified::{Arm, Conditions, Outcome, Second};

/// A quantity over the time of a run.
struct Quantity {
    title: &'static str,
    axis: &'static str,
    of: fn(&Second) -> Option<f64>,
}

const QUANTITIES: [Quantity; 5] = [
    Quantity { title: "Throughput", axis: "Mbit/s of content", of: |second| Some(second.mbit_per_s) },
    Quantity {
        title: "Response time of segments",
        axis: "95th percentile, ms",
        of: |second| second.segment_p95_ms,
    },
    Quantity {
        title: "TCP connections to the storage",
        axis: "open or waiting to be forgotten",
        of: |second| Some((second.established + second.waiting) as f64),
    },
    Quantity { title: "Processors used by the origin", axis: "processors", of: |second| Some(second.cores) },
    Quantity {
        title: "Memory of the origin",
        axis: "MiB",
        of: |second| Some(second.memory_bytes as f64 / (1024.0 * 1024.0)),
    },
];

/// Adds the charts of gains by the number of users, one line per storage, format and interval.
pub(super) fn gains(page: &mut Page, outcome: &Outcome) {
    let mut by_users: BTreeMap<String, Vec<(f64, Gain)>> = BTreeMap::new();
    for conditions in outcome.plan.conditions() {
        let Some(gain) = outcome.gain(conditions) else { continue };
        let Conditions { store, format, ramp } = conditions;
        let name = format!("{}, {}, every {} s", store.name(), format.name(), ramp.every_s);
        by_users.entry(name).or_default().push((ramp.users as f64, gain));
    }
    let chart = |title: &str, y: &str, published: f64, of: fn(&Gain) -> f64| {
        // The axes start at zero: a loss is drawn as no gain, and the table has its value.
        let line = |(name, gains): (&String, &Vec<(f64, Gain)>)| {
            let mut points: Vec<_> = gains.iter().map(|(users, gain)| (*users, of(gain).max(0.0))).collect();
            points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            Line::plain(name, points.into_iter())
        };
        let all: Vec<_> = by_users.iter().map(line).collect();
        let mark = Mark::at_y(PublishedValue::Between(published, published), "% at most");
        marked_lines(Axes { title, x: "users at the end of the run", y }, &all, &[mark])
    };
    if by_users.is_empty() {
        return;
    }
    page.chart(&chart("Rise in throughput with pooled connections", "%", THROUGHPUT_PERCENT, |gain| {
        gain.throughput_percent
    }));
    page.chart(&chart("Fall of segments' mean response time", "%", RESPONSE_PERCENT, |gain| {
        gain.response_percent
    }));
}

/// Adds the charts over time, for each of the conditions: the first round of both arms.
pub(super) fn over_time(page: &mut Page, outcome: &Outcome) {
    for conditions in outcome.plan.conditions() {
        let firsts = Arm::ALL.map(|arm| (arm, outcome.rounds(conditions, arm).first().copied()));
        if firsts.iter().all(|(_, figures)| figures.is_none_or(|figures| figures.seconds.is_empty())) {
            continue;
        }
        page.heading(&format!("First round: {}", conditions.words()));
        for Quantity { title, axis, of } in QUANTITIES {
            let line = |(arm, figures): (Arm, Option<&crate::reproduce::unified::Figures>)| {
                let seconds = figures?.seconds.iter();
                let points = seconds.filter_map(|second| Some((second.at_s, of(second)?)));
                Some(Line::plain(arm.name(), points))
            };
            let both: Vec<_> = firsts.into_iter().filter_map(line).collect();
            let title = format!("{title}: {}", conditions.words());
            page.chart(&lines(Axes { title: &title, x: "time, s", y: axis }, &both));
        }
    }
}
