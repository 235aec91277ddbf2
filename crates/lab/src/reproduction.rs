//! `thalweg-lab reproduce`: measures published results again and sets them beside what was published.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, bail};
use clap::Args;
use thalweg_lab::cc;
use thalweg_lab::report;
use thalweg_lab::reproduce::{ALL, Published, lumen, table, varnish};

use crate::WRONG_USE;
use crate::compare::{Progress, program};
use crate::results;

/// What stands for all of them.
const EVERY: &str = "all";

/// What to measure again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab reproduce                          what there is, and what is missing
  thalweg-lab reproduce varnish --quick          the outer losses, the smaller chunk: a minute
  thalweg-lab reproduce varnish --out report     the whole: 2,400 samples, about an hour
  thalweg-lab reproduce lumen --quick            joiners, chunks over two tiers, 60 viewers: a minute
  thalweg-lab reproduce lumen --out report       the whole, up to 50,000 viewers: ten minutes
  thalweg-lab reproduce all --out reports        one after the other, each in a directory of its own

Prints each headline figure as published, as measured here, and the ratio. varnish needs root; lumen needs nginx, and 18,000 open files
for each process. With --out, DIR has report.html, samples.csv and summary.json.
Exit status: 0 done, however the figures are; 1 a machine too busy for the figures of varnish to be trusted; 2 wrong use, or a machine
that lacks what is needed.")]
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

fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// What is being measured, on a terminal.
fn tell(what: &str) {
    if stderr().is_terminal() {
        eprintln!("{what}");
    }
}

/// Each that is there, by a process of its own: an emulation changes what its process sees. The worst status of theirs.
fn every(asked: &Reproduce) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("this program's own file")?;
    let mut worst = 0;
    for Published { name, title, missing } in ALL {
        println!("{title}");
        if let Some(missing) = missing {
            println!("not there yet: {missing}\n");
            continue;
        }
        let mut command = Command::new(&own);
        command.args(["reproduce", name]).args(asked.quick.then_some("--quick"));
        command.arg("--media").arg(&asked.media);
        if let Some(thalweg) = &asked.thalweg {
            command.arg("--thalweg").arg(thalweg);
        }
        if let Some(directory) = &asked.out {
            command.arg("--out").arg(directory.join(name));
        }
        let status = command.status().with_context(|| own.display().to_string())?;
        println!();
        worst = worst.max(of(status));
    }
    Ok(ExitCode::from(worst))
}

fn of(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(WRONG_USE)
}

fn list() -> ExitCode {
    for published in ALL {
        println!("{:<9}{}", published.name, published.title);
        if let Some(missing) = published.missing {
            println!("{:<9}not there yet: {missing}", "");
        }
    }
    ExitCode::SUCCESS
}
