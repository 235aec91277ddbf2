//! The `thalweg` program: command line, config, and the roles in one process.
//!
//! Exit status: 0 success, 1 failure, 2 usage error. Usage errors, including an invalid config, are
//! reported before any role starts. `thalweg check` exits with 1 if a checked file is invalid,
//! because that is a result of the check and not a usage error.

mod advice;
mod agent;
mod check;
mod cli;
mod config;
mod console;
mod consumer;
mod controller;
mod inspect;
mod policy;
mod roles;
mod shutdown;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use thalweg_cli::{
    backends, bundle, log, policies, print_stdout, purge, query, routes, schema, simulate, sockets,
    start_logging,
};

use cli::{Cli, Command, OriginArgs, OriginCommand};
use config::{Config, Faults, Flags, Section};
use controller::ControllerCommand;
use thalweg_origin::inspect::InspectError;

/// Exit status for usage errors, the same as clap's.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report_failure(&failure);
            let is_misused =
                failure.is::<Faults>() || failure.is::<sockets::BadFilter>() || failure.is::<InspectError>();
            if is_misused { ExitCode::from(USAGE_ERROR) } else { ExitCode::FAILURE }
        }
    }
}

/// Reports a failure on standard error. Config faults are printed unchanged, each with its
/// location.
fn report_failure(failure: &anyhow::Error) {
    if failure.is::<Faults>() {
        eprintln!("{failure}");
    } else if failure.is::<policy::Refused>() || failure.is::<bundle::Refused>() {
        eprint!("{failure}");
    } else if !failure.is::<check::Failed>()
        && !failure.is::<schema::Differs>()
        && !failure.is::<inspect::Faulty>()
    {
        let text = format!("{failure:#}");
        // If an edge rejected a policy, the text is the compiler's report, which starts with the
        // severity of its first fault.
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
        Command::Edge(flags) => run_alone(&flags, |edge| Config { edge: Some(edge), ..Config::default() }),
        Command::Origin(OriginArgs { command: Some(OriginCommand::Status(args)), .. }) => {
            thalweg_cli::origin::status(&args)
        }
        Command::Origin(OriginArgs { command: Some(OriginCommand::Inspect(args)), .. }) => {
            inspect::run(&args)
        }
        Command::Origin(OriginArgs { flags, command: None }) => {
            run_alone(&flags, |origin| Config { origin: Some(origin), ..Config::default() })
        }
        Command::Agent(flags) => {
            run_alone(&flags, |agent| Config { agent: Some(agent), ..Config::default() })
        }
        Command::Source { media, to, token } => {
            start_logging();
            roles::run(&Config::from_source(media, to, token), false)
        }
        Command::Check { settings: true, .. } => {
            print_stdout(&config::reference());
            Ok(())
        }
        Command::Check { files, .. } => Ok(check::check(&files)?),
        Command::Log(args) => log::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Purge(args) => purge::purge(&args),
        Command::Ban(args) => purge::ban(args),
        Command::Bans(edge) => purge::bans(&edge),
        Command::Policy(command) => policies::run(command),
        Command::Backends(args) => backends::run(&args),
        Command::Schema(command) => schema::run(command),
        Command::Consumer(flags) => {
            run_alone(&flags, |consumer| Config { consumer: Some(consumer), ..Config::default() })
        }
        Command::Query(args) => query::run(&args),
        Command::Controller(ControllerCommand::Run(flags)) => {
            run_alone(&flags, |controller| Config { controller: Some(controller), ..Config::default() })
        }
        Command::Controller(ControllerCommand::Explain(args)) => thalweg_cli::controller::explain(&args),
        Command::Controller(ControllerCommand::Token(args)) => controller::create_token(&args),
        Command::Controller(ControllerCommand::Status(args)) => thalweg_cli::controller::status(&args),
        Command::Controller(ControllerCommand::Simulate(flags)) => simulate::run(&flags),
        Command::Routes(command) => routes::run(command),
        Command::Bundle(command) => bundle::run(&command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli::completed(Cli::command()), "thalweg", &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            let is_bash = shell == clap_complete::Shell::Bash;
            print_stdout(&if is_bash { cli::bash_with_files(script) } else { script });
            Ok(())
        }
    }
}

/// Runs one role, configured by its flags.
fn run_alone<S: Section>(flags: &Flags<S>, with: impl FnOnce(S) -> Config) -> anyhow::Result<()> {
    start_logging();
    roles::run(&Config::from_flags(flags, with)?, false)
}
