//! Charts of the Lumen reproduction, with the published values.

use crate::report::Page;
use crate::report::chart::{Axes, Line, Mark, cumulative, histogram, lines, marked_lines};
use crate::reproduce::lumen::audience::Step;
use crate::reproduce::lumen::{Cache, LOCK_MS, Outcome, SEGMENT, SHORT, TTFB_P95_MS};

/// Bin width of wait histograms.
const BIN_MS: f64 = 50.0;

/// Adds the charts of joiners' waits. nginx's lock appears as steps of 500 ms.
pub(super) fn waits(page: &mut Page, outcome: &Outcome) {
    let marks = [Mark::at_x(TTFB_P95_MS, "ms (p95)"), Mark::at_x(LOCK_MS, "ms (nginx's lock)")];
    for fill in [SHORT, SEGMENT] {
        let counts = Cache::ALL.map(|cache| histogram(cache.name(), BIN_MS, &outcome.waits_ms(cache, fill)));
        let title = format!("Joiners by wait time: {}", fill.name);
        let axes = Axes { title: &title, x: "wait, ms, in bins of 50", y: "joiners" };
        page.chart(&marked_lines(axes, &counts, &marks));
        // Omit bands: they assume independent samples, but joiners of the same fill wait for the
        // same bytes.
        let shares = Cache::ALL.map(|cache| share(cache.name(), &outcome.waits_ms(cache, fill)));
        let title = format!("Share of joiners that have the first byte: {}", fill.name);
        let axes = Axes { title: &title, x: "wait, ms", y: "share of joiners" };
        page.chart(&marked_lines(axes, &shares, &marks));
    }
}

/// Returns the cumulative share of times, without a band.
fn share(name: &str, times: &[f64]) -> Line {
    let line = cumulative(name, times, 0);
    Line::plain(name, [(0.0, 0.0)].into_iter().chain(line.points.iter().map(|point| (point.x, point.y))))
}

/// Adds the charts of chunk delays.
pub(super) fn delays(page: &mut Page, outcome: &Outcome) {
    for cache in Cache::ALL {
        let title = format!("Share of chunks received: {}", super::tiers(cache));
        let line = share(cache.name(), &outcome.delays_ms(cache));
        page.chart(&lines(Axes { title: &title, x: "delay, ms", y: "share of chunks" }, &[line]));
    }
}

/// Adds the chart of viewers' TTFB over time, with one line per number of viewers.
pub(super) fn ttfb_over_time(page: &mut Page, outcome: &Outcome) {
    let line = |step: &Step| {
        let points = step.ttfb_p95.iter().map(|second| (second.at_s as f64, second.p95_ms));
        Line::plain(&format!("{} viewers", step.viewers), points)
    };
    let all: Vec<Line> = outcome.steps.iter().filter(|step| !step.ttfb_p95.is_empty()).map(line).collect();
    if !all.is_empty() {
        let title = "95th percentile of live viewers' TTFB over time";
        let axes = Axes { title, x: "seconds since the first viewer joined", y: "TTFB p95, ms" };
        page.chart(&marked_lines(axes, &all, &[Mark::at_y(TTFB_P95_MS, "ms")]));
    }
}
