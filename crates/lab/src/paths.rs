//! `thalweg-lab paths`: lists named paths, runs a command over paths, and checks that paths behave
//! as described.

mod check;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use thalweg_netem::emulation::Side;
use thalweg_netem::scenario::{self, Scenario, library, named};

use crate::results::print;

/// Subcommands of `paths`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the named paths
    List,
    /// Print a named path as a starting point for your own
    Show {
        /// Path name
        name: String,
    },
    /// Measure paths one by one and compare them with their descriptions
    #[command(after_help = "\
A path passes if its delay is within 1 ms, its rate within 3 %, its loss within four standard deviations, at most one packet in
1,000 is more than 1 ms late, and the emulator itself loses at most one packet in 10,000. Exit status 1 if a path fails. Takes
about ten seconds per path; needs root.")]
    Check {
        /// Scenario files or named paths [default: all named paths]
        #[arg(value_name = "FILE|NAME")]
        scenarios: Vec<PathBuf>,
        /// Print the results as JSON at the end
        #[arg(long)]
        json: bool,
    },
    /// Run a command on one side of emulated paths, and a server on the other
    #[command(after_help = "\
Examples:
  thalweg-lab paths run satellite \\
      --server 'thalweg origin --media assets & thalweg edge --listen [::]:80 --backend http://127.0.0.1:8081' -- \\
      curl --fail --retry 9 --retry-connrefused -o /dev/null http://203.0.113.1/vod/sample/master.m3u8
  thalweg-lab paths run mine.toml -- bash

The server's side is a separate network: its 127.0.0.1 is not this machine's, so run the server's own dependencies on that side.
The command starts at once; curl retries until the server listens.

Clients have a whole prefix of addresses for each path: for example, curl --interface 198.18.2.9 uses the second path.
Environment of both commands:
  LAB_SERVER4, LAB_SERVER6    the server's addresses
  LAB_CLIENTS                 for each path NAME=IPV4,IPV6: the first addresses of its prefixes
  LAB_NETNS_CLIENTS, LAB_NETNS_SERVER   files for nsenter --net=FILE

Needs root. When the command ends, the server is stopped and everything is removed.")]
    Run {
        /// Scenario file or named path
        #[arg(value_name = "FILE|NAME")]
        scenario: PathBuf,
        /// Shell command to run on the server's side at the same time
        #[arg(long, value_name = "COMMAND")]
        server: Option<String>,
        /// Side on which the command runs
        #[arg(long, value_enum, default_value_t = On::Clients)]
        on: On,
        /// Command to run, with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// A side of the emulation, as a command-line value.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum On {
    /// The clients' side
    Clients,
    /// The server's side
    Server,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List => list(),
        Command::Show { name } => show(&name),
        Command::Check { scenarios, json } => check::run(&read_all(&scenarios)?, json),
        Command::Run { scenario, server, on, command } => {
            let side = match on {
                On::Clients => Side::Clients,
                On::Server => Side::Server,
            };
            run::run(&read(&scenario)?, server.as_deref(), side, &command)
        }
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for path in library() {
        text += &format!("{:<12}{}\n", path.name, path.about());
    }
    print(&text);
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> anyhow::Result<ExitCode> {
    let Some(path) = named(name) else { bail!("unknown path {name:?}: see thalweg-lab paths list") };
    print(path.text);
    Ok(ExitCode::SUCCESS)
}

/// Reads and combines scenarios. If `files` is empty, uses all named paths.
pub(crate) fn read_all(files: &[PathBuf]) -> anyhow::Result<Scenario> {
    let names: Vec<PathBuf> = library().iter().map(|path| path.name.into()).collect();
    let files = if files.is_empty() { &names } else { files };
    let scenarios: Vec<Scenario> = files.iter().map(|file| read(file)).collect::<anyhow::Result<_>>()?;
    Ok(scenario::combine(scenarios)?)
}

/// Reads a scenario file, or a named path if the file does not exist.
pub(crate) fn read(file: &Path) -> anyhow::Result<Scenario> {
    if let Some(path) = file.to_str().and_then(named)
        && !file.exists()
    {
        return Ok(scenario::read(&format!("[[path]]\nuse = {:?}\n", path.name), &|_| {
            unreachable!("a named path includes no file")
        })?);
    }
    let text = fs::read_to_string(file).with_context(|| {
        format!("{}: neither a file nor a named path (thalweg-lab paths list)", file.display())
    })?;
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let read_file = |name: &str| fs::read_to_string(directory.join(name));
    scenario::read(&text, &read_file).with_context(|| file.display().to_string())
}
