//! `thalweg-lab reproduce`: measures published results again and sets them beside what was published.

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use thalweg_lab::cc::run;
use thalweg_lab::report::cc::{csv, json, page_of, table};
use thalweg_lab::reproduce::{self, ALL, VARNISH_OPEN, varnish, varnish_headlines};

use crate::compare::{Progress, program};

/// What to measure again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab reproduce                          what there is, and what is missing
  thalweg-lab reproduce varnish --quick          the outer losses, the smaller chunk: a minute
  thalweg-lab reproduce varnish --out report     the whole: 2,400 samples, about an hour

Prints each headline figure as published, as measured here, and the ratio. Needs root.")]
pub(crate) struct Reproduce {
    /// Which publication; without one they are listed
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
}

pub(crate) fn reproduce(asked: Reproduce) -> anyhow::Result<ExitCode> {
    let Some(name) = &asked.name else { return Ok(list()) };
    let Some(published) = ALL.iter().find(|published| published.name == name) else {
        let names: Vec<_> = ALL.iter().map(|published| published.name).collect();
        bail!("no publication is called {name:?}: there are {}", names.join(", "));
    };
    if let Some(missing) = published.missing {
        bail!("{}: not there yet: {missing}", published.name);
    }
    let thalweg = program(asked.thalweg.as_deref())?;
    if let Some(directory) = &asked.out {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let report = {
        let progress = Progress::begin();
        run(&varnish(asked.quick), &thalweg, &|done, all| progress.tell(done, all))?
    };
    let headlines = varnish_headlines(&report);
    let text = format!("{}\n{}\n{VARNISH_OPEN}\n", table(&report), reproduce::table(&headlines));
    let _ = stdout().write_all(text.as_bytes());
    if let Some(directory) = &asked.out {
        let page = page_of(&report, published.title, VARNISH_OPEN, &headlines);
        for (name, text) in
            [("report.html", page), ("samples.csv", csv(&report)), ("summary.json", json(&report))]
        {
            let file = directory.join(name);
            fs::write(&file, text).with_context(|| file.display().to_string())?;
        }
        eprintln!("{}", directory.join("report.html").display());
    }
    Ok(ExitCode::from(report.exit_status()))
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
