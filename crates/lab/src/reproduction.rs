//! `thalweg-lab reproduce`: measures published results again and sets them beside what was published.

use std::io::{Write, stderr, stdout};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use thalweg_lab::cc;
use thalweg_lab::report;
use thalweg_lab::reproduce::{ALL, Published, edgio, lumen, table, varnish};
use thalweg_lab::signals::Signals;

use crate::WRONG_USE;
use crate::compare::{Progress, program};
use crate::results;

/// What stands for all of them.
const EVERY: &str = "all";
/// Exit statuses from here on are of signals, behind it by their number.
const BY_SIGNAL: u8 = 128;

/// What to measure again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab reproduce                          what there is, and what is missing
  thalweg-lab reproduce varnish --quick          the outer losses, the smaller chunk: a minute
  thalweg-lab reproduce varnish --out report     the whole: 2,400 samples, about an hour
  thalweg-lab reproduce lumen --quick            joiners, chunks over two tiers, 60 viewers: half a minute
  thalweg-lab reproduce lumen --out report       the whole, up to 50,000 viewers: ten minutes
  thalweg-lab reproduce edgio --quick            16 networks, an edge, an agent and a controller: three minutes
  thalweg-lab reproduce edgio --out report       the whole: five minutes
  thalweg-lab reproduce all --out reports        one after the other, each in a directory of its own

Prints each headline figure as published, as measured here, and the ratio. varnish and edgio need root; lumen needs nginx, and 18,000
open files for each process. With --out, DIR has report.html, samples.csv and summary.json.
Exit status: 0 done, however the figures are; 1 not all could be measured, as samples failed or a program did, or the machine is too busy
for the figures of varnish or edgio to be trusted, or the controller of edgio did not find what is there; 2 wrong use, or a machine that lacks what is needed; 128 and the signal's number by SIGINT or
SIGTERM, for which SIGHUP is taken too: what is there by then is printed and written. Of all, the worst.")]
pub(crate) struct Reproduce {
    /// Which publication, or all; without one they are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A first look
    #[arg(long)]
    quick: bool,
    /// Where to write the report, the samples and the summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program that is measured [default: thalweg beside this program, else in PATH]
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
    /// What lumen's live channel is made of: a directory of CMAF tracks
    #[arg(long, value_name = "DIR", default_value = "assets/sample")]
    media: PathBuf,
}

pub(crate) fn reproduce(asked: Reproduce) -> anyhow::Result<ExitCode> {
    let Some(name) = &asked.name else { return Ok(list()) };
    if name == EVERY {
        return every(&asked);
    }
    let Some(published) = ALL.iter().find(|published| published.name == name) else {
        let names: Vec<_> = ALL.iter().map(|published| published.name).collect();
        bail!("no publication is called {name:?}: there are {}, or {EVERY}", names.join(", "));
    };
    if let Some(missing) = published.missing {
        bail!("{}: not there yet: {missing}", published.name);
    }
    let thalweg = program(asked.thalweg.as_deref())?;
    if let Some(directory) = &asked.out {
        results::make(directory)?;
    }
    match published.name {
        "lumen" => of_lumen(&asked, thalweg),
        "edgio" => of_edgio(&asked, &thalweg),
        _ => of_varnish(&asked, &thalweg),
    }
}

fn of_varnish(asked: &Reproduce, thalweg: &Path) -> anyhow::Result<ExitCode> {
    use report::cc::{csv, json, page_of};
    let report = {
        let progress = Progress::begin();
        cc::run(&varnish::plan(asked.quick), thalweg, &|done, all| progress.tell(done, all))?
    };
    let headlines = varnish::headlines(&report);
    print(&format!("{}\n{}\n{}\n", report::cc::table(&report), table(&headlines), varnish::OPEN));
    if let Some(directory) = &asked.out {
        let page = page_of(&report, varnish::TITLE, varnish::OPEN, &headlines);
        results::write(directory, &page, &csv(&report), &json(&report, &headlines))?;
    }
    Ok(ExitCode::from(report.exit_status()))
}

fn of_lumen(asked: &Reproduce, thalweg: PathBuf) -> anyhow::Result<ExitCode> {
    use report::lumen::{csv, json, page};
    let needs = lumen::Needs { thalweg, media: asked.media.clone() };
    let outcome = lumen::run(&lumen::plan(asked.quick), &needs, &tell)?;
    print(&format!(
        "{}\n{}\n{}\n",
        report::lumen::table(&outcome),
        table(&lumen::headlines(&outcome)),
        lumen::OPEN
    ));
    if let Some(directory) = &asked.out {
        results::write(directory, &page(&outcome), &csv(&outcome), &json(&outcome))?;
    }
    Ok(ExitCode::from(outcome.exit_status()))
}

fn of_edgio(asked: &Reproduce, thalweg: &Path) -> anyhow::Result<ExitCode> {
    use report::edgio::{csv, json, page};
    let outcome = edgio::run(&edgio::plan(asked.quick), thalweg, &tell)?;
    print(&format!("{}\n{}\n{}\n", report::edgio::table(&outcome), table(&outcome.headlines()), edgio::OPEN));
    if let Some(directory) = &asked.out {
        results::write(directory, &page(&outcome), &csv(&outcome), &json(&outcome))?;
    }
    Ok(ExitCode::from(outcome.exit_status()))
}

/// Prints, whether there is still a reader or not.
fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// What is being measured: a line each time that there is something new.
fn tell(what: &str) {
    let _ = writeln!(stderr(), "{what}");
}

/// Each that is there, by a process of its own: an emulation changes what its process sees. The worst status of theirs; one of a
/// signal is the last.
fn every(asked: &Reproduce) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::take()?;
        let mut worst = 0;
        for Published { name, title, missing } in ALL {
            print(&format!("{title}\n"));
            if let Some(missing) = missing {
                print(&format!("not there yet: {missing}\n\n"));
                continue;
            }
            let status = attend(one(asked, name)?, &mut signals).await?;
            print("\n");
            worst = worst.max(status);
            if status >= BY_SIGNAL {
                break;
            }
        }
        Ok(ExitCode::from(worst))
    })
}

/// Starts the process of one, in a group of its own: signals of a terminal are passed on to it, once.
fn one(asked: &Reproduce, name: &str) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("this program's own file")?;
    let mut command = Command::new(&own);
    command.args(["reproduce", name]).args(asked.quick.then_some("--quick"));
    command.arg("--media").arg(&asked.media);
    if let Some(thalweg) = &asked.thalweg {
        command.arg("--thalweg").arg(thalweg);
    }
    if let Some(directory) = &asked.out {
        command.arg("--out").arg(directory.join(name));
    }
    command.stdin(Stdio::null()).process_group(0);
    command.spawn().with_context(|| own.display().to_string())
}

/// Waits for its end, and passes signals on until then: its status, or that of such a signal.
async fn attend(mut child: Child, signals: &mut Signals) -> anyhow::Result<u8> {
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("a process's handle")?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let mut by_signal = 0;
    loop {
        tokio::select! {
            status = &mut ended => return Ok(by_signal.max(of(status??))),
            signal = signals.next() => {
                by_signal = of_signal(signal.as_raw());
                // It may have ended by itself.
                let _ = pidfd_send_signal(&handle, signal);
            }
        }
    }
}

/// As the shell has it.
fn of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| Some(of_signal(status.signal()?))).unwrap_or(WRONG_USE)
}

fn of_signal(signal: i32) -> u8 {
    u8::try_from(i32::from(BY_SIGNAL) + signal).unwrap_or(u8::MAX)
}

fn list() -> ExitCode {
    for Published { name, title, missing } in ALL {
        print(&format!("{name:<9}{title}\n"));
        if let Some(missing) = missing {
            print(&format!("{:<9}not there yet: {missing}\n", ""));
        }
    }
    ExitCode::SUCCESS
}
