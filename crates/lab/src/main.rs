//! The `thalweg-lab` program: command line and messages.
//!
//! Exit status: 0 done, 1 failed, 2 wrong use or a machine that cannot; that of the command for `paths run`.

mod compare;
mod load_command;
mod paths;
mod reproduction;
mod results;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Exit status of wrong use, the same as clap's.
const WRONG_USE: u8 = 2;

/// Everything after the program's name.
#[derive(Debug, Parser)]
#[command(
    name = "thalweg-lab",
    version,
    about = "Networks, load and the field's published results on one machine",
    after_help = "Exit status: 0 done, 1 failed, 2 wrong use or a machine that lacks what is needed."
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
    /// Compare algorithms of congestion control: time to fetch from a real edge over emulated paths
    Cc(compare::Compare),
    /// Measure the field's published results again
    Reproduce(reproduction::Reproduce),
    /// Load on a server by requests or viewers, and what they measure
    Load(Box<load_command::Load>),
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    start_logging();
    let done = match command {
        Command::Paths(command) => paths::run(command),
        Command::Cc(asked) => compare::compare(asked),
        Command::Reproduce(asked) => reproduction::reproduce(asked),
        Command::Load(load) => load_command::run(&load),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("thalweg-lab: {failure:#}");
        ExitCode::from(WRONG_USE)
    })
}

/// Events to standard error. Those of the emulator are about its own workings.
fn start_logging() {
    let filter =
        EnvFilter::try_from_env("THALWEG_LOG").unwrap_or_else(|_| EnvFilter::new("off,thalweg_lab=info"));
    let colour = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour).init();
}
