//! Table of the edge's times beside the clients', by path and size, for all algorithms together.

use thalweg_netem::scenario::Path;

use crate::cc::agreement::agreement_on;
use crate::cc::{Report, Request};
use crate::report::Page;
use crate::reproduce::columns;

const TITLE: &str = "Times by the edge and by the clients, all algorithms together";
const NOTE: &str = "\
Agreeing: the two times differ by at most 5 % or one round trip. Off: their absolute difference. A 95th percentile needs 72 \
samples.";
const COLUMNS: [&str; 7] = [
    "path and size",
    "round trip ms",
    "samples",
    "agreeing",
    "off p50 ms",
    "off p95 ms",
    "off p50 / round trip",
];

fn rows(report: &Report) -> Vec<Vec<String>> {
    let paths = report.plan.scenario.paths.iter().enumerate();
    let places = paths.flat_map(|path| report.plan.requests.iter().map(move |request| (path, *request)));
    let row = |((index, path), request): ((usize, &Path), Request)| {
        let found = agreement_on(report, index, request)?;
        let round_trip_ms = path.round_trip_min().as_secs_f64() * 1e3;
        Some(vec![
            format!("{}, {}", path.name, request.name()),
            format!("{round_trip_ms:.0}"),
            found.measured.to_string(),
            found.agreeing.to_string(),
            format!("{:.2}", found.off_p50_ms),
            found.off_p95_ms.map_or_else(|| "-".to_owned(), |off_ms| format!("{off_ms:.2}")),
            format!("{:.3}", found.off_p50_ms / round_trip_ms),
        ])
    };
    places.filter_map(row).collect()
}

/// Renders the table for a terminal.
pub fn agreements(report: &Report) -> String {
    format!("{TITLE}\n{}\n{NOTE}\n", columns(&COLUMNS, &rows(report)))
}

/// Adds the table to a page, unless the edge measured no sample.
pub(super) fn add(page: &mut Page, report: &Report) {
    let rows = rows(report);
    if !rows.is_empty() {
        page.heading(TITLE);
        page.paragraph("note", NOTE);
        page.table(&COLUMNS, &rows);
    }
}
