//! `thalweg-lab cc`: compares algorithms of congestion control and writes what it found.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Args;
use thalweg_lab::cc::{Ask, Plan, run};
use thalweg_lab::report::cc::{csv, json, page, table};
use thalweg_lab::reproduce::varnish::at_losses;
use thalweg_record::units::Size;

use crate::paths::read_all;
use crate::results;

/// The algorithms that Linux has of itself.
const ALGORITHMS: &str = "bbr,cubic,reno";
/// Without `--samples`.
const SAMPLES: usize = 100;
/// Sizes without `--sizes`.
const SIZES: &[u64] = &[1_200_000, 5_000_000];
/// Samples and lanes of `--quick`.
const QUICK: (usize, usize) = (6, 8);
/// Its size: a response of 5 MB takes up to a minute over some paths.
const QUICK_SIZES: &[u64] = &[1_200_000];
/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What to compare.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab cc --quick                                     long-haul, 1200kB, 6 samples: a first table within a minute
  thalweg-lab cc long-haul --loss 0%,0.1%,0.5%,1% --out report
  thalweg-lab cc lte wifi mine.toml --algorithms bbr,cubic --sizes 100kB,5MB --ranges 512kB --samples 40

Each sample is a connection of its own to a real edge (`thalweg edge`, whose policy sets the algorithm; it is read back from the
socket), in rounds of random order. With --out, DIR has report.html, samples.csv and summary.json. Needs root.")]
pub(crate) struct Compare {
    /// Scenarios' files, or names of paths; long-haul without any
    #[arg(value_name = "FILE|NAME")]
    scenarios: Vec<PathBuf>,
    /// What to compare, by the kernel's names
    #[arg(long, value_delimiter = ',', default_value = ALGORITHMS, value_name = "NAME,…")]
    algorithms: Vec<String>,
    /// Sizes of whole responses [default: 1200kB,5MB, of --quick 1200kB]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,
    /// Sizes of ranges of 5 MB
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    ranges: Vec<Size>,
    /// Samples of each path, size and algorithm [default: 100, of --quick 6]
    #[arg(long)]
    samples: Option<usize>,
    /// Copies of each path that are used side by side [default: 1, of --quick 8]
    #[arg(long)]
    lanes: Option<usize>,
    /// Each path once with each of these losses towards the clients, in place of its own
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…", value_parser = share)]
    loss: Vec<Share>,
    /// A first table within a minute: fewer samples, side by side
    #[arg(long)]
    quick: bool,
    /// Where to write the report, the samples and the summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program whose edge is measured [default: thalweg beside this program, else in PATH]
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
}

/// A share as it was written, and from 0 to 1.
#[derive(Debug, Clone)]
struct Share {
    text: String,
    share: f64,
}

fn share(text: &str) -> Result<Share, String> {
    match text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => {
            Ok(Share { text: text.to_owned(), share: percent / 100.0 })
        }
        _ => Err(format!("{text:?} is no share: write 0.5% for one in two hundred")),
    }
}

/// Each with its text, none twice however it is written.
fn losses(asked: &[Share]) -> anyhow::Result<Vec<(&str, f64)>> {
    for (index, Share { text, share }) in asked.iter().enumerate() {
        ensure!(asked[..index].iter().all(|other| other.share != *share), "a loss of {text} is named twice");
    }
    Ok(asked.iter().map(|loss| (loss.text.as_str(), loss.share)).collect())
}

pub(crate) fn compare(asked: Compare) -> anyhow::Result<ExitCode> {
    let mut scenarios = asked.scenarios;
    if scenarios.is_empty() {
        scenarios.push("long-haul".into());
    }
    let ((samples, lanes), sizes) = if asked.quick { (QUICK, QUICK_SIZES) } else { ((SAMPLES, 1), SIZES) };
    let mut asks: Vec<Ask> =
        asked.sizes.iter().map(|size| Ask { bytes: size.bytes, is_range: false }).collect();
    asks.extend(asked.ranges.iter().map(|size| Ask { bytes: size.bytes, is_range: true }));
    if asks.is_empty() {
        asks.extend(sizes.iter().map(|bytes| Ask { bytes: *bytes, is_range: false }));
    }
    let mut scenario = read_all(&scenarios)?;
    if !asked.loss.is_empty() {
        scenario = at_losses(&scenario, &losses(&asked.loss)?);
    }
    let plan = Plan {
        scenario,
        asks,
        algorithms: asked.algorithms,
        samples: asked.samples.unwrap_or(samples),
        lanes: asked.lanes.unwrap_or(lanes),
    };
    plan.check()?;
    let thalweg = program(asked.thalweg.as_deref())?;
    if let Some(directory) = &asked.out {
        results::make(directory)?;
    }
    let report = {
        let progress = Progress::begin();
        run(&plan, &thalweg, &|done, all| progress.tell(done, all))?
    };
    let _ = stdout().write_all(table(&report).as_bytes());
    if let Some(directory) = &asked.out {
        results::write(directory, &page(&report), &csv(&report), &json(&report, &[]))?;
    }
    Ok(ExitCode::from(report.exit_status()))
}

/// The delivery program.
pub(crate) fn program(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(file) = given {
        ensure!(file.is_file(), "{}: there is no such program", file.display());
        return Ok(file.to_owned());
    }
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("")).join("thalweg");
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut found =
        std::iter::once(beside).chain(std::env::split_paths(&in_path).map(|dir| dir.join("thalweg")));
    match found.find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => bail!(
            "there is no `thalweg` beside this program nor in PATH: build it, or name it with --thalweg"
        ),
    }
}

/// A line on a terminal, from time to time.
pub(crate) struct Progress {
    begun: Instant,
    last: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn begin() -> Self {
        let begun = Instant::now();
        Self { begun, last: Mutex::new(begun) }
    }

    /// So many are done of all.
    pub(crate) fn tell(&self, done: usize, all: usize) {
        let Ok(mut last) = self.last.try_lock() else { return };
        if !stderr().is_terminal() || (last.elapsed() < TELL_EVERY && done < all) {
            return;
        }
        *last = Instant::now();
        let elapsed = self.begun.elapsed();
        let left = elapsed.mul_f64((all - done) as f64 / done as f64);
        let (elapsed, left) = (elapsed.as_secs(), left.as_secs());
        let _ = write!(stderr(), "\r{done} of {all} samples, {elapsed} s, {left} s to go   ");
    }
}

impl Drop for Progress {
    /// What follows begins a line of its own.
    fn drop(&mut self) {
        if stderr().is_terminal() {
            let _ = writeln!(stderr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_named_as_it_is_written_and_once() {
        let asked = |texts: &[&str]| texts.iter().map(|text| share(text).unwrap()).collect::<Vec<_>>();
        assert_eq!(losses(&asked(&["0.7%", "1%"])).unwrap()[0], ("0.7%", 0.7 / 100.0));
        let twice = losses(&asked(&["0.7%", "1%", "0.70%"])).unwrap_err();
        assert_eq!(twice.to_string(), "a loss of 0.70% is named twice");
        assert!(share("0.7").is_err() && share("101%").is_err());
    }
}
