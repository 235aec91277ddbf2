//! `paths check`: measures every path in a scenario and prints expected and measured values side by
//! side.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;
use thalweg_netem::check::{Verdict, check_rate, judge, measure};
use thalweg_netem::emulation::{Emulation, Side, SignalSetup};
use thalweg_netem::scenario::Scenario;
use thalweg_units::table::{self, Column};

use crate::results::print;

/// Version of the JSON format.
const VERSION: u32 = 1;
/// Width of the progress bar in columns.
const BAR_LENGTH: usize = 30;

/// The verdict on one property of one direction of a path.
#[derive(Debug, Serialize)]
struct Row<'a> {
    path: &'a str,
    way: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    is_met: bool,
    rows: &'a [Row<'a>],
}

/// Columns of fixed width, so that each row can be printed as soon as its value is measured.
const COLUMNS: [Column<'_>; 6] = [
    Column::text("path").wide(12),
    Column::text("way").wide(4),
    Column::text("").wide(10),
    Column::number("asked").wide(20),
    Column::number("measured").wide(14),
    Column::text(""),
];

/// Measures all paths and prints the verdicts. Returns exit status 1 if a path fails.
pub(super) fn run(scenario: &Scenario, is_json: bool) -> anyhow::Result<ExitCode> {
    for path in &scenario.paths {
        for (way, direction) in [("down", &path.down), ("up", &path.up)] {
            check_rate(direction).map_err(|why| anyhow!("{} {way}: {why}", path.name))?;
        }
    }
    let signals = SignalSetup::install()?;
    let emulation = Emulation::start(scenario)?;
    let _handler = signals.attach(&emulation);
    if !is_json {
        print(&(table::line(&COLUMNS, COLUMNS.map(|column| column.name)) + "\n"));
    }
    let all = scenario.paths.len() * 2;
    let mut rows = Vec::new();
    for (index, path) in scenario.paths.iter().enumerate() {
        let ways = [("down", Side::Server, &path.down), ("up", Side::Clients, &path.up)];
        for ((way, side, direction), number) in ways.into_iter().zip(0..) {
            bar(index * 2 + number, all, &format!("{} {way}", path.name));
            let measured =
                measure(&emulation, index, side).with_context(|| format!("{} {way}", path.name))?;
            erase_bar();
            for verdict in judge(direction, &measured) {
                let row = Row { path: &path.name, way, verdict };
                if !is_json {
                    print(&line(&row));
                }
                rows.push(row);
            }
        }
    }
    let is_met = rows.iter().all(|row| row.verdict.is_met);
    if is_json {
        let document = Document { version: VERSION, is_met, rows: &rows };
        print(&(serde_json::to_string_pretty(&document)? + "\n"));
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(Row { path, way, verdict }: &Row<'_>) -> String {
    let Verdict { what, unit, asked, allowed, measured, is_met } = verdict;
    let asked = format!("{asked:.2}{unit} ± {allowed:.2}");
    let (measured, word) = (format!("{measured:.2}{unit}"), if *is_met { "" } else { "off" });
    table::line(&COLUMNS, [*path, *way, *what, &asked, &measured, word]) + "\n"
}

/// Shows progress on a terminal, to be overwritten by the next output.
fn bar(done: usize, all: usize, now: &str) {
    if stderr().is_terminal() {
        let full = BAR_LENGTH * done / all;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_LENGTH - full));
        let _ = write!(stderr(), "\r\x1b[K[{bar}] {done} of {all}, now {now}");
    }
}

fn erase_bar() {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
