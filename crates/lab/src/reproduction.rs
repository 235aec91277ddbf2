//! `thalweg-lab reproduce`: reproduces published results and compares the measurements with the
//! published values.

use std::io::{Write, stderr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use thalweg_lab::cc;
use thalweg_lab::report;
use thalweg_lab::reproduce::{ALL, Headline, Published, edgio, lumen, outcomes, table, varnish};
use thalweg_netem::signals::Signals;

use crate::WRONG_USE;
use crate::compare::{Progress, program};
use crate::results::{self, Results, print};

/// Name that selects all publications.
const EVERY: &str = "all";
/// Exit statuses above this value mean a signal: 128 plus its number.
const BY_SIGNAL: u8 = 128;

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab reproduce                          list what can be measured, and what is missing
  thalweg-lab reproduce varnish --quick          lowest and highest loss, smaller chunk: a minute
  thalweg-lab reproduce varnish --out report     in full: 2,400 samples, about an hour
  thalweg-lab reproduce lumen --quick            joiners, chunks over two tiers, 60 viewers: half a minute
  thalweg-lab reproduce lumen --out report       in full, up to 50,000 viewers: ten minutes
  thalweg-lab reproduce edgio --quick            24 networks, two PoPs of two edges, a controller: three minutes
  thalweg-lab reproduce edgio --out report       in full, with proofs: a quarter of an hour
  thalweg-lab reproduce outcomes --quick         the edge's goodput beside the client's: a minute
  thalweg-lab reproduce all --out reports        one after another, each in its own directory

Prints each headline figure as published, as measured here, and their ratio. varnish, edgio and outcomes need root; lumen requires nginx, and
18,000 open files per process. --out writes report.html, samples.csv and summary.json.

Exit status: 0 if everything was measured, whatever the figures; 1 if samples or a program failed, the machine was too busy to
trust the figures of varnish, edgio or outcomes, or a check of edgio or outcomes failed; 2 for wrong usage or a machine that lacks a requirement; 128
plus the signal number after SIGINT or SIGTERM (SIGHUP counts as SIGTERM), with the results so far printed and written. For all,
the highest of these.")]
pub(crate) struct Reproduce {
    /// Publication to reproduce, or all [default: list the publications]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Run a quick version with fewer measurements
    #[arg(long)]
    quick: bool,
    /// Directory for the report, the samples and the summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Program to measure [default: thalweg beside this program, else in PATH]
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
    /// Directory of CMAF tracks for lumen's live channel
    #[arg(long, value_name = "DIR", default_value = "assets/sample")]
    media: PathBuf,
}

pub(crate) fn reproduce(arguments: Reproduce) -> anyhow::Result<ExitCode> {
    let Some(name) = &arguments.name else { return Ok(list()) };
    if name == EVERY {
        return run_all(&arguments);
    }
    let Some(published) = ALL.iter().find(|published| published.name == name) else {
        let names: Vec<_> = ALL.iter().map(|published| published.name).collect();
        bail!("unknown publication {name:?}: expected {}, or {EVERY}", names.join(", "));
    };
    if let Some(missing) = published.missing {
        bail!("{}: cannot be measured yet: needs {missing}", published.name);
    }
    let thalweg = program(arguments.thalweg.as_deref())?;
    results::create_directory(arguments.out.as_deref())?;
    let results = match published.name {
        "lumen" => run_lumen(&arguments, thalweg)?,
        "edgio" => run_edgio(&arguments, &thalweg)?,
        "outcomes" => run_outcomes(&arguments, &thalweg)?,
        _ => run_varnish(&arguments, &thalweg)?,
    };
    results.write(arguments.out.as_deref())
}

fn run_varnish(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    let report = compare(&varnish::plan(arguments.quick), thalweg)?;
    let headlines = varnish::headlines(&report);
    let exit_status = report.exit_status();
    Ok(compared(&report, varnish::TITLE, varnish::OPEN, &headlines, exit_status))
}

fn run_outcomes(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    let report = compare(&outcomes::plan(arguments.quick), thalweg)?;
    let headlines = outcomes::headlines(&report);
    let exit_status = outcomes::exit_status(&report);
    Ok(compared(&report, outcomes::TITLE, outcomes::OPEN, &headlines, exit_status))
}

/// Compares algorithms, showing the progress.
fn compare(plan: &cc::Plan, thalweg: &Path) -> anyhow::Result<cc::Report> {
    let progress = Progress::start();
    cc::run(plan, thalweg, &|done, all| progress.show(done, all))
}

/// Renders a publication that compares algorithms.
fn compared(
    report: &cc::Report,
    title: &str,
    open: &str,
    headlines: &[Headline],
    exit_status: u8,
) -> Results {
    use report::cc::{csv, json, page_of};
    Results {
        table: format!("{}\n{}\n{open}\n", report::cc::table(report), table(headlines)),
        page: page_of(report, title, open, headlines),
        samples: csv(report),
        summary: json(report, headlines),
        exit_status,
    }
}

fn run_lumen(arguments: &Reproduce, thalweg: PathBuf) -> anyhow::Result<Results> {
    use report::lumen::{csv, json, page};
    let requirements = lumen::Requirements { thalweg, media: arguments.media.clone() };
    let outcome = lumen::run(&lumen::plan(arguments.quick), &requirements, &log)?;
    let (found, headlines) = (report::lumen::table(&outcome), table(&lumen::headlines(&outcome)));
    Ok(Results {
        table: format!("{found}\n{headlines}\n{}\n", lumen::OPEN),
        page: page(&outcome),
        samples: csv(&outcome),
        summary: json(&outcome),
        exit_status: outcome.exit_status(),
    })
}

fn run_edgio(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    use report::edgio::{csv, json, page};
    let outcome = edgio::run(&edgio::plan(arguments.quick), thalweg, &log)?;
    let (found, headlines) = (report::edgio::table(&outcome), table(&outcome.headlines()));
    Ok(Results {
        table: format!("{found}\n{headlines}\n{}\n", edgio::OPEN),
        page: page(&outcome),
        samples: csv(&outcome),
        summary: json(&outcome),
        exit_status: outcome.exit_status(),
    })
}

/// Prints a progress message.
fn log(what: &str) {
    let _ = writeln!(stderr(), "{what}");
}

/// Measures each available publication in a separate process, because an emulation changes its
/// process's namespaces. Returns the highest exit status; a signal ends the run.
fn run_all(arguments: &Reproduce) -> anyhow::Result<ExitCode> {
    let (runtime, mut signals) = Signals::install()?;
    runtime.block_on(async {
        let mut worst = 0;
        for Published { name, title, missing } in ALL {
            print(&format!("{title}\n"));
            if let Some(missing) = missing {
                print(&format!("cannot be measured yet: needs {missing}\n\n"));
                continue;
            }
            let status = attend(spawn_one(arguments, name)?, &mut signals).await?;
            print("\n");
            worst = worst.max(status);
            if status >= BY_SIGNAL {
                break;
            }
        }
        Ok(ExitCode::from(worst))
    })
}

/// Starts the process for one publication in its own process group, so that it receives a
/// terminal's signals only once, when they are forwarded.
fn spawn_one(arguments: &Reproduce, name: &str) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot locate this program's executable")?;
    let mut command = Command::new(&own);
    command.args(["reproduce", name]).args(arguments.quick.then_some("--quick"));
    command.arg("--media").arg(&arguments.media);
    if let Some(thalweg) = &arguments.thalweg {
        command.arg("--thalweg").arg(thalweg);
    }
    if let Some(directory) = &arguments.out {
        command.arg("--out").arg(directory.join(name));
    }
    command.stdin(Stdio::null()).process_group(0);
    command.spawn().with_context(|| own.display().to_string())
}

/// Waits for the process and forwards signals. Returns the higher of the process's exit status and
/// that of a forwarded signal.
async fn attend(mut child: Child, signals: &mut Signals) -> anyhow::Result<u8> {
    let handle =
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("cannot open a process handle")?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let mut by_signal = 0;
    loop {
        tokio::select! {
            status = &mut ended => return Ok(by_signal.max(exit_status(status??))),
            signal = signals.next() => {
                by_signal = signal_status(signal.as_raw());
                // Ignore the error: the process may have exited already.
                let _ = pidfd_send_signal(&handle, signal);
            }
        }
    }
}

/// Returns the exit status as a shell would report it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| Some(signal_status(status.signal()?))).unwrap_or(WRONG_USE)
}

fn signal_status(signal: i32) -> u8 {
    u8::try_from(i32::from(BY_SIGNAL) + signal).unwrap_or(u8::MAX)
}

fn list() -> ExitCode {
    for Published { name, title, missing } in ALL {
        print(&format!("{name:<9}{title}\n"));
        if let Some(missing) = missing {
            print(&format!("{:<9}cannot be measured yet: needs {missing}\n", ""));
        }
    }
    ExitCode::SUCCESS
}
