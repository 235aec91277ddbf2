//! The `thalweg` program: command line, config, and the roles in one process.
//!
//! Exit status: 0 done, 1 failed, 2 wrong use. Wrong use is told before anything is bound.

mod admin;
mod advice;
mod backends;
mod bundle;
mod cli;
mod config;
mod console;
mod log;
mod policies;
mod policy;
mod purge;
mod roles;
mod shutdown;
mod source;
mod units;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};
use config::{Config, Faults};

/// Exit status of wrong use, the same as clap's.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is::<Faults>() => {
            eprintln!("{failure}");
            ExitCode::from(WRONG_USE)
        }
        Err(failure) if failure.is::<policy::Refused>() || failure.is::<bundle::Refused>() => {
            eprint!("{failure}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("thalweg: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up { config } => {
            start_logging();
            roles::run(&Config::from_file(&config)?, true)
        }
        Command::Edge(flags) => {
            start_logging();
            roles::run(&Config::from_edge_flags(&flags)?, false)
        }
        Command::Origin(flags) => {
            start_logging();
            roles::run(&Config::from_origin_flags(&flags)?, false)
        }
        Command::Source { media, to } => {
            start_logging();
            roles::run(&Config::from_source(media, to), false)
        }
        Command::Check { settings: true, .. } => {
            print_or_gone(&config::reference());
            Ok(())
        }
        Command::Check { file, .. } => {
            let file = file.expect("clap requires the file or --settings");
            if file.extension().is_some_and(|extension| extension == "vcl") {
                let (_, warnings) = policy::check(&file)?;
                eprint!("{warnings}");
                print_or_gone(&format!("{}: no error found\n", file.display()));
                return Ok(());
            }
            if file.extension().is_some_and(|extension| extension == "json") {
                let (told, warnings) = bundle::check(&file)?;
                eprint!("{warnings}");
                print_or_gone(&told);
                return Ok(());
            }
            roles::check(&Config::from_file(&file)?)?;
            print_or_gone(&format!("{}: no fault found\n", file.display()));
            Ok(())
        }
        Command::Log { file, lines, admin, query, json } => {
            let from = match &file {
                Some(path) if path == Path::new("-") => log::From::Stdin,
                Some(path) => log::From::File(path, lines),
                None => log::From::Admin(admin),
            };
            log::run(from, query, json)
        }
        Command::Purge { urls, tags, soft, admin } => purge::purge(admin, &urls, &tags, soft),
        Command::Ban { expression, admin } => purge::ban(admin, &expression),
        Command::Bans { admin } => purge::bans(admin),
        Command::Policy(command) => policies::run(command),
        Command::Backends { name: Some(name), health: Some(health), admin } => {
            backends::set(admin, &name, health.as_str())
        }
        Command::Backends { admin, .. } => backends::list(admin),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "thalweg", &mut script);
            print_or_gone(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}

/// Prints to standard output; a reader that has gone, such as `head`, has what it wanted.
fn print_or_gone(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// Events to standard error, one line each.
fn start_logging() {
    let filter = EnvFilter::try_from_env("THALWEG_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour).init();
}
