//! What a comparison of congestion control has found: a table, charts, and the samples.

use std::fmt::Write as _;

use serde::Serialize;

use super::chart::{Axes, Line, Point, cumulative, lines, medians};
use super::{Page, published};
use crate::cc::statistics::{Summary, is_below, summarise};
use crate::cc::{Ask, Cell, Report, SLICE, Sample};
use crate::emulation::LATENESS_MAX;
use crate::reproduce::Headline;

/// The version of the JSON.
const VERSION: u32 = 1;

/// One field of the matrix, summarised.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// Its times to fetch, in seconds.
    pub time_s: Summary,
    /// TCP segments sent again, on average.
    pub retransmits: f64,
    /// Whether its mean is the least of those it is compared with.
    pub is_best: bool,
    /// Whether it is so by more than chance, against each of them.
    pub wins: bool,
}

/// All fields of the matrix that have samples, in their order.
pub fn rows(report: &Report) -> Vec<Row> {
    let seconds = |cell: &Cell| -> Vec<f64> {
        report.samples.get(cell).into_iter().flatten().map(|sample| sample.total.as_secs_f64()).collect()
    };
    let cells = report.plan.cells().filter(|cell| report.samples.contains_key(cell));
    cells
        .map(|cell| {
            let own = seconds(&cell);
            let samples = &report.samples[&cell];
            let others = report.plan.algorithms.iter().filter(|other| **other != cell.algorithm);
            let others: Vec<_> = others
                .map(|algorithm| seconds(&Cell { algorithm: algorithm.clone(), ..cell.clone() }))
                .collect();
            let time_s = summarise(&own);
            let is_less =
                |other: &Vec<f64>| other.is_empty() || summarise(other).mean.mean > time_s.mean.mean;
            let retransmits = samples.iter().map(|sample| sample.retransmits as f64).sum::<f64>();
            Row {
                retransmits: retransmits / samples.len() as f64,
                is_best: others.iter().all(is_less),
                wins: !others.is_empty() && others.iter().all(|other| is_below(&own, other)),
                time_s,
                cell,
            }
        })
        .collect()
}

fn path_name<'a>(report: &'a Report, cell: &Cell) -> &'a str {
    &report.plan.scenario.paths[cell.path].name
}

const COLUMNS: [&str; 9] =
    ["path", "size", "algorithm", "samples", "mean s", "median s", "p90 s", "p99 s", "retransmits"];

fn words(report: &Report, row: &Row) -> Vec<String> {
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let mean = match row.time_s.mean.margin {
        Some(margin) => format!("{:.3} ± {margin:.3}", row.time_s.mean.mean),
        None => format!("{:.3}", row.time_s.mean.mean),
    };
    vec![
        path_name(report, &row.cell).to_owned(),
        row.cell.ask.name(),
        row.cell.algorithm.clone(),
        row.time_s.samples.to_string(),
        mean,
        seconds(Some(row.time_s.median)),
        seconds(row.time_s.p90),
        seconds(row.time_s.p99),
        format!("{:.1}", row.retransmits),
    ]
}

/// The table for a terminal.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String], end: &str| {
        let _ = write!(text, "{:<14}{:<13}{:<11}", cells[0], cells[1], cells[2]);
        let _ = writeln!(
            text,
            "{:>8}{:>18}{:>10}{:>9}{:>9}{:>13}{end}",
            cells[3], cells[4], cells[5], cells[6], cells[7], cells[8]
        );
    };
    line(&COLUMNS.map(str::to_owned), "");
    for row in rows(report) {
        line(&words(report, &row), verdict(&row));
    }
    if !report.is_on_time() {
        text += &late(report);
        text.push('\n');
    }
    text
}

fn verdict(row: &Row) -> &'static str {
    match (row.wins, row.is_best) {
        (true, _) => "  wins",
        (false, true) => "  best, within chance",
        _ => "",
    }
}

fn late(report: &Report) -> String {
    format!(
        "The emulation was late: {} us at the 99.9th percentile, over {} us. The machine was too busy: these figures are not to be \
         trusted. Use fewer lanes.",
        report.lateness.as_micros(),
        LATENESS_MAX.as_micros()
    )
}

/// The page of a comparison.
pub fn page(report: &Report) -> String {
    let mut page = Page::new("Congestion control compared");
    all(&mut page, report);
    page.finish()
}

/// The page of a publication: its headlines, and what it left open, before the comparison.
pub fn page_of(report: &Report, title: &str, open: &str, headlines: &[Headline]) -> String {
    let mut page = published(title, open, headlines);
    all(&mut page, report);
    page.finish()
}

fn all(page: &mut Page, report: &Report) {
    let plan = &report.plan;
    if !report.is_on_time() {
        page.paragraph("warning", &late(report));
    }
    page.paragraph(
        "note",
        &format!(
            "Time to fetch, from the first SYN to the last byte, over emulated paths from one edge; a connection of its own for each \
             sample, {} samples of each field in rounds of random order, {} lanes a path, seed {}. Means with their 95 % interval by \
             Student's t; an algorithm wins where Welch's interval of the difference to each other leaves zero out. A 90th percentile \
             needs 36 samples, a 99th 368. Retransmits are the kernel's count at the end of a response.",
            plan.samples, plan.lanes, plan.scenario.seed
        ),
    );
    let rows = rows(report);
    let mut columns = COLUMNS.to_vec();
    columns.push("");
    let set_off = |row: &Row| {
        let mut cells = words(report, row);
        cells.push(verdict(row).trim().to_owned());
        if row.wins {
            cells.iter_mut().for_each(|cell| cell.insert(0, '*'));
        }
        cells
    };
    page.table(&columns, &rows.iter().map(set_off).collect::<Vec<_>>());
    for ask in &plan.asks {
        sweep(page, report, *ask, &rows);
    }
    for (index, path) in plan.scenario.paths.iter().enumerate() {
        for ask in &plan.asks {
            page.heading(&format!("{}, {}", path.name, ask.name()));
            of_cell(page, report, index, *ask);
        }
    }
}

/// Mean over loss, where paths differ in that.
fn sweep(page: &mut Page, report: &Report, ask: Ask, rows: &[Row]) {
    let loss = |cell: &Cell| report.plan.scenario.paths[cell.path].down.loss.mean() * 100.0;
    let of = |algorithm: &String| {
        let mut points: Vec<Point> = rows
            .iter()
            .filter(|row| row.cell.ask == ask && row.cell.algorithm == *algorithm)
            .map(|row| {
                let mean = row.time_s.mean;
                let margin = mean.margin.unwrap_or_default();
                let band = ((mean.mean - margin).max(0.0), mean.mean + margin);
                Point { x: loss(&row.cell), y: mean.mean, band }
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name: algorithm.clone(), points }
    };
    let all: Vec<Line> = report.plan.algorithms.iter().map(of).collect();
    let differs = all.iter().any(|line| line.points.windows(2).any(|two| two[0].x != two[1].x));
    if differs {
        page.heading(&format!("Loss, {}", ask.name()));
        let axes = Axes { title: "Mean time to fetch, with its 95 % interval", x: "loss, %", y: "seconds" };
        page.chart(&lines(axes, &all));
    }
}

fn of_cell(page: &mut Page, report: &Report, path: usize, ask: Ask) {
    let samples = |algorithm: &String| {
        report.samples.get(&Cell { path, ask, algorithm: algorithm.clone() }).map_or(&[][..], Vec::as_slice)
    };
    let with = || report.plan.algorithms.iter().filter(|algorithm| !samples(algorithm).is_empty());
    let times = with().map(|algorithm| {
        let seconds: Vec<f64> = samples(algorithm).iter().map(|sample| sample.total.as_secs_f64()).collect();
        cumulative(algorithm, &seconds)
    });
    let axes = Axes { title: "Share of samples fetched, with its 95 % band", x: "seconds", y: "share" };
    page.chart(&lines(axes, &times.collect::<Vec<_>>()));
    let rates = with().map(|algorithm| {
        let rates: Vec<Vec<f64>> = samples(algorithm).iter().map(mbit_per_s).collect();
        medians(algorithm, RATE_STEP as f64 * SLICE.as_secs_f64(), &rates)
    });
    let axes = Axes {
        title: "Goodput over time: median and quartiles",
        x: "seconds from the first SYN",
        y: "Mbit/s",
    };
    page.chart(&lines(axes, &rates.collect::<Vec<_>>()));
}

/// Slices that one point of goodput takes together.
const RATE_STEP: usize = 4;

/// The goodput of a response in each step of time.
fn mbit_per_s(sample: &Sample) -> Vec<f64> {
    let mut before = 0;
    let steps = sample.progress.chunks(RATE_STEP).map(|step| {
        let last = *step.last().expect("chunks have at least one");
        let bytes = last - std::mem::replace(&mut before, last);
        bytes as f64 * 8.0 / 1e6 / (RATE_STEP as f64 * SLICE.as_secs_f64())
    });
    steps.collect()
}

/// The samples as CSV, one a line.
pub fn csv(report: &Report) -> String {
    let mut text = "path,size_bytes,range,algorithm,total_us,connect_us,ttfb_us,retransmits\n".to_owned();
    for (cell, samples) in &report.samples {
        for sample in samples {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{}",
                path_name(report, cell).replace([',', '"', '\n'], " "),
                cell.ask.bytes,
                cell.ask.is_range,
                cell.algorithm,
                sample.total.as_micros(),
                sample.connect.as_micros(),
                sample.ttfb.as_micros(),
                sample.retransmits
            );
        }
    }
    text
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    seed: u64,
    lanes: usize,
    lateness_us: u64,
    is_on_time: bool,
    rows: Vec<DocumentRow<'a>>,
}

#[derive(Serialize)]
struct DocumentRow<'a> {
    path: &'a str,
    size_bytes: u64,
    is_range: bool,
    algorithm: &'a str,
    samples: usize,
    mean_s: f64,
    margin_s: Option<f64>,
    median_s: f64,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
    retransmits_mean: f64,
    wins: bool,
}

/// The table as JSON.
pub fn json(report: &Report) -> String {
    let rows = rows(report);
    let rows = rows.iter().map(|row| DocumentRow {
        path: path_name(report, &row.cell),
        size_bytes: row.cell.ask.bytes,
        is_range: row.cell.ask.is_range,
        algorithm: &row.cell.algorithm,
        samples: row.time_s.samples,
        mean_s: row.time_s.mean.mean,
        margin_s: row.time_s.mean.margin,
        median_s: row.time_s.median,
        p90_s: row.time_s.p90,
        p99_s: row.time_s.p99,
        retransmits_mean: row.retransmits,
        wins: row.wins,
    });
    let document = Document {
        version: VERSION,
        seed: report.plan.scenario.seed,
        lanes: report.plan.lanes,
        lateness_us: u64::try_from(report.lateness.as_micros()).unwrap_or(u64::MAX),
        is_on_time: report.is_on_time(),
        rows: rows.collect(),
    };
    serde_json::to_string_pretty(&document).expect("numbers and texts are JSON") + "\n"
}
