//! `thalweg controller simulate`: simulates a day and scores the controller's decisions.

use std::io::{IsTerminal, Write as _, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use thalweg_bundle::Share;
use thalweg_control::Settings;
use thalweg_control::simulate::{POPS_MAX, Plan, Report, Row, Tally, WINDOWS_MAX, simulate};
use thalweg_units::table::Table;

use crate::print_stdout;

/// Interval between progress updates on a terminal.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// Parameters of the simulation.
#[derive(Debug, clap::Args)]
pub struct SimulateFlags {
    /// Number of PoPs
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=POPS_MAX as u64))]
    pops: u64,
    /// Prefixes per PoP
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=thalweg_control::PREFIXES_MAX as u64))]
    prefixes: u64,
    /// Number of five-minute windows; 288 make a day
    #[arg(long, value_name = "N", default_value_t = 288)]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=WINDOWS_MAX))]
    windows: u64,
    /// Random seed; each seed gives a different day
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Mean connections per prefix and window at the busiest hour
    #[arg(long, value_name = "N", default_value_t = Plan::default().connections_per_prefix, value_parser = positive)]
    connections: f64,
    /// Share of connections held out in a prefix on trial, 0.01 to 0.9
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().holdout_trial.number())]
    holdout_trial: f64,
    /// Share of prefixes whose BBR effect is redrawn within a day
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().changes_per_day, value_parser = share)]
    changes: f64,
    /// Share of prefixes that gain from BBR if slow and lose if fast; in the rest, gains are random
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().slowness, value_parser = share)]
    slowness: f64,
    /// Share of connections that stall, which adds one-sided, heavy-tailed noise
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().stalls, value_parser = share)]
    stalls: f64,
    /// Share of connections with a socket sample
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().sampled, value_parser = share)]
    sampled: f64,
    /// Number of windows after a decision until the edges apply it
    #[arg(long, value_name = "N", default_value_t = Plan::default().delay_windows as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=12))]
    delay: u64,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Parses a number from 0.001 to 1000.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=1_000.0).contains(number));
    number.ok_or_else(|| "must be a number from 0.001 to 1000".to_owned())
}

/// Parses a number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// Simulates one PoP per core at a time, and prints the result.
///
/// # Errors
///
/// Returns an error if a setting is out of bounds.
pub fn run(flags: &SimulateFlags) -> anyhow::Result<()> {
    let plan = Plan {
        pops: usize::try_from(flags.pops)?,
        prefixes: usize::try_from(flags.prefixes)?,
        windows: flags.windows,
        seed: flags.seed,
        connections_per_prefix: flags.connections,
        changes_per_day: flags.changes,
        slowness: flags.slowness,
        stalls: flags.stalls,
        sampled: flags.sampled,
        delay_windows: usize::try_from(flags.delay)?,
        ..Plan::default()
    };
    let holdout_trial = Share::from_number(flags.holdout_trial)
        .filter(|share| *share > Share::default())
        .context("--holdout-trial must be above 0 and have at most six decimals")?;
    let settings = Settings { holdout_trial, ..Settings::default() };
    if let Some(fault) = settings.check().first() {
        anyhow::bail!("{fault}");
    }
    let start = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let report = simulate_all(&plan, &settings, threads)?;
    if flags.json {
        let figures = serde_json::json!({ "report": report, "rows": report.rows() });
        print_stdout(&format!("{figures}\n"));
    } else {
        print_stdout(&human(&report, start.elapsed()));
    }
    Ok(())
}

fn simulate_all(plan: &Plan, settings: &Settings, threads: usize) -> anyhow::Result<Report> {
    let (next, windows) = (AtomicUsize::new(0), AtomicU64::new(0));
    let reports = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let work = || {
            loop {
                let pop = next.fetch_add(1, Relaxed);
                if pop >= plan.pops {
                    return;
                }
                let mut progress = || {
                    windows.fetch_add(1, Relaxed);
                    true
                };
                if let Some(report) = simulate(plan, settings, pop, &mut progress) {
                    let mut reports = reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    reports.push((pop, report));
                }
            }
        };
        let workers: Vec<_> = (0..threads.min(plan.pops)).map(|_| scope.spawn(work)).collect();
        let all = 2 * plan.windows * plan.pops as u64;
        while stderr().is_terminal() && !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            eprint!("\rsimulated {} %", windows.load(Relaxed) * 100 / all);
            let _ = stderr().flush();
            thread::sleep(PROGRESS_PERIOD);
        }
        if stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A floating-point sum depends on the order of its terms, so sort the reports.
    reports.sort_by_key(|(pop, _)| *pop);
    let mut reports = reports.into_iter().map(|(_, report)| report);
    let mut sum = reports.next().context("no PoP was simulated")?;
    reports.for_each(|report| sum.add(&report));
    Ok(sum)
}

/// Formats a line about the plan, and a row for each policy compared.
fn human(report: &Report, took: Duration) -> String {
    let Plan { pops, prefixes, windows, seed, .. } = report.plan;
    let mut text = format!(
        "{pops} PoPs of {prefixes} prefixes over {windows} windows, seed {seed}: {:.0} million connections, in {:.0} s\n\n",
        report.with_proof.connections / 1e6,
        took.as_secs_f64()
    );
    let heading = [
        "WAY", "GOODPUT", "LATE", "REGRET", "HELPED", "FALSE", "RECALL", "OF CONNS", "HARMED", "STEERED",
        "NEW", "KEPT",
    ];
    let mut table = Table::of_texts(heading);
    report.rows().iter().for_each(|row| table.push(cells(row)));
    text.push_str(&table.to_string());
    text.push_str(&reversals(&report.with_proof));
    text.push_str(
        "\nGOODPUT: geometric mean over connections, relative to all CUBIC. LATE: goodput in the last quarter of the\n\
         windows, as in all further columns. REGRET: distance from the capped oracle. HELPED: share of steered prefixes\n\
         that gain more than 10 %. FALSE: share of declared discoveries, over all windows, that were false. RECALL:\n\
         share of prefixes gaining that much that are steered; OF CONNS: share of their connections. HARMED: share of all\n\
         connections steered in prefixes that lose more than 10 %. STEERED, NEW: prefixes per PoP, and those entering\n\
         per round. KEPT: share of steered prefixes that remain steered in the next round.\n",
    );
    text
}

/// Formats a line about prefixes whose effect turned from a gain to a loss.
fn reversals(tally: &Tally) -> String {
    let Tally { declared, false_discoveries, reversals, .. } = tally;
    let mut text = format!(
        "\nWith proof, {declared} prefixes were declared helped, {false_discoveries} of them falsely. "
    );
    let withdrawn = reversals.withdrawn.len();
    text.push_str(&format!("Of those later harmed, {withdrawn} were withdrawn"));
    let within = [0.5, 0.9, 1.0].map(|share| reversals.windows(share));
    if let ([Some(half), Some(most), Some(all)], Some(connections)) = (within, reversals.connections()) {
        text.push_str(&format!(
            ",\nhalf of them within {half} windows ({connections} connections), nine in ten within {most}, all within {all}"
        ));
    }
    text.push_str(&format!("; {} are still steered at the end.\n", reversals.open));
    text
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |part: f64| format!("{:+.2} %", part * 100.0);
    let part = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
    let count = |count: Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.1}"));
    vec![
        row.name.to_owned(),
        percent(row.goodput),
        percent(row.late_goodput),
        percent(row.late_regret),
        part(row.precision),
        part(row.false_discoveries),
        part(row.recall),
        part(row.recall_connections),
        part(row.harmed_connections),
        count(row.steered),
        count(row.entered),
        part(row.kept),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Plan {
        Plan { pops: 3, prefixes: 60, windows: 8, ..Plan::default() }
    }

    #[test]
    fn table_has_a_row_for_each_policy_and_a_cell_for_each_column() {
        let report = simulate_all(&small(), &Settings::default(), 2).unwrap();
        let text = human(&report, Duration::from_secs(2));
        assert!(text.starts_with("3 PoPs of 60 prefixes over 8 windows, seed 1: "), "{text}");
        let table: Vec<_> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        let ways: Vec<_> = table.iter().map(|line| line.split("  ").next().unwrap()).collect();
        let expected =
            ["WAY", "oracle", "oracle, capped", "with proof", "duty cycle alone", "all bbr", "all cubic"];
        assert_eq!(ways, expected, "{text}");
        assert!(table[6].contains("+0.00 %"), "{text}");
    }

    #[test]
    fn result_does_not_depend_on_the_number_of_threads() {
        let run = |threads| simulate_all(&small(), &Settings::default(), threads).unwrap();
        let one = run(1);
        assert_eq!((one == run(2), one == run(3)), (true, true));
    }
}
