//! Measures every path of a scenario and prints what was asked for beside what there is.

use std::process::ExitCode;

use anyhow::Context;
use thalweg_lab::check::{judge, measure};
use thalweg_lab::emulation::{Emulation, Side};
use thalweg_lab::scenario::Scenario;

/// Exit status 1 if a path is not what it says.
pub(super) fn run(scenario: &Scenario) -> anyhow::Result<ExitCode> {
    let emulation = Emulation::start(scenario)?;
    emulation.end_on_signals()?;
    println!("{:<14}{:<6}{:<12}{:>20}{:>16}", "path", "way", "", "asked", "measured");
    let mut is_met = true;
    for (index, path) in scenario.paths.iter().enumerate() {
        for (name, side, direction) in [("down", Side::Server, &path.down), ("up", Side::Clients, &path.up)] {
            let measured =
                measure(&emulation, index, side).with_context(|| format!("{} {name}", path.name))?;
            for verdict in judge(direction, &measured) {
                let word = if verdict.is_met { "" } else { "  off" };
                println!(
                    "{:<14}{name:<6}{:<12}{:>20}{:>16}{word}",
                    path.name, verdict.what, verdict.asked, verdict.measured
                );
                is_met &= verdict.is_met;
            }
        }
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
