//! `thalweg log`: the request log, human-readable or as JSON.
//!
//! [`mod@file`] follows a log file and [`admin`] a running edge; [`query`] selects records, and
//! [`printer`] writes them. A line that is not a record is reported on standard error and skipped.

mod admin;
mod file;
mod printer;
mod query;

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::admin_args::EdgeAdmin;
use printer::Printer;
use query::{Query, reference};

pub use printer::stdout_colour;

/// Examples and notes printed after the help.
pub fn help() -> String {
    format!(
        "\
Examples:
  thalweg log                          the edge on this machine, live
  thalweg log /var/log/thalweg.json    a log file's last lines and new ones, across rotations
  thalweg log --no-follow -n 50 /var/log/thalweg.json    its last 50 lines
  thalweg log - < thalweg.json         standard input, to its end
  thalweg log -q 'tcpi.rtt > 100ms and path ~ \".m4s$\"'
  thalweg log -q 'not complete or status >= 500 or vcl_error'
  thalweg log --json | jq 'select(.ttfb_us > 50000)'

An expression combines tests with and, or, not and parentheses. A test is FIELD OPERATOR VALUE:
  text     == != and, for regular expressions, ~ !~   path ~ \"^/live/\"   cache == hit
  numbers  == != < <= > >=                            bytes > 100kB   tcpi.rtt > 50ms
  time     == != < <= > >= ~ !~                       time > 16:40   time > 10min ago
A field alone matches if the record has it. Units: us ms s min h, B KiB MiB kB MB,
kbit/s Mbit/s MB/s. Fields are named as in the JSON record. Their units may be omitted, and tcpi. is
an alias of tcp.:
{}
lines are those logged by the policy and its modules; vcl_log, vcl_error, vcl_acl, timestamp and
fetcherror are the lines with that tag. A test matches if any line matches. Case is ignored, and
column names work too: CC == bbr.",
        reference("  ")
    )
}

/// `thalweg log`.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Log file, or - for standard input; if omitted, a running edge
    #[arg(value_name = "FILE|-", conflicts_with = "admin")]
    file: Option<PathBuf>,
    #[command(flatten)]
    edge: EdgeAdmin,
    /// Start with the last N lines [default: 10 of a file, all with -q or standard input]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Stop at the end of the file instead of waiting for more
    #[arg(long)]
    no_follow: bool,
    /// Show only the records that match
    #[arg(short, long, value_name = "EXPRESSION", value_parser = Query::parse)]
    query: Option<Query>,
    /// Print the records unchanged, one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Default number of lines printed from the end of a file.
const LINES_DEFAULT: usize = 10;

/// Prints matching records until the input ends or standard output is closed.
///
/// # Errors
///
/// Returns an error if the log cannot be read or the output cannot be written.
pub fn run(args: LogArgs) -> anyhow::Result<()> {
    // clap's `requires` does not work here: `--admin` has a default, which satisfies it.
    if args.file.is_none() && (args.no_follow || args.lines.is_some()) {
        bail!("--no-follow and --lines apply to a log file: name one, or - for standard input");
    }
    let lines = args.lines.or(args.query.is_none().then_some(LINES_DEFAULT));
    let mut printer = Printer::stdout(args.query, args.json);
    let outcome = match &args.file {
        Some(path) if path == Path::new("-") => stdin(args.lines, &mut printer),
        Some(path) if args.no_follow => file::print(path, lines, &mut printer),
        Some(path) => file::follow(path, lines, &mut printer),
        None => admin::follow(args.edge.admin, &mut printer),
    };
    match outcome {
        Err(failure) if is_broken_pipe(&failure) => Ok(()), // as with `| head`
        other => other,
    }
}

fn stdin(last: Option<usize>, printer: &mut Printer<impl io::Write>) -> anyhow::Result<()> {
    let mut kept = VecDeque::new();
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read standard input")?;
        let Some(last) = last else {
            printer.line(&line)?;
            continue;
        };
        kept.push_back(line);
        if kept.len() > last {
            kept.pop_front();
        }
    }
    kept.iter().try_for_each(|line| printer.line(line))?;
    printer.flush()?;
    Ok(())
}

/// Returns whether the failure means that standard output was closed.
pub fn is_broken_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
