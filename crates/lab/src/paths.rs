//! `thalweg-lab paths`: lists named paths, runs a command over some, and checks that they are what they say.

mod check;
mod run;

use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use thalweg_lab::emulation::Side;
use thalweg_lab::scenario::{self, Scenario, library, named};

/// What to do with paths.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Name the paths that come with the lab
    List,
    /// Print a named path as text, to begin one's own with
    Show {
        /// Its name
        name: String,
    },
    /// Measure paths, one after the other, and compare with what they say
    #[command(after_help = "\
Delay within 1 ms, rate within 3 %, loss within four standard deviations, and no packet but one in a thousand more than 1 ms later
than it should be, and no more than one in 10,000 lost by the emulator itself. Exit status 1 if one is not. Some ten seconds a path; needs root.")]
    Check {
        /// Scenarios' files, or names of paths; all named ones if there is none
        #[arg(value_name = "FILE|NAME")]
        scenarios: Vec<PathBuf>,
        /// Print all of it as JSON, at the end
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

The server's side is a network of its own: its 127.0.0.1 is not this machine's, so what a server needs runs beside it. The command
begins at once; curl tries again until the server listens.

The clients' side has an address of each path, and the whole prefix of it: curl --interface 198.18.2.9 comes from the second
path. Environment of both commands:
  LAB_SERVER4, LAB_SERVER6    the server's addresses
  LAB_CLIENTS                 of each path NAME=IPV4,IPV6 with the first address of its prefixes
  LAB_NETNS_CLIENTS, LAB_NETNS_SERVER   files for nsenter --net=FILE

Needs root. Everything it made is gone when the command ends; so is the server.")]
    Run {
        /// A scenario's file, or the name of a path
        #[arg(value_name = "FILE|NAME")]
        scenario: PathBuf,
        /// Run this by the shell on the server's side meanwhile
        #[arg(long, value_name = "COMMAND")]
        server: Option<String>,
        /// On which side the command runs
        #[arg(long, value_enum, default_value_t = On::Clients)]
        on: On,
        /// The command with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// A side, as it is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum On {
    /// Where the clients are
    Clients,
    /// Where the server is
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
    print_or_gone(&text);
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> anyhow::Result<ExitCode> {
    let Some(path) = named(name) else { bail!("no path is called {name:?}: see thalweg-lab paths list") };
    print_or_gone(path.text);
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output; a reader that has gone, such as `head`, has what it wanted.
fn print_or_gone(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// All these in one; all named paths if there are none.
pub(crate) fn read_all(files: &[PathBuf]) -> anyhow::Result<Scenario> {
    let names: Vec<PathBuf> = library().iter().map(|path| path.name.into()).collect();
    let files = if files.is_empty() { &names } else { files };
    let scenarios: Vec<Scenario> = files.iter().map(|file| read(file)).collect::<anyhow::Result<_>>()?;
    Ok(scenario::together(scenarios)?)
}

/// The scenario in that file, or of the path of that name.
pub(crate) fn read(file: &Path) -> anyhow::Result<Scenario> {
    if let Some(path) = file.to_str().and_then(named)
        && !file.exists()
    {
        return Ok(scenario::read(&format!("[[path]]\nuse = {:?}\n", path.name), &|_| {
            unreachable!("it names none")
        })?);
    }
    let text = fs::read_to_string(file).with_context(|| {
        format!("{}: neither a file nor a named path (thalweg-lab paths list)", file.display())
    })?;
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let read_file = |name: &str| fs::read_to_string(directory.join(name));
    scenario::read(&text, &read_file).with_context(|| file.display().to_string())
}
