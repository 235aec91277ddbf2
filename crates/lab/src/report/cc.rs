//! Report of a congestion control comparison: the winner in each cell, and the page with charts.
//!
//! - [`table`]: the table for a terminal, and strings shared with the page.
//! - [`agreements`]: the edge's times beside the clients'.
//! - [`sweep`]: charts over the loss of paths.
//! - [`data`]: the samples and the table in machine-readable form.

mod agreements;
mod data;
mod sweep;
mod table;

pub use agreements::agreements;
pub use data::{csv, json};
pub use table::table;

use super::chart::{Axes, Mark, cumulative, lines, marked_lines, medians};
use super::{Page, published};
use crate::cc::agreement::{Agreement, agreement};
use crate::cc::statistics::{Summary, is_below, mean, summarise};
use crate::cc::{Cell, Report, Request, SLICE, Sample};
use crate::reproduce::{Headline, PublishedRatio};
use table::{COLUMNS, conditions, footnotes, shown, verdict, warnings, words};

/// The summary of one cell of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The summarised cell.
    pub cell: Cell,
    /// Fetch times in seconds; `None` without samples.
    pub time_s: Option<Summary>,
    /// Mean number of retransmitted TCP segments.
    pub retransmits: Option<f64>,
    /// The edge's goodput beside the client's; `None` if the edge measured no sample.
    pub agreement: Option<Agreement>,
    /// Number of failed samples.
    pub failed: usize,
    /// Reason for the first failure.
    pub first_failure: Option<String>,
    /// This cell's mean time divided by the lowest mean time among the compared algorithms.
    pub times_best: Option<f64>,
    /// Whether this cell has the lowest mean of at least two compared algorithms.
    pub is_best: bool,
    /// Whether this cell's mean is significantly below every other algorithm's. False if a sample
    /// failed or a signal ended the run, because the excluded samples are the slow ones.
    pub wins: bool,
}

/// Summarises all cells, in matrix order.
pub fn rows(report: &Report) -> Vec<Row> {
    report.plan.cells().map(|cell| row(report, cell)).collect()
}

fn row(report: &Report, cell: Cell) -> Row {
    let own = report.seconds_of(&cell);
    let others: Vec<_> = (report.plan.algorithms.iter())
        .filter(|other| **other != cell.algorithm)
        .map(|algorithm| report.seconds_of(&Cell { algorithm: algorithm.clone(), ..cell.clone() }))
        .collect();
    let time_s = (!own.is_empty()).then(|| summarise(&own));
    let means = others.iter().filter(|other| !other.is_empty()).map(|other| summarise(other).mean.mean);
    let times_best = time_s.as_ref().map(|time| time.mean.mean / means.fold(time.mean.mean, f64::min));
    let failures = report.failures_of(&cell);
    let retransmits = report.samples_of(&cell).iter().map(|sample| sample.retransmits as f64).sum::<f64>();
    Row {
        retransmits: time_s.as_ref().map(|time| retransmits / time.samples as f64),
        agreement: agreement(report, &cell),
        failed: failures.len(),
        first_failure: failures.first().cloned(),
        times_best,
        is_best: times_best == Some(1.0) && others.iter().any(|other| !other.is_empty()),
        wins: report.interrupted.is_none()
            && failures.is_empty()
            && !others.is_empty()
            && others.iter().all(|other| is_below(&own, other)),
        time_s,
        cell,
    }
}

fn path_name<'a>(report: &'a Report, cell: &Cell) -> &'a str {
    &report.plan.scenario.paths[cell.path].name
}

/// Renders the page of a comparison.
pub fn page(report: &Report) -> String {
    let mut page = Page::new("Congestion control compared");
    all(&mut page, report, None);
    page.finish()
}

/// A publication that compares algorithms, for its page.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// Publisher, year and subject.
    pub title: &'a str,
    /// Parameters that the publication leaves open, and our choices.
    pub open: &'a str,
    /// The published figures and those measured here.
    pub headlines: &'a [Headline],
    /// The published ratio of times, drawn in the charts, if there is one.
    pub ratio: Option<PublishedRatio>,
}

/// Renders the page of a publication: headlines and our choices for open parameters, then the
/// comparison.
pub fn page_of(report: &Report, publication: &Publication<'_>) -> String {
    let mut page = published(publication.title, publication.open, publication.headlines);
    all(&mut page, report, publication.ratio);
    page.finish()
}

fn all(page: &mut Page, report: &Report, ratio: Option<PublishedRatio>) {
    let plan = &report.plan;
    for warning in warnings(report) {
        page.paragraph("warning", &warning);
    }
    page.paragraph(
        "note",
        &format!(
            "One edge over emulated paths; a separate connection for each sample, {} samples of each cell in rounds of random \
             order, {} lanes per path, seed {}. A 90th percentile needs 36 samples, a 99th 368. Retransmits are the kernel's count at \
             the end of a response.",
            plan.samples, plan.lanes, plan.scenario.seed
        ),
    );
    let rows = rows(report);
    for path in conditions(report) {
        page.paragraph("note", &path);
    }
    let cells: Vec<_> = rows.iter().map(|row| words(report, row)).collect();
    let shown = shown(&cells);
    let set_off = |(row, cells): (&Row, &[String; COLUMNS.len()])| -> Vec<String> {
        let mark = if row.wins { "*" } else { "" };
        let cells = shown.iter().map(|column| cells[*column].as_str()).chain([verdict(row)]);
        cells.map(|cell| format!("{mark}{cell}")).collect()
    };
    let columns: Vec<_> = shown.iter().map(|column| COLUMNS[*column]).chain([""]).collect();
    page.table(&columns, &rows.iter().zip(&cells).map(set_off).collect::<Vec<_>>());
    for note in footnotes(&rows) {
        page.paragraph("note", note);
    }
    agreements::add(page, report);
    for request in &plan.requests {
        sweep::charts(page, report, *request, ratio);
    }
    for (index, path) in plan.scenario.paths.iter().enumerate() {
        for request in &plan.requests {
            page.heading(&format!("{}, {}", path.name, request.name()));
            of_cell(page, report, (index, *request), ratio);
        }
    }
}

/// Adds the charts of one path and request.
fn of_cell(
    page: &mut Page,
    report: &Report,
    (path, request): (usize, Request),
    ratio: Option<PublishedRatio>,
) {
    let cells =
        report.plan.algorithms.iter().map(|algorithm| Cell { path, request, algorithm: algorithm.clone() });
    let cells: Vec<Cell> = cells.filter(|cell| !report.samples_of(cell).is_empty()).collect();
    if cells.is_empty() {
        page.paragraph("note", "No samples.");
        return;
    }
    let times = cells
        .iter()
        .map(|cell| cumulative(&cell.algorithm, &report.seconds_of(cell), report.failures_of(cell).len()));
    let place = format!("{}, {}", report.plan.scenario.paths[path].name, request.name());
    let title = format!("{place}: share of samples fetched, with its 95 % band");
    let axes = Axes { title: &title, x: "seconds", y: "share of samples" };
    let mark = ratio.and_then(|ratio| {
        let to = Cell { path, request, algorithm: ratio.to.to_owned() };
        let seconds = Some(report.seconds_of(&to)).filter(|seconds| !seconds.is_empty())?;
        let unit = format!("times {}'s mean", ratio.to);
        Some(Mark::times_x(ratio.published, mean(&seconds).mean, &unit))
    });
    page.chart(&marked_lines(axes, &times.collect::<Vec<_>>(), mark.as_slice()));
    let rates = cells.iter().map(|cell| {
        let rates: Vec<Vec<f64>> = report.samples_of(cell).iter().map(mbit_per_s).collect();
        medians(&cell.algorithm, RATE_STEP as f64 * SLICE.as_secs_f64(), &rates)
    });
    let title = format!("{place}: goodput over time, median and quartiles");
    let axes = Axes { title: &title, x: "seconds from the first SYN", y: "Mbit/s" };
    page.chart(&lines(axes, &rates.collect::<Vec<_>>()));
}

/// Number of slices combined into one goodput point.
const RATE_STEP: usize = 4;

/// Returns the goodput of a response in each time step, in Mbit/s.
fn mbit_per_s(sample: &Sample) -> Vec<f64> {
    let mut before = 0;
    let steps = sample.progress.chunks(RATE_STEP).map(|step| {
        let last = *step.last().expect("chunks are not empty");
        let bytes = last - std::mem::replace(&mut before, last);
        bytes as f64 * 8.0 / 1e6 / (RATE_STEP as f64 * SLICE.as_secs_f64())
    });
    steps.collect()
}

#[cfg(test)]
mod tests;
