//! Measures every path of a scenario and prints what was asked for beside what there is.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;
use thalweg_lab::check::{Verdict, check_rate, judge, measure};
use thalweg_lab::emulation::{Emulation, Ending, Side};
use thalweg_lab::scenario::Scenario;

/// The version of the JSON.
const VERSION: u32 = 1;
/// Characters of the bar.
const BAR_LENGTH: usize = 30;

/// One thing that was asked for of one direction.
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

/// Exit status 1 if a path is not what it says.
pub(super) fn run(scenario: &Scenario, is_json: bool) -> anyhow::Result<ExitCode> {
    for path in &scenario.paths {
        for (way, direction) in [("down", &path.down), ("up", &path.up)] {
            check_rate(direction).map_err(|why| anyhow!("{} {way}: {why}", path.name))?;
        }
    }
    let ending = Ending::prepare()?;
    let emulation = Emulation::start(scenario)?;
    let _ends = ending.of(&emulation);
    if !is_json {
        print(&format!("{:<14}{:<6}{:<12}{:>22}{:>16}\n", "path", "way", "", "asked", "measured"));
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
    let word = if *is_met { "" } else { "  off" };
    format!("{path:<14}{way:<6}{what:<12}{asked:>22}{:>16}{word}\n", format!("{measured:.2}{unit}"))
}

/// A reader that has gone, such as `head`, has what it wanted.
fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// How far it is, on a terminal alone, in a line that the next output takes.
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
