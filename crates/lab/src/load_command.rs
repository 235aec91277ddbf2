//! `thalweg-lab load`: puts a server under load, merges figures from several runs, and serves
//! verifiable content.

mod progress;
mod run;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use thalweg_lab::report::load::page;
use thalweg_load::figures::Figures;
use thalweg_load::report;
use thalweg_load::serve::Server;
use thalweg_netem::signals::Signals;

/// Send requests from many clients to a server and report the measurements, or run a subcommand
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Load {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    arguments: run::Arguments,
}

/// Subcommands of `load`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Merge the figures of several runs, exactly as if one process had measured them
    #[command(after_help = "\
Example: two machines, one report
  thalweg-lab load --json a.json …          (on one)
  thalweg-lab load --json b.json …          (on the other, at the same time)
  thalweg-lab load merge a.json b.json --json both.json")]
    Merge {
        /// Files written by --json
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Serve verifiable content, with faults on request
    #[command(after_help = "\
The query of a URL controls the response:
  ?bytes=1200000                content length (1000)
  ?chunk=16KiB&every=100ms      chunked coding, one chunk every 100 ms
  ?wait=50ms                    delay before the head
  ?status=503                   response status
  ?cut=5000                     close the connection after 5000 bytes of content
  ?corrupt=700                  send a wrong byte at offset 700 of the content
  ?stamp                        start each chunk with the Unix time it is sent at, in microseconds, 8 bytes
Ranges are supported; responses are fresh for an hour. Prints `listening ADDRESS` and runs until interrupted.

Example: an edge in front of it, every byte verified
  thalweg-lab load serve --listen 127.0.0.1:8081 &
  thalweg edge --listen 127.0.0.1:8080 --backend http://127.0.0.1:8081 &
  thalweg-lab load --verify --clients 50 --duration 10s 'http://127.0.0.1:8080/a?bytes=1200000'")]
    Serve {
        /// Address to listen on; port 0 lets the system choose one
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// Number of threads [default: one per core]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        threads: Option<u16>,
    },
}

/// Output files for the figures, written in addition to the table.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Write all measurements as JSON for load merge; - writes to standard output and omits the
    /// table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the percentiles as CSV; - writes to standard output and omits the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with tables and charts; - writes to standard output and omits the table
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(load: &Load) -> anyhow::Result<ExitCode> {
    match &load.command {
        None => run::run(&load.arguments),
        Some(Command::Merge { files, output }) => merge(files, output),
        Some(Command::Serve { listen, threads }) => serve(*listen, threads.map_or_else(cores, usize::from)),
    }
}

fn merge(files: &[PathBuf], output: &Output) -> anyhow::Result<ExitCode> {
    let mut merged = Figures::default();
    output.check()?;
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let figures = report::from_json(&text).with_context(|| file.display().to_string())?;
        if let Err(reason) = merged.check_merge(&figures) {
            bail!("{}: cannot merge: {reason}", file.display());
        }
        merged.merge(&figures);
    }
    output.write(&merged)?;
    Ok(ExitCode::SUCCESS)
}

fn serve(listen: SocketAddr, threads: usize) -> anyhow::Result<ExitCode> {
    let server = Server::start(listen, threads).with_context(|| format!("cannot listen on {listen}"))?;
    eprintln!("listening {}", server.address());
    let (runtime, mut signals) = Signals::install()?;
    runtime.block_on(signals.next());
    Ok(ExitCode::SUCCESS)
}

/// Returns the number of cores available to this process.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl Output {
    /// Returns whether JSON, CSV or the page is written to standard output.
    fn is_standard_output(&self) -> bool {
        [&self.json, &self.csv, &self.html].into_iter().flatten().any(|file| file == Path::new("-"))
    }

    /// Checks that all files can be written. Called before measuring starts.
    fn check(&self) -> anyhow::Result<()> {
        for file in [&self.json, &self.csv, &self.html].into_iter().flatten() {
            if file != Path::new("-") {
                let opened = OpenOptions::new().append(true).create(true).open(file);
                opened.with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        Ok(())
    }

    /// Writes every requested file, and prints the table unless a file is written to standard
    /// output. Returns the first error.
    fn write(&self, figures: &Figures) -> anyhow::Result<()> {
        let mut done = Ok(());
        for (file, text) in [
            (&self.json, report::to_json as fn(&Figures) -> String),
            (&self.csv, report::to_csv),
            (&self.html, page),
        ] {
            let Some(file) = file else { continue };
            done = done.and(write_to(file, &text(figures)));
        }
        if !self.is_standard_output() {
            done = done.and(write_to(Path::new("-"), &report::to_table(figures)));
        }
        done
    }
}

/// Writes to a file or to standard output, ignoring a closed pipe.
fn write_to(file: &Path, text: &str) -> anyhow::Result<()> {
    if file == Path::new("-") {
        return match stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        };
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
