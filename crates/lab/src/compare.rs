//! `thalweg-lab cc`: compares congestion control algorithms and writes the results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use thalweg_lab::cc::{Plan, Report, Request, run};
use thalweg_lab::report::cc::{csv, json, page, table};
use thalweg_lab::reproduce::varnish::at_losses;
use thalweg_netem::scenario::Share;
use thalweg_units::Size;

use crate::paths::read_all;
use crate::progress::Progress;
use crate::results::{self, Results};

/// Default for `--algorithms`, all of which are part of Linux.
const ALGORITHMS: &str = "bbr,cubic,reno";
/// Default for `--samples`.
const SAMPLES: usize = 100;
/// Default for `--sizes`.
const SIZES: &[u64] = &[1_200_000, 5_000_000];
/// Samples and lanes with `--quick`.
const QUICK: (usize, usize) = (6, 8);
/// Sizes with `--quick`. A 5 MB response would take up to a minute over some paths.
const QUICK_SIZES: &[u64] = &[1_200_000];

/// Arguments of `cc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab cc --quick                                     long-haul, 1200kB, 6 samples: a first table within a minute
  thalweg-lab cc long-haul --loss 0%,0.1%,0.5%,1% --out report
  thalweg-lab cc lte wifi mine.toml --algorithms bbr,cubic --sizes 100kB,5MB --ranges 512kB --samples 40

Each sample is a separate connection to a real edge (`thalweg edge`, whose policy sets the algorithm; it is read back from the
socket). Each round takes all samples in random order. --out writes report.html, samples.csv and summary.json. Needs root.")]
pub(crate) struct Compare {
    /// Scenario files or named paths [default: long-haul]
    #[arg(value_name = "FILE|NAME")]
    scenarios: Vec<PathBuf>,
    /// Algorithms to compare, by kernel name
    #[arg(long, value_delimiter = ',', default_value = ALGORITHMS, value_name = "NAME,…")]
    algorithms: Vec<String>,
    /// Sizes of whole responses [default: 1200kB,5MB; with --quick 1200kB]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,
    /// Sizes of ranges to request from a 5 MB response
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    ranges: Vec<Size>,
    /// Samples for each path, size and algorithm [default: 100; with --quick 6]
    #[arg(long)]
    samples: Option<usize>,
    /// Copies of each path to use in parallel [default: 1; with --quick 8]
    #[arg(long)]
    lanes: Option<usize>,
    /// Replace each path's loss towards the clients: run the path once with each of these values
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…", value_parser = loss)]
    loss: Vec<Loss>,
    /// Print a first table within a minute: fewer samples, in parallel
    #[arg(long)]
    quick: bool,
    /// Directory for the report, the samples and the summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Program whose edge to measure [default: thalweg beside this program, else in PATH]
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
}

/// A share of lost packets, with the string as typed by the user.
#[derive(Debug, Clone)]
struct Loss {
    text: String,
    share: f64,
}

fn loss(text: &str) -> Result<Loss, String> {
    Ok(Loss { text: text.to_owned(), share: text.parse::<Share>()?.0 })
}

/// Returns each loss with its string. Returns an error if two losses are equal, even if written
/// differently.
fn losses(arguments: &[Loss]) -> anyhow::Result<Vec<(&str, f64)>> {
    for (index, Loss { text, share }) in arguments.iter().enumerate() {
        ensure!(
            arguments[..index].iter().all(|other| other.share != *share),
            "--loss: {text} is given twice"
        );
    }
    Ok(arguments.iter().map(|loss| (loss.text.as_str(), loss.share)).collect())
}

pub(crate) fn compare(arguments: Compare) -> anyhow::Result<ExitCode> {
    let mut scenarios = arguments.scenarios;
    if scenarios.is_empty() {
        scenarios.push("long-haul".into());
    }
    let ((samples, lanes), sizes) =
        if arguments.quick { (QUICK, QUICK_SIZES) } else { ((SAMPLES, 1), SIZES) };
    let mut requests: Vec<Request> =
        arguments.sizes.iter().map(|size| Request { bytes: size.bytes, is_range: false }).collect();
    requests.extend(arguments.ranges.iter().map(|size| Request { bytes: size.bytes, is_range: true }));
    if requests.is_empty() {
        requests.extend(sizes.iter().map(|bytes| Request { bytes: *bytes, is_range: false }));
    }
    let mut scenario = read_all(&scenarios)?;
    if !arguments.loss.is_empty() {
        scenario = at_losses(&scenario, &losses(&arguments.loss)?);
    }
    let plan = Plan {
        scenario,
        requests,
        algorithms: arguments.algorithms,
        samples: arguments.samples.unwrap_or(samples),
        lanes: arguments.lanes.unwrap_or(lanes),
    };
    plan.check()?;
    let thalweg = program(arguments.thalweg.as_deref())?;
    results::create_directory(arguments.out.as_deref())?;
    let report = measure(&plan, &thalweg)?;
    let results = Results {
        table: table(&report),
        page: page(&report),
        samples: csv(&report),
        summary: json(&report, &[]),
        exit_status: report.exit_status(),
    };
    results.write(arguments.out.as_deref())
}

/// Runs a plan, showing the progress.
pub(crate) fn measure(plan: &Plan, thalweg: &Path) -> anyhow::Result<Report> {
    let progress = Progress::start(plan.duration());
    run(plan, thalweg, &|done| progress.show(done))
}

/// Returns the path of the delivery program: `given`, or else `thalweg` beside this program or in
/// PATH.
pub(crate) fn program(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(file) = given {
        ensure!(file.is_file(), "{}: no such program", file.display());
        return Ok(file.to_owned());
    }
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("")).join("thalweg");
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut found =
        std::iter::once(beside).chain(std::env::split_paths(&in_path).map(|dir| dir.join("thalweg")));
    match found.find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => bail!("`thalweg` not found beside this program or in PATH: build it, or pass --thalweg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_keep_their_text_and_reject_duplicates() {
        let arguments = |texts: &[&str]| texts.iter().map(|text| loss(text).unwrap()).collect::<Vec<_>>();
        assert_eq!(losses(&arguments(&["0.7%", "1%"])).unwrap()[0], ("0.7%", 0.7 / 100.0));
        let twice = losses(&arguments(&["0.7%", "1%", "0.70%"])).unwrap_err();
        assert_eq!(twice.to_string(), "--loss: 0.70% is given twice");
        assert!(loss("0.7").is_err() && loss("101%").is_err());
    }
}
