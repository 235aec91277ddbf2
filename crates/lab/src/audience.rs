//! `thalweg-lab audience`: viewers behind emulated paths that watch a server running on this
//! machine, outside the emulation.
//!
//! **Invariant:** the server sees each viewer's own address, so its per-network figures match the
//! paths.

mod crowds;
mod server;
mod table;

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use crowds::PathCrowd;
use server::WatchedUrl;
use table::{Row, table};
use thalweg_load::raise_files;
use thalweg_netem::emulation::{Emulation, Family};
use thalweg_netem::scenario::{self, Path, Scenario};
use thalweg_netem::signals::Signals;
use thalweg_units::Span;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::paths;
use crate::results::print;

/// Maximum viewers. An emulation in user space carries only a few hundred Mbit/s, too little for
/// more.
const VIEWERS_MAX: u64 = 10_000;
/// The default scenario.
const PATHS: &str = include_str!("audience/paths.toml");
/// Interval at which crowds are renewed and the server is polled.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between redraws of the table.
const SHOW_EVERY_TICKS: u32 = 3;

/// Arguments of `audience`.
#[derive(Debug, Args)]
#[command(after_help = "\
The server runs on this machine as usual and listens on all addresses, such as 0.0.0.0:8080. While the audience watches, this \
machine has the address 203.0.113.1 and a route to each of the prefixes 198.18.1.0/24 to 198.18.8.0/24 (or those of the \
scenario), so the server sees each viewer's own address. The address and routes are removed at the end.

Viewers send CMCD and stay for 40 s, then others replace them. On a terminal, a table shows the playback quality behind each path \
every 3 s; the last table is always printed at the end.

Examples:
  thalweg-lab audience http://127.0.0.1:8080/live/demo/manifest.mpd http://127.0.0.1:8080/vod/sample/master.m3u8
  thalweg-lab audience --scenario mine.toml --viewers 12 --duration 5min http://127.0.0.1:8080/live/demo/manifest.mpd

Needs root. Exit status: 0 success, whatever the playback quality; 2 wrong usage, or an unsuitable machine or server.")]
pub(crate) struct Audience {
    /// URLs of MPDs or playlists on a server on this machine, assigned to viewers in turn
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Scenario file or named path [default: all named paths and an overloaded mobile cell]
    #[arg(long, value_name = "FILE|NAME")]
    scenario: Option<PathBuf>,
    /// Number of concurrent viewers across all paths
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = RangedU64ValueParser::<usize>::new().range(1..=VIEWERS_MAX))]
    viewers: usize,
    /// How long to watch [default: until Ctrl-C]
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// How long to wait until the server has the presentation
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    /// Only check that this machine is suitable: set everything up, then remove it
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Audience) -> anyhow::Result<ExitCode> {
    let scenario = match &arguments.scenario {
        Some(file) => paths::read(file)?,
        None => scenario::read(PATHS, &|_| unreachable!("the built-in scenario includes no file"))?,
    };
    let watched: Vec<WatchedUrl> =
        arguments.urls.iter().map(|url| WatchedUrl::read(url)).collect::<anyhow::Result<_>>()?;
    let family = server::family(&watched)?;
    // Install signal handlers first, so that a signal never leaves anything behind.
    let (runtime, mut signals) = Signals::install()?;
    if !arguments.check && !runtime.block_on(wait(&watched, arguments.wait.duration, &mut signals))? {
        return Ok(ExitCode::SUCCESS);
    }
    raise_files(arguments.viewers)?;
    let emulation = Emulation::start_with_host(&scenario, family)?;
    if !arguments.check {
        for watched in &watched {
            watched.check_reachable(&emulation)?;
        }
        runtime.block_on(attend(&emulation, &watched, family, arguments, &mut signals))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the server has all presentations. Returns `false` if a signal arrives first.
async fn wait(watched: &[WatchedUrl], most: Duration, signals: &mut Signals) -> anyhow::Result<bool> {
    let until = Instant::now() + most;
    for watched in watched {
        while let Err(reason) = watched.check_available().await {
            if Instant::now() >= until {
                bail!("{watched}: {reason}");
            }
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                _ = signals.next() => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Runs the viewers and shows the table until time is up or a signal arrives.
async fn attend(
    emulation: &Emulation,
    watched: &[WatchedUrl],
    family: Family,
    arguments: &Audience,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let targets: Vec<_> = watched.iter().map(|watched| watched.for_clients(emulation)).collect();
    let mut crowds = Vec::new();
    // Skip paths that get no viewers.
    let shares =
        shares(arguments.viewers, emulation.scenario()).enumerate().filter(|(_, viewers)| *viewers > 0);
    for (path, viewers) in shares {
        let crowd =
            PathCrowd::start(emulation, path, (&targets, family), viewers).context("cannot start viewers")?;
        crowds.push(crowd);
    }
    eprintln!("{} viewers behind {} paths; press Ctrl-C to stop", arguments.viewers, crowds.len());
    let began = Instant::now();
    let end = arguments.duration.map(|span| began + span.duration);
    let mut changes = emulation.scenario().changes().into_iter().peekable();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen { lines: 0 };
    let mut tick = 0;
    loop {
        let next = changes.peek().map(|(_, change)| began + change.at);
        tokio::select! {
            _ = ticks.tick() => {
                for crowd in &mut crowds {
                    crowd.renew().context("viewers")?;
                }
                if tick % SHOW_EVERY_TICKS == 0 && stdout().is_terminal() {
                    screen.show(&table(&rows(emulation, family, &crowds)).to_string());
                }
                tick += 1;
            }
            () = sleep_until(next.unwrap_or(began)), if next.is_some() => {
                let (path, change) = changes.next().expect("the change was peeked above");
                emulation.change(path, &change)?;
            }
            () = sleep_until(end.unwrap_or(began)), if end.is_some() => break,
            _ = signals.next() => break,
        }
    }
    screen.show(&table(&rows(emulation, family, &crowds)).to_string());
    Ok(())
}

/// Divides the viewers among the paths. If they do not divide evenly, each of the first paths gets
/// one more viewer.
fn shares(viewers: usize, scenario: &Scenario) -> impl Iterator<Item = usize> {
    let paths = scenario.paths.len();
    (0..paths).map(move |path| viewers / paths + usize::from(path < viewers % paths))
}

fn rows<'a>(emulation: &'a Emulation, family: Family, crowds: &[PathCrowd<'_>]) -> Vec<Row<'a>> {
    let row = |(path, crowd): (&'a Path, &PathCrowd<'_>)| Row {
        path: &path.name,
        prefix: family.prefix(path),
        viewers: crowd.viewers(),
        figures: crowd.figures(),
    };
    emulation.scenario().paths.iter().zip(crowds).map(row).collect()
}

/// Prints tables to the terminal, each in place of the previous one.
struct Screen {
    /// Number of lines in the previous table.
    lines: usize,
}

impl Screen {
    fn show(&mut self, table: &str) {
        let back = if self.lines > 0 { format!("\x1b[{}A\x1b[J", self.lines) } else { String::new() };
        print(&format!("{back}{table}"));
        self.lines = table.lines().count();
    }
}
