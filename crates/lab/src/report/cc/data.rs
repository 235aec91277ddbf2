//! Machine-readable results of a comparison: samples as CSV, the table as JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;
use thalweg_netem::emulation::Lateness;

use super::{Row, path_name, rows};
use crate::cc::{Cell, Report};
use crate::report::{DocumentHeadline, document_headlines};
use crate::reproduce::Headline;

/// Version of the JSON format.
const VERSION: u32 = 3;

/// Renders the samples as CSV, one per line. Failed samples follow, with a reason instead of
/// figures.
pub fn csv(report: &Report) -> String {
    let mut text =
        "path,size_bytes,range,algorithm,total_us,connect_us,ttfb_us,retransmits,edge_bytes_per_s,failure\n"
            .to_owned();
    let cell_fields = |cell: &Cell| {
        let path = field(path_name(report, cell));
        format!("{path},{},{},{}", cell.request.bytes, cell.request.is_range, field(&cell.algorithm))
    };
    for (cell, samples) in &report.samples {
        let cell = cell_fields(cell);
        for sample in samples {
            let [total, connect, ttfb] =
                [sample.total, sample.connect, sample.ttfb].map(|time| time.as_micros());
            let edge = sample.edge_bytes_per_s.map(|rate| rate.to_string()).unwrap_or_default();
            let _ = writeln!(text, "{cell},{total},{connect},{ttfb},{},{edge},", sample.retransmits);
        }
    }
    for (cell, failures) in &report.failures {
        let cell = cell_fields(cell);
        for failure in failures {
            let _ = writeln!(text, "{cell},,,,,,{}", field(failure));
        }
    }
    text
}

/// Quotes a CSV field as RFC 4180 requires.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    seed: u64,
    lanes: usize,
    samples_asked: usize,
    samples_taken: usize,
    samples_failed: usize,
    interrupted_by_signal: Option<i32>,
    lateness_us: u64,
    is_on_time: bool,
    /// Headlines of the publication; empty for other comparisons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headlines: Vec<DocumentHeadline>,
    paths: Vec<DocumentPath<'a>>,
    rows: Vec<DocumentRow<'a>>,
}

#[derive(Serialize)]
struct DocumentPath<'a> {
    name: &'a str,
    packets: u64,
    lateness_us: u64,
    is_late: bool,
    packets_missed: u64,
}

/// A row of the table. Figures are null without samples.
#[derive(Serialize)]
struct DocumentRow<'a> {
    path: &'a str,
    size_bytes: u64,
    is_range: bool,
    algorithm: &'a str,
    samples: usize,
    failed: usize,
    first_failure: Option<&'a str>,
    mean_s: Option<f64>,
    margin_s: Option<f64>,
    median_s: Option<f64>,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
    times_best: Option<f64>,
    retransmits_mean: Option<f64>,
    edge_samples: usize,
    edge_agreeing: usize,
    edge_off_p50_ms: Option<f64>,
    edge_off_p95_ms: Option<f64>,
    edge_bias_ln: Option<f64>,
    wins: bool,
}

/// Renders the table as JSON, with a publication's headlines if any.
pub fn json(report: &Report, headlines: &[Headline]) -> String {
    let rows = rows(report);
    let document = Document {
        version: VERSION,
        seed: report.plan.scenario.seed,
        lanes: report.plan.lanes,
        samples_asked: report.planned(),
        samples_taken: report.taken(),
        samples_failed: report.failed(),
        interrupted_by_signal: report.interrupted,
        lateness_us: lateness_us(report.lateness),
        is_on_time: report.is_on_time(),
        headlines: document_headlines(headlines),
        paths: paths(report),
        rows: rows.iter().map(|row| document_row(report, row)).collect(),
    };
    serde_json::to_string_pretty(&document).expect("serializing numbers and strings cannot fail") + "\n"
}

fn paths(report: &Report) -> Vec<DocumentPath<'_>> {
    let paths = report.plan.scenario.paths.iter().zip(&report.paths);
    let paths = paths.map(|(path, late)| DocumentPath {
        name: &path.name,
        packets: late.packets,
        lateness_us: lateness_us(*late),
        is_late: late.is_late(),
        packets_missed: late.missed,
    });
    paths.collect()
}

fn lateness_us(lateness: Lateness) -> u64 {
    u64::try_from(lateness.p999.as_micros()).unwrap_or(u64::MAX)
}

fn document_row<'a>(report: &'a Report, row: &'a Row) -> DocumentRow<'a> {
    let time = row.time_s.as_ref();
    DocumentRow {
        path: path_name(report, &row.cell),
        size_bytes: row.cell.request.bytes,
        is_range: row.cell.request.is_range,
        algorithm: &row.cell.algorithm,
        samples: time.map_or(0, |time| time.samples),
        failed: row.failed,
        first_failure: row.first_failure.as_deref(),
        mean_s: time.map(|time| time.mean.mean),
        margin_s: time.and_then(|time| time.mean.margin),
        median_s: time.map(|time| time.median),
        p90_s: time.and_then(|time| time.p90),
        p99_s: time.and_then(|time| time.p99),
        times_best: row.times_best,
        retransmits_mean: row.retransmits,
        edge_samples: row.agreement.map_or(0, |it| it.measured),
        edge_agreeing: row.agreement.map_or(0, |it| it.agreeing),
        edge_off_p50_ms: row.agreement.map(|it| it.off_p50_ms),
        edge_off_p95_ms: row.agreement.and_then(|it| it.off_p95_ms),
        edge_bias_ln: row.agreement.map(|it| it.bias_ln),
        wins: row.wins,
    }
}
