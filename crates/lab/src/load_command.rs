//! `thalweg-lab load`: puts a server under load, merges what several runs measured, and is a server of known content.

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
use thalweg_lab::load::figures::Figures;
use thalweg_lab::load::report;
use thalweg_lab::load::serve::Server;
use thalweg_lab::report::load::page;
use tokio::signal::unix::{SignalKind, signal};

/// Ask a server for URLs by many clients, and tell what they measured; or one of the commands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Load {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    arguments: run::Arguments,
}

/// What else to do about load.
#[derive(Debug, Subcommand)]
enum Command {
    /// Put the figures of several runs together: exactly those that one process would have had
    #[command(after_help = "\
Example: two machines, one report
  thalweg-lab load --json a.json …          (on one)
  thalweg-lab load --json b.json …          (on the other, at the same time)
  thalweg-lab load merge a.json b.json --json both.json")]
    Merge {
        /// What --json has written
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Serve content whose every byte is known, and misbehave as told
    #[command(after_help = "\
The query of a URL says how it is answered:
  ?bytes=1200000                content of that length (1000)
  ?chunk=16KiB&every=100ms      in the chunked coding, a chunk every 100 ms
  ?wait=50ms                    before the head
  ?status=503                   that status
  ?cut=5000                     the connection closes after so many bytes of content
  ?corrupt=700                  byte 700 of the content is wrong
  ?stamp                        each chunk begins with the Unix time at which it is sent, in microseconds, 8 bytes
Ranges are answered; responses may be stored for an hour. It prints `listening ADDRESS` and runs until it is interrupted.

Example: an edge in front of it, every byte verified
  thalweg-lab load serve --listen 127.0.0.1:8081 &
  thalweg edge --listen 127.0.0.1:8080 --backend http://127.0.0.1:8081 &
  thalweg-lab load --verify --clients 50 --duration 10s 'http://127.0.0.1:8080/a?bytes=1200000'")]
    Serve {
        /// Where; port 0 is one that the system chooses
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// Threads; one for each core if not given
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        threads: Option<u16>,
    },
}

/// Where figures are written, beside the table.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Write everything measured as JSON, which load merge reads; - is standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the percentiles as CSV; - is standard output, without the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with tables and charts; - is standard output, without the table
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
            bail!("{}: cannot be merged: {reason}", file.display());
        }
        merged.merge(&figures);
    }
    output.write(&merged)?;
    Ok(ExitCode::SUCCESS)
}

fn serve(listen: SocketAddr, threads: usize) -> anyhow::Result<ExitCode> {
    let server = Server::start(listen, threads).with_context(|| format!("cannot listen at {listen}"))?;
    eprintln!("listening {}", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Cores that this process may use.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl Output {
    /// Whether JSON, CSV or the page goes to standard output.
    fn is_standard_output(&self) -> bool {
        [&self.json, &self.csv, &self.html].into_iter().flatten().any(|file| file == Path::new("-"))
    }

    /// Whether all files can be written: before anything is measured, so that it is not in vain.
    fn check(&self) -> anyhow::Result<()> {
        for file in [&self.json, &self.csv, &self.html].into_iter().flatten() {
            if file != Path::new("-") {
                let opened = OpenOptions::new().append(true).create(true).open(file);
                opened.with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        Ok(())
    }

    /// Writes all that is asked for, and the table unless something else goes to standard output; tells what could not be written.
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

/// Writes a file, or to standard output; a reader that has gone has what it wanted.
fn write_to(file: &Path, text: &str) -> anyhow::Result<()> {
    if file == Path::new("-") {
        return match stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
            _ => Ok(()),
        };
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
