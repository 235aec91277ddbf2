//! Compares Thalweg's edge with Debian's nginx, Varnish and Traffic Server: the cost of each case,
//! in one run, under equal conditions.
//!
//! Arguments: names of cases (default: all), and `--quick` for fewer rounds. Results are also
//! written to `target/bench-edge.json`.
//!
//! All servers run on one core, one after another within each round. Clients and backend run on the
//! other core, in this process, which never sleeps (`support::never_sleep`). All use the system's
//! congestion control, because nginx and Varnish cannot set it.

mod backend;
mod cases;
mod load;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use backend::Backend;
use cases::{Bench, connections, disk, hits, joiners, misses, relay};
use servers::Site;
use table::Table;
use tokio::signal::unix::{SignalKind, signal};

/// Minimum limit on open files: enough for a file per connection in the largest case.
const OPEN_FILES_MIN: u64 = 12_000;
const CASES: [&str; 6] = ["hits", "disk", "misses", "joiners", "relay", "idle"];

fn main() -> Result<()> {
    let (mut chosen, mut quick) = (Vec::new(), false);
    for argument in std::env::args().skip(1) {
        match CASES.iter().find(|case| **case == argument) {
            Some(case) => chosen.push(*case),
            None if argument == "--quick" => quick = true,
            None if argument == "--bench" => {} // cargo's
            None => bail!("unknown case {argument:?}: choose from {}", CASES.join(", ")),
        }
    }
    if chosen.is_empty() {
        chosen.extend(CASES);
    }
    support::leave_server_core()?;
    raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(support::never_sleep());
        let mut terminated = signal(SignalKind::terminate())?;
        // However the run ends, stop the servers and remove their stored data.
        tokio::select! {
            ended = run(&chosen, quick) => ended,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("terminated"),
        }
    })
}

/// Raises the limit on open files, which the servers inherit.
fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let files = limit.maximum.unwrap_or(u64::MAX);
    if files < OPEN_FILES_MIN {
        bail!(
            "the limit on open files is {files}, but at least {OPEN_FILES_MIN} are needed: raise it (ulimit -n)"
        );
    }
    Ok(())
}

async fn run(chosen: &[&str], quick: bool) -> Result<()> {
    let begun = Instant::now();
    let backend = Backend::start().await?;
    let bench = Bench { site: Site::new(backend.address)?, backend, quick };
    let conditions = conditions()?;
    println!("medians (lowest–highest) of rounds in turn; ratios within a round");
    for (name, value) in &conditions {
        println!("{name}: {value}");
    }
    println!();
    let mut tables = Vec::new();
    for case in chosen {
        tables.extend(match *case {
            "hits" => hits::run(&bench).await,
            "disk" => disk::run(&bench).await,
            "misses" => misses::run(&bench).await,
            "joiners" => joiners::run(&bench).await,
            "relay" => relay::run(&bench).await,
            _ => connections::run(&bench).await,
        }?);
    }
    let path = support::target_directory()?.join("bench-edge.json");
    std::fs::write(&path, format!("{:#}\n", table::json(&conditions, &tables)))?;
    summary(&tables);
    println!("{:.0} s; figures in {}", begun.elapsed().as_secs_f64(), path.display());
    Ok(())
}

/// Describes the conditions of the measurement: cores, congestion control and versions.
fn conditions() -> Result<[(&'static str, String); 4]> {
    let congestion_control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let cores = format!(
        "servers on core {}, clients and backend on core {}",
        support::SERVER_CORE,
        support::CLIENT_CORE
    );
    Ok([
        ("congestion control of all", congestion_control.trim().to_owned()),
        ("kernel", kernel.trim().to_owned()),
        ("cores", cores),
        ("peers", servers::versions().context("cannot read the versions of the peers")?),
    ])
}

fn summary(tables: &[Table]) {
    let verdicts: Vec<_> =
        tables.iter().flat_map(|table| table.verdicts.iter().map(move |of| (table, of))).collect();
    let met = verdicts.iter().filter(|(_, verdict)| verdict.met).count();
    println!("targets: {met} of {} met", verdicts.len());
    for (table, verdict) in verdicts.iter().filter(|(_, verdict)| !verdict.met) {
        println!("  {}: {}", table.title, verdict.text);
    }
}
