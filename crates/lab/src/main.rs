//! The `thalweg-lab` program: command line and messages.
//!
//! Exit status: 0 success, 1 failure, 2 wrong usage or an unsuitable machine. `paths run` exits
//! with the status of its command.

mod audience;
mod compare;
mod load_command;
mod paths;
mod progress;
mod reproduction;
mod results;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Exit status for wrong usage, as in clap.
const WRONG_USE: u8 = 2;

/// Command-line arguments.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg-lab",
    version,
    about = "Emulated networks, load, and reproductions of published results, on one machine",
    after_help = "Exit status: 0 success, 1 failure, 2 wrong usage or a machine that lacks a requirement."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Emulated network paths between clients and a server
    #[command(subcommand)]
    Paths(paths::Command),
    /// Compare congestion control algorithms: time to fetch from a real edge over emulated paths
    Cc(compare::Compare),
    /// Reproduce published results
    Reproduce(reproduction::Reproduce),
    /// Put a server under load with plain requests or viewers, and measure the responses
    Load(Box<load_command::Load>),
    /// Watch a server on this machine from emulated paths and show the playback quality on each
    /// path
    Audience(audience::Audience),
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    start_logging();
    let done = match command {
        Command::Paths(command) => paths::run(command),
        Command::Cc(arguments) => compare::compare(arguments),
        Command::Reproduce(arguments) => reproduction::reproduce(arguments),
        Command::Load(load) => load_command::run(&load),
        Command::Audience(arguments) => audience::run(&arguments),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("thalweg-lab: {failure:#}");
        ExitCode::from(WRONG_USE)
    })
}

/// Starts logging to standard error. By default, only this program and its emulator log.
fn start_logging() {
    let filter = EnvFilter::try_from_env("THALWEG_LOG")
        .unwrap_or_else(|_| EnvFilter::new("off,thalweg_lab=info,thalweg_netem=info"));
    let colour = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour).init();
}
