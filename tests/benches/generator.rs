//! Compares the load generator with wrk: CPU time per request, for the same requests to the same
//! edge. Both run in turn on the same core.
//!
//! ```text
//! make bench-load
//! ```
//!
//! A generator's rate per core is its number of requests divided by its own CPU time, user and
//! system. Dividing by wall-clock time would measure the server instead.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic ends the benchmark")]

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use support::{CLIENT_CORE, Scratch, free_address, start_edge, start_other, target_directory};

/// Number of turns per generator, and the duration of a turn.
const ROUNDS: usize = 5;
const TURN: &str = "3s";
/// Cases: name, content bytes, connections, and target rate as a multiple of wrk's.
const CASES: [(&str, u64, u32, f64); 2] = [("1 KB", 1000, 50, 1.5), ("1.2 MB", 1_200_000, 10, 2.0)];

fn main() -> Result<()> {
    let lab = lab()?;
    let scratch = Scratch::new(&std::env::temp_dir(), "generator")?;
    let origin = free_address()?;
    let arguments = ["load", "serve", "--threads", "1", "--listen", &origin.to_string()].map(str::to_owned);
    let _origin = start_other(&lab.display().to_string(), &arguments, origin, &scratch.0.join("origin"))?;
    let edge = start_edge(origin, &[])?;
    println!("{:<8}{:>16}{:>16}{:>24}{:>8}", "", "thalweg-lab", "wrk", "rate per core by wrk's", "target");
    for (name, bytes, connections, target) in CASES {
        let url = format!("http://{}/content?bytes={bytes}", edge.address);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push((ours(&lab, &url, connections)?, wrk(&url, connections)?));
        }
        let ratios = spread(rounds.iter().map(|(ours, wrk)| wrk / ours));
        println!(
            "{name:<8}{:>13.2} us{:>13.2} us{:>9.2} ({:.2} to {:.2}){target:>8}",
            spread(rounds.iter().map(|(ours, _)| *ours)).1,
            spread(rounds.iter().map(|(_, wrk)| *wrk)).1,
            ratios.1,
            ratios.0,
            ratios.2,
        );
    }
    println!(
        "CPU time per request of each generator, and the ratio with its range: medians of {ROUNDS} turns of {TURN}"
    );
    Ok(())
}

/// Returns the path of the lab's release build.
fn lab() -> Result<PathBuf> {
    let program = target_directory()?.join("release/thalweg-lab");
    ensure!(program.exists(), "{} is not built: make lab", program.display());
    Ok(program)
}

/// Runs the load generator; returns its CPU time per request, in microseconds.
fn ours(lab: &Path, url: &str, connections: u32) -> Result<f64> {
    let lab = lab.display();
    let report = timed(&format!("{lab} load --threads 1 --clients {connections} --duration {TURN} {url}"))?;
    per_request(&report)
}

/// Runs wrk; returns its CPU time per request, in microseconds.
fn wrk(url: &str, connections: u32) -> Result<f64> {
    per_request(&timed(&format!("wrk --threads 1 --connections {connections} --duration {TURN} {url}"))?)
}

/// Runs a command; returns its output, and its CPU time in seconds.
fn timed(command: &str) -> Result<(String, f64)> {
    let script = format!("TIMEFORMAT='cpu %U %S'; time taskset -c {CLIENT_CORE} {command}");
    let output = Command::new("bash").args(["-c", &script]).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    if !output.status.success() {
        bail!("{command}: {err}{out}; if a program is missing, run tools/setup bench");
    }
    let cpu = err.lines().find_map(|line| line.strip_prefix("cpu ")).context("bash printed no time")?;
    let spent_s = cpu.split(' ').map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok((out, spent_s))
}

/// Returns the CPU time per request, in microseconds. Both generators print the number of requests
/// before the words "requests in".
fn per_request((report, spent_s): &(String, f64)) -> Result<f64> {
    let requests = report.split_once(" requests in ").context("no \"requests in\"")?.0;
    let requests: f64 = requests
        .rsplit(['\n', ' '])
        .find(|word| !word.is_empty())
        .context("no number of requests")?
        .parse()?;
    Ok(spent_s * 1e6 / requests)
}

/// Returns minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}
