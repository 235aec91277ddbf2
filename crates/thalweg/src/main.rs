//! The `thalweg` program: command line, config, and the roles in one process.
//!
//! Exit status: 0 done, 1 failed, 2 wrong use. Wrong use, a config with a fault included, is told before anything is
//! bound. A fault that `thalweg check` was asked for is no wrong use: 1.

mod admin;
mod advice;
mod agent;
mod backends;
mod bundle;
mod check;
mod cli;
mod config;
mod console;
mod consumer;
mod controller;
mod log;
mod metrics;
mod policies;
mod policy;
mod purge;
mod query;
mod roles;
mod routes;
mod schema;
mod shutdown;
mod simulate;
mod sockets;
mod source;
mod stream;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};
use config::{Config, Faults};
use controller::ControllerCommand;

/// Exit status of wrong use, the same as clap's.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure);
            let is_misused = failure.is::<Faults>() || failure.is::<sockets::BadFilter>();
            if is_misused { ExitCode::from(WRONG_USE) } else { ExitCode::FAILURE }
        }
    }
}

/// Tells on standard error what went wrong: faults as they are, each with its place.
fn tell(failure: &anyhow::Error) {
    if failure.is::<Faults>() {
        eprintln!("{failure}");
    } else if failure.is::<policy::Refused>() || failure.is::<bundle::Refused>() {
        eprint!("{failure}");
    } else if !failure.is::<check::Failed>() && !failure.is::<schema::Differs>() {
        let text = format!("{failure:#}");
        // A policy's report, from the edge that refuses it, begins with its first fault.
        let is_report = ["error: ", "warning: "].iter().any(|severity| text.starts_with(severity));
        eprintln!("{}{}", if is_report { "" } else { "thalweg: " }, text.trim_end());
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
        Command::Agent(flags) => {
            start_logging();
            roles::run(&Config::from_agent_flags(&flags)?, false)
        }
        Command::Source { media, to } => {
            start_logging();
            roles::run(&Config::from_source(media, to), false)
        }
        Command::Check { settings: true, .. } => {
            print_or_gone(&config::reference());
            Ok(())
        }
        Command::Check { files, .. } => Ok(check::check(&files)?),
        Command::Log { file, lines, no_follow, admin, query, json } => {
            let from = match &file {
                Some(path) if path == Path::new("-") => log::From::Stdin(lines),
                Some(path) => log::From::File { path, lines: lines.unwrap_or(10), follows: !no_follow },
                None => log::From::Admin(admin),
            };
            log::run(from, query, json)
        }
        Command::Sockets(args) => sockets::run(args),
        Command::Purge { urls, tags, soft, admin } => purge::purge(admin, &urls, &tags, soft),
        Command::Ban { expression, admin } => purge::ban(admin, &expression),
        Command::Bans { admin } => purge::bans(admin),
        Command::Policy(command) => policies::run(command),
        Command::Backends { name: Some(name), health: Some(health), admin } => {
            backends::set(admin, &name, health.as_str())
        }
        Command::Backends { admin, .. } => backends::list(admin),
        Command::Schema(command) => schema::run(command),
        Command::Consumer(flags) => {
            start_logging();
            roles::run(&Config::from_consumer_flags(&flags)?, false)
        }
        Command::Query { name: None, .. } => {
            query::list();
            Ok(())
        }
        Command::Query { name: Some(name), by, since, until, sqlite, clickhouse, json } => {
            let clickhouse = clickhouse.as_ref().map(|url| url.0.as_str());
            let sqlite = &sqlite;
            query::run(&query::Question { name: &name, by: &by, since, until, sqlite, clickhouse, json })
        }
        Command::Controller(ControllerCommand::Run(flags)) => {
            start_logging();
            roles::run(&Config::from_controller_flags(&flags)?, false)
        }
        Command::Controller(ControllerCommand::Explain { prefix, pop, tenant, controller, json }) => {
            controller::explain(controller, (pop.as_deref(), tenant.as_deref()), &prefix, json)
        }
        Command::Controller(ControllerCommand::Status { controller, json }) => {
            controller::status(controller, json)
        }
        Command::Controller(ControllerCommand::Simulate(flags)) => simulate::run(&flags),
        Command::Routes(command) => routes::run(command),
        Command::Bundle(command) => bundle::run(&command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli::completed(Cli::command()), "thalweg", &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            let is_bash = shell == clap_complete::Shell::Bash;
            print_or_gone(&if is_bash { cli::bash_with_files(script) } else { script });
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
