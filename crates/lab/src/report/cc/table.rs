//! Table of a comparison for a terminal, and strings shared with the page.

use std::fmt::Write as _;

use thalweg_netem::emulation::{LATENESS_MAX, Lateness, MISSED_MAX};
use thalweg_netem::scenario::Path;
use thalweg_units::table::{Column, Table};

use super::{Row, path_name, rows};
use crate::cc::Report;

/// Column names.
pub(super) const COLUMNS: [&str; 15] = [
    "path",
    "size",
    "algorithm",
    "samples",
    "failed",
    "mean s",
    "times best",
    "median s",
    "p90 s",
    "p99 s",
    "retransmits",
    "agreeing",
    "off p50 ms",
    "off p95 ms",
    "edge/client",
];
/// Number of leading text columns, which are aligned left.
const TEXTS: usize = 3;
/// Placeholder for a missing value.
const NONE: &str = "-";

/// Formats a row's cells, in the order of [`COLUMNS`].
pub(super) fn words(report: &Report, row: &Row) -> [String; COLUMNS.len()] {
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
    };
    let time = row.time_s.as_ref();
    let mean = number(time.map(|time| time.mean.mean), 3);
    let margin = time.and_then(|time| time.mean.margin);
    [
        path_name(report, &row.cell).to_owned(),
        row.cell.request.name(),
        row.cell.algorithm.clone(),
        time.map_or(0, |time| time.samples).to_string(),
        if row.failed > 0 { row.failed.to_string() } else { NONE.to_owned() },
        margin.map_or(mean.clone(), |margin| format!("{mean} ± {margin:.3}")),
        number(row.times_best, 2),
        number(time.map(|time| time.median), 3),
        number(time.and_then(|time| time.p90), 3),
        number(time.and_then(|time| time.p99), 3),
        number(row.retransmits, 1),
        row.agreement.map_or_else(|| NONE.to_owned(), |it| format!("{} of {}", it.agreeing, it.measured)),
        number(row.agreement.map(|it| it.off_p50_ms), 2),
        number(row.agreement.and_then(|it| it.off_p95_ms), 2),
        number(row.agreement.map(|it| it.bias_ln.exp()), 3),
    ]
}

/// Returns the verdict on a row.
pub(super) fn verdict(row: &Row) -> &'static str {
    match row {
        Row { time_s: None, .. } => "no sample",
        Row { wins: true, .. } => "wins",
        Row { is_best: true, .. } => "best",
        _ => "",
    }
}

/// Returns the indices of columns in which at least one row has a value.
pub(super) fn shown(rows: &[[String; COLUMNS.len()]]) -> Vec<usize> {
    (0..COLUMNS.len()).filter(|column| rows.iter().any(|cells| cells[*column] != NONE)).collect()
}

/// Renders the table for a terminal.
pub fn table(report: &Report) -> String {
    let rows = rows(report);
    let words: Vec<_> = rows.iter().map(|row| words(report, row)).collect();
    let shown = shown(&words);
    let column = |at: usize| if at < TEXTS { Column::text(COLUMNS[at]) } else { Column::number(COLUMNS[at]) };
    let mut table = Table::new(shown.iter().copied().map(column).chain([Column::text("")]));
    for (cells, row) in words.iter().zip(&rows) {
        table.push(shown.iter().map(|at| cells[*at].as_str()).chain([verdict(row)]));
    }
    let mut text = conditions(report).join("\n") + "\n\n";
    for (at, line) in table.lines().enumerate() {
        // Separate compared groups with a blank line. Line 0 has the column names.
        if at > 1 && words[at - 1][..2] != words[at - 2][..2] {
            text.push('\n');
        }
        text += &(line + "\n");
    }
    for note in [footnotes(&rows).join("\n"), warnings(report).join("\n")] {
        if !note.is_empty() {
            let _ = write!(text, "\n{note}\n");
        }
    }
    text
}

/// Describes each path in the direction towards the clients.
pub(super) fn conditions(report: &Report) -> Vec<String> {
    let of = |path: &Path| {
        let rate = path.down.capacity.mean_bits_per_s().map_or_else(
            || "no rate limit".to_owned(),
            |rate| format!("{} Mbit/s, queue {} kB", rate.round() / 1e6, path.down.queue.bytes / 1000),
        );
        let loss = (path.down.loss.mean() * 1e6).round() / 1e4;
        format!("{}: round trip {} ms, {rate}, loss {loss} %", path.name, path.round_trip_min().as_millis())
    };
    report.plan.scenario.paths.iter().map(of).collect()
}

/// Explains the figures and words in the table.
pub(super) fn footnotes(rows: &[Row]) -> Vec<&'static str> {
    let mut notes = vec![
        "Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t), which contains the true mean 19 times in 20.",
    ];
    if rows.iter().any(|row| row.agreement.is_some()) {
        notes.push(
            "agreeing: samples whose transfer times by the edge and by the client differ by at most 5 % or one round trip. off: the absolute \
difference of the two times. edge/client: the geometric mean of the edge's goodput, by acknowledgements, divided by the client's.",
        );
    }
    if rows.iter().any(|row| row.wins) {
        notes.push(
            "wins: the lowest mean, and significantly so (Welch's 95 % interval of the difference from each other algorithm excludes zero).",
        );
    }
    if rows.iter().any(|row| row.is_best && !row.wins) {
        notes.push(
            "best: the lowest mean, but no win: the difference may be chance, or samples failed or were cut off. More samples may tell.",
        );
    }
    if rows.iter().any(|row| row.failed > 0) {
        notes.push(
            "failed: excluded from the means. A sample that timed out would have been among the slowest, so a mean beside failures is too low.",
        );
    }
    notes
}

/// Returns reasons why the results are incomplete or unreliable.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(signal) = report.interrupted {
        warnings.push(format!(
            "Interrupted by signal {signal}: {} of {} samples were taken. Those in flight are excluded, and slow ones are in flight longest: \
             no winner is declared.",
            report.taken(),
            report.planned()
        ));
    }
    if report.failed() > 0 {
        warnings.push(failed(report));
    }
    warnings.extend(late(report));
    warnings.extend(missing(report));
    warnings
}

fn failed(report: &Report) -> String {
    let of_cell = |(cell, failures): (&crate::cc::Cell, &Vec<String>)| {
        let (path, size, algorithm) = (path_name(report, cell), cell.request.name(), &cell.algorithm);
        let first = failures.first().map_or("", String::as_str);
        format!("{path}, {size}, {algorithm}: {} ({first})", failures.len())
    };
    let cells: Vec<_> = report.failures.iter().map(of_cell).collect();
    format!(
        "{} of {} samples failed; first reason of each cell: {}.",
        report.failed(),
        report.planned(),
        cells.join("; ")
    )
}

fn late(report: &Report) -> Option<String> {
    let over_all = (report.lateness.p999 > LATENESS_MAX).then_some(("all paths together", report.lateness));
    let places = over_all.into_iter().chain(report.late_paths());
    let places: Vec<_> =
        places.map(|(name, late)| format!("{} us on {name}", late.p999.as_micros())).collect();
    (!places.is_empty()).then(|| format!(
        "The emulation was late: 99.9th percentile {}; limit {} us. The machine was too busy: do not trust the figures of these paths. \
         Use fewer lanes.",
        places.join(", "),
        LATENESS_MAX.as_micros()
    ))
}

fn missing(report: &Report) -> Option<String> {
    let of = |(name, late): (&str, Lateness)| {
        format!("{} of {} on {name}", late.missed, late.missed + late.packets)
    };
    let places: Vec<_> = report.missing_paths().map(of).collect();
    (!places.is_empty()).then(|| format!(
        "The emulator itself lost packets: {}; limit one in {}. Do not trust the figures of these paths. Use fewer lanes.",
        places.join(", "),
        1.0 / MISSED_MAX
    ))
}
