//! `thalweg controller simulate`: a synthetic day, and how well the controller decides in it.

use std::io::{IsTerminal, Write as _, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use thalweg_bundle::Share;
use thalweg_control::Settings;
use thalweg_control::simulate::{POPS_MAX, Plan, Report, Row, Tally, WINDOWS_MAX, simulate};

use crate::print_or_gone;
use crate::query::table;

/// How often progress is told on a terminal.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// What is simulated.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateFlags {
    /// PoPs
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=POPS_MAX as u64))]
    pops: u64,
    /// Prefixes of each PoP
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=thalweg_control::PREFIXES_MAX as u64))]
    prefixes: u64,
    /// Windows of five minutes; 288 are a day
    #[arg(long, value_name = "N", default_value_t = 288)]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=WINDOWS_MAX))]
    windows: u64,
    /// Another seed makes another day
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Connections for each prefix and window at the busiest hour, on average over prefixes
    #[arg(long, value_name = "N", default_value_t = Plan::default().connections_per_prefix, value_parser = positive)]
    connections: f64,
    /// The share of connections held out in a prefix on trial, 0.01 to 0.9
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().holdout_trial.number())]
    holdout_trial: f64,
    /// The share of prefixes for which what BBR does is drawn anew within a day
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().changes_per_day, value_parser = share)]
    changes: f64,
    /// The share of prefixes that gain if they are slow and lose if they are fast; of the others chance decides
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().slowness, value_parser = share)]
    slowness: f64,
    /// The share of connections that something stalls: noise with a heavy tail on one side
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().stalls, value_parser = share)]
    stalls: f64,
    /// The share of connections with a sample of their socket
    #[arg(long, value_name = "SHARE", default_value_t = Plan::default().sampled, value_parser = share)]
    sampled: f64,
    /// Windows from a decision to when edges go by its bundle
    #[arg(long, value_name = "N", default_value_t = Plan::default().delay_windows as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=12))]
    delay: u64,
    /// Print the sums and figures as JSON
    #[arg(long)]
    json: bool,
}

/// A number above zero that is not beyond all use.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=1_000.0).contains(number));
    number.ok_or_else(|| "not a number from 0.001 to 1000".to_owned())
}

/// A part of a whole.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "not a number from 0 to 1".to_owned())
}

/// Simulates, a PoP on each core at a time, and prints what came of it.
///
/// # Errors
/// When a setting is outside its bounds.
pub(crate) fn run(flags: &SimulateFlags) -> anyhow::Result<()> {
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
        .context("--holdout-trial is not a share above 0 with at most six decimals")?;
    let settings = Settings { holdout_trial, ..Settings::default() };
    if let Some(fault) = settings.check().first() {
        anyhow::bail!("{fault}");
    }
    let begun = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let report = simulate_all(&plan, &settings, threads)?;
    if flags.json {
        let figures = serde_json::json!({ "report": report, "rows": report.rows() });
        print_or_gone(&format!("{figures}\n"));
    } else {
        print_or_gone(&people(&report, begun.elapsed()));
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
    // Sums of numbers with a fraction are those of their order.
    reports.sort_by_key(|(pop, _)| *pop);
    let mut reports = reports.into_iter().map(|(_, report)| report);
    let mut sum = reports.next().context("no PoP was simulated")?;
    reports.for_each(|report| sum.add(&report));
    Ok(sum)
}

/// A line about the plan, a row for each way to decide.
fn people(report: &Report, took: Duration) -> String {
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
    let rows = report.rows();
    let rows = rows.iter().map(cells);
    text.push_str(&table(&[heading.map(str::to_owned).to_vec()].into_iter().chain(rows).collect::<Vec<_>>()));
    text.push_str(&reversals(&report.with_proof));
    text.push_str(
        "\nGOODPUT: geometric mean over connections, above all CUBIC; LATE: in the last quarter of the windows, as all\n\
         that follows. REGRET: what is missing to the capped oracle. HELPED: of steered prefixes, those that gain by\n\
         more than 10 %. FALSE: of those told to be helped in all windows, those that were not then. RECALL: of\n\
         prefixes that gain so, those steered; OF CONNS: of their connections. HARMED: of all connections, those\n\
         steered in prefixes that lose by more than 10 %. STEERED, NEW: prefixes of a PoP, and those that enter in a\n\
         round. KEPT: of steered ones, those still steered after the next round.\n",
    );
    text
}

/// A line about prefixes that were shown to be helped and turned to be harmed.
fn reversals(tally: &Tally) -> String {
    let Tally { told, told_falsely, reversals, .. } = tally;
    let mut text =
        format!("\nWith proof {told} prefixes were told to be helped, {told_falsely} of them falsely. ");
    let withdrawn = reversals.withdrawn.len();
    text.push_str(&format!("Of those that turned to be harmed later {withdrawn} were withdrawn"));
    let within = [0.5, 0.9, 1.0].map(|share| reversals.windows(share));
    if let ([Some(half), Some(most), Some(all)], Some(connections)) = (within, reversals.connections()) {
        text.push_str(&format!(
            ",\nhalf of them within {half} windows ({connections} connections), nine in ten within {most}, all within {all}"
        ));
    }
    text.push_str(&format!("; {} are steered at the end.\n", reversals.open));
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
    fn a_table_has_a_row_for_each_way_and_a_cell_for_each_column() {
        let report = simulate_all(&small(), &Settings::default(), 2).unwrap();
        let text = people(&report, Duration::from_secs(2));
        assert!(text.starts_with("3 PoPs of 60 prefixes over 8 windows, seed 1: "), "{text}");
        let table: Vec<_> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        let ways: Vec<_> = table.iter().map(|line| line.split("  ").next().unwrap()).collect();
        let expected =
            ["WAY", "oracle", "oracle, capped", "with proof", "duty cycle alone", "all bbr", "all cubic"];
        assert_eq!(ways, expected, "{text}");
        assert!(table[6].contains("+0.00 %"), "{text}");
    }

    #[test]
    fn however_many_threads_there_are_it_is_the_same_day() {
        let run = |threads| simulate_all(&small(), &Settings::default(), threads).unwrap();
        let one = run(1);
        assert_eq!((one == run(2), one == run(3)), (true, true));
    }
}
