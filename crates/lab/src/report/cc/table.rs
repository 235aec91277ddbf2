//! The table of a comparison for a terminal, and the words and notes that the page has too.

use std::fmt::Write as _;

use super::{Row, path_name, rows};
use crate::cc::Report;
use crate::emulation::{LATENESS_MAX, Lateness, MISSED_MAX};
use crate::scenario::Path;

/// What stands above the words of a row.
pub(super) const COLUMNS: [&str; 11] = [
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
];
/// So many columns are texts, and begin at their left.
const TEXTS: usize = 3;
/// What is not there.
const NONE: &str = "-";

/// A row in words, of these columns.
pub(super) fn words(report: &Report, row: &Row) -> [String; COLUMNS.len()] {
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
    };
    let time = row.time_s.as_ref();
    let mean = number(time.map(|time| time.mean.mean), 3);
    let margin = time.and_then(|time| time.mean.margin);
    [
        path_name(report, &row.cell).to_owned(),
        row.cell.ask.name(),
        row.cell.algorithm.clone(),
        time.map_or(0, |time| time.samples).to_string(),
        if row.failed > 0 { row.failed.to_string() } else { NONE.to_owned() },
        margin.map_or(mean.clone(), |margin| format!("{mean} ± {margin:.3}")),
        number(row.times_best, 2),
        number(time.map(|time| time.median), 3),
        number(time.and_then(|time| time.p90), 3),
        number(time.and_then(|time| time.p99), 3),
        number(row.retransmits, 1),
    ]
}

/// Who wins.
pub(super) fn verdict(row: &Row) -> &'static str {
    match row {
        Row { time_s: None, .. } => "no sample",
        Row { wins: true, .. } => "wins",
        Row { is_best: true, .. } => "best",
        _ => "",
    }
}

/// The columns in which any of these rows has something.
pub(super) fn shown(rows: &[[String; COLUMNS.len()]]) -> Vec<usize> {
    (0..COLUMNS.len()).filter(|column| rows.iter().any(|cells| cells[*column] != NONE)).collect()
}

/// The table for a terminal.
pub fn table(report: &Report) -> String {
    let rows = rows(report);
    let mut lines: Vec<_> = rows.iter().map(|row| words(report, row)).collect();
    let shown = shown(&lines);
    lines.insert(0, COLUMNS.map(str::to_owned));
    let width =
        |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    let mut text = conditions(report).join("\n") + "\n\n";
    let mut group = None;
    for (cells, verdict) in lines.iter().zip(std::iter::once("").chain(rows.iter().map(verdict))) {
        // Those that are compared with each other stand together.
        if group.is_some_and(|group| group != &cells[..2]) && group != Some(&lines[0][..2]) {
            text.push('\n');
        }
        group = Some(&cells[..2]);
        let mut line = String::new();
        for column in shown.iter().copied() {
            let (cell, width) = (&cells[column], widths[column]);
            let _ = if column < TEXTS {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += (line + verdict).trim_end();
        text.push('\n');
    }
    for note in [footnotes(&rows).join("\n"), warnings(report).join("\n")] {
        if !note.is_empty() {
            let _ = write!(text, "\n{note}\n");
        }
    }
    text
}

/// What each path is, towards the clients.
pub(super) fn conditions(report: &Report) -> Vec<String> {
    let of = |path: &Path| {
        let rate = path.down.capacity.mean_bits_per_s().map_or_else(
            || "no limit of the rate".to_owned(),
            |rate| format!("{} Mbit/s, queue {} kB", rate.round() / 1e6, path.down.queue.bytes / 1000),
        );
        let loss = (path.down.loss.mean() * 1e6).round() / 1e4;
        format!("{}: round trip {} ms, {rate}, loss {loss} %", path.name, path.round_trip_min().as_millis())
    };
    report.plan.scenario.paths.iter().map(of).collect()
}

/// What the figures and words of the table mean.
pub(super) fn footnotes(rows: &[Row]) -> Vec<&'static str> {
    let mut notes = vec![
        "Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t); nineteen of twenty hold the true mean.",
    ];
    if rows.iter().any(|row| row.wins) {
        notes.push(
            "wins: the least mean, below each other by more than chance (Welch's 95 % interval of each difference leaves zero out).",
        );
    }
    if rows.iter().any(|row| row.is_best && !row.wins) {
        notes.push(
            "best: the least mean, but no win: by chance another may be as good, or samples failed or were cut off. More samples may tell.",
        );
    }
    if rows.iter().any(|row| row.failed > 0) {
        notes.push(
            "failed: in no mean. Who gave up waiting would have been the slowest, so that a mean beside failures is too low.",
        );
    }
    notes
}

/// Why not all of it is there, or not to be trusted.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(signal) = report.interrupted {
        warnings.push(format!(
            "Interrupted by signal {signal}: {} of {} samples were taken. Those under way are not among them, and the slow ones are under way \
             longest: nothing is said to win.",
            report.taken(),
            report.asked()
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
        let (path, size, algorithm) = (path_name(report, cell), cell.ask.name(), &cell.algorithm);
        let first = failures.first().map_or("", String::as_str);
        format!("{path}, {size}, {algorithm}: {} ({first})", failures.len())
    };
    let cells: Vec<_> = report.failures.iter().map(of_cell).collect();
    format!(
        "{} of {} samples failed, here with the first reason: {}.",
        report.failed(),
        report.asked(),
        cells.join("; ")
    )
}

fn late(report: &Report) -> Option<String> {
    let over_all = (report.lateness.p999 > LATENESS_MAX).then_some(("all paths together", report.lateness));
    let places = over_all.into_iter().chain(report.late_paths());
    let places: Vec<_> =
        places.map(|(name, late)| format!("{} us on {name}", late.p999.as_micros())).collect();
    (!places.is_empty()).then(|| format!(
        "The emulation was late at the 99.9th percentile: {}; at most {} us are allowed. The machine was too busy: figures of these paths \
         are not to be trusted. Use fewer lanes.",
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
        "The emulator itself lost packets: {}; one of {} is allowed. Figures of these paths are not to be trusted. Use fewer lanes.",
        places.join(", "),
        1.0 / MISSED_MAX
    ))
}
