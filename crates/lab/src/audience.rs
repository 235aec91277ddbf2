//! `thalweg-lab audience`: viewers behind emulated paths of a server on this machine, outside the emulation.
//!
//! **Invariant:** the server sees each viewer's own address, so what it tells by network is true of the paths.

mod crowds;
mod server;
mod table;

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use crowds::Behind;
use server::Watched;
use table::{Row, table};
use thalweg_lab::emulation::{Emulation, Family};
use thalweg_lab::load::raise_files;
use thalweg_lab::scenario::{self, Scenario};
use thalweg_lab::signals::Signals;
use thalweg_record::units::Span;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::paths;

/// Viewers at most: an emulation in user space carries some hundred Mbit/s.
const VIEWERS_MAX: u64 = 10_000;
/// The networks of viewers unless a scenario is given.
const PATHS: &str = include_str!("audience/paths.toml");
/// How often it is seen whether viewers have left, or the server has come.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many looks the table is shown anew.
const SHOW_LOOKS: u32 = 3;

/// What to watch, and from where.
#[derive(Debug, Args)]
#[command(after_help = "\
The server runs on this machine as ever and listens at all addresses, such as 0.0.0.0:8080. While the audience watches, this \
machine has the address 203.0.113.1, and a route for each of the prefixes 198.18.1.0/24 to 198.18.8.0/24 (or those of the \
scenario), by which the server sees each viewer's own address. All of it is gone at the end.

Viewers send CMCD, stay for 40 s, and others come. On a terminal a table tells each 3 s how they are, behind which path; the last one is \
printed at the end in any case.

Examples:
  thalweg-lab audience http://127.0.0.1:8080/live/demo/manifest.mpd http://127.0.0.1:8080/vod/sample/master.m3u8
  thalweg-lab audience --scenario mine.toml --viewers 12 --duration 5min http://127.0.0.1:8080/live/demo/manifest.mpd

Needs root. Exit status: 0 done, whatever was seen; 2 wrong use, or a machine or server that cannot.")]
pub(crate) struct Audience {
    /// MPDs or playlists of a server on this machine; viewers take turns
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// A scenario's file, or the name of a path [default: the named paths and one more]
    #[arg(long, value_name = "FILE|NAME")]
    scenario: Option<PathBuf>,
    /// How many viewers there are at a time, over all paths
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = RangedU64ValueParser::<usize>::new().range(1..=VIEWERS_MAX))]
    viewers: usize,
    /// How long to watch [default: until Ctrl-C]
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// How long to wait for the server to have what is watched
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    /// Only see whether this machine can: set all up and take it away
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(asked: &Audience) -> anyhow::Result<ExitCode> {
    let scenario = match &asked.scenario {
        Some(file) => paths::read(file)?,
        None => scenario::read(PATHS, &|_| unreachable!("it names none"))?,
    };
    let watched: Vec<Watched> =
        asked.urls.iter().map(|url| Watched::read(url)).collect::<anyhow::Result<_>>()?;
    let family = server::family(&watched)?;
    // Before anything is there that a signal would leave behind.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _within = runtime.enter();
        Signals::take()?
    };
    if !asked.check && !runtime.block_on(wait(&watched, asked.wait.duration, &mut signals))? {
        return Ok(ExitCode::SUCCESS);
    }
    raise_files(asked.viewers)?;
    let emulation = Emulation::start_with_host(&scenario, family)?;
    if !asked.check {
        for watched in &watched {
            watched.reach(&emulation)?;
        }
        runtime.block_on(attend(&emulation, &watched, family, asked, &mut signals))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the server has all that is watched; false if it is to end instead.
async fn wait(watched: &[Watched], most: Duration, signals: &mut Signals) -> anyhow::Result<bool> {
    let until = Instant::now() + most;
    for watched in watched {
        while let Err(said) = watched.is_there().await {
            if Instant::now() >= until {
                bail!("{watched}: {said}");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = signals.next() => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Has viewers watch until time is up or a signal comes, and tells how they are.
async fn attend(
    emulation: &Emulation,
    watched: &[Watched],
    family: Family,
    asked: &Audience,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let targets: Vec<_> = watched.iter().map(|watched| watched.as_clients_see_it(emulation)).collect();
    let mut crowds = Vec::new();
    // A path may be left without any.
    let shares = shares(asked.viewers, emulation.scenario()).enumerate().filter(|(_, viewers)| *viewers > 0);
    for (path, viewers) in shares {
        let crowd =
            Behind::start(emulation, path, (&targets, family), viewers).context("starting viewers")?;
        crowds.push(crowd);
    }
    eprintln!("{} viewers behind {} paths; Ctrl-C ends them", asked.viewers, crowds.len());
    let began = Instant::now();
    let end = asked.duration.map(|span| began + span.duration);
    let mut changes = emulation.scenario().changes().into_iter().peekable();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen { lines: 0 };
    let mut look = 0;
    loop {
        let next = changes.peek().map(|(_, change)| began + change.at);
        tokio::select! {
            _ = looks.tick() => {
                for crowd in &mut crowds {
                    crowd.renew().context("viewers")?;
                }
                if look % SHOW_LOOKS == 0 && stdout().is_terminal() {
                    screen.show(&table(&rows(emulation, family, &crowds)));
                }
                look += 1;
            }
            () = sleep_until(next.unwrap_or(began)), if next.is_some() => {
                let (path, change) = changes.next().expect("it was looked at");
                emulation.change(path, &change)?;
            }
            () = sleep_until(end.unwrap_or(began)), if end.is_some() => break,
            _ = signals.next() => break,
        }
    }
    screen.show(&table(&rows(emulation, family, &crowds)));
    Ok(())
}

/// How many viewers are behind each path: the first have one more where it does not come out even.
fn shares(viewers: usize, scenario: &Scenario) -> impl Iterator<Item = usize> {
    let paths = scenario.paths.len();
    (0..paths).map(move |path| viewers / paths + usize::from(path < viewers % paths))
}

fn rows<'a>(emulation: &'a Emulation, family: Family, crowds: &[Behind<'_>]) -> Vec<Row<'a>> {
    let row = |(index, crowd): (usize, &Behind<'_>)| Row {
        path: &emulation.scenario().paths[index].name,
        prefix: crowds::prefix(emulation, index, family),
        viewers: crowd.viewers(),
        figures: crowd.figures(),
    };
    crowds.iter().enumerate().map(row).collect()
}

/// Where the table is shown: on a terminal each in place of the one before.
struct Screen {
    /// Of the table before.
    lines: usize,
}

impl Screen {
    fn show(&mut self, table: &str) {
        let back = if self.lines > 0 { format!("\x1b[{}A\x1b[J", self.lines) } else { String::new() };
        // A reader that has gone, such as `head`, has what it wanted.
        let _ = stdout().write_all(format!("{back}{table}").as_bytes());
        self.lines = table.lines().count();
    }
}
