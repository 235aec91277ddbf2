//! Clients of a wrk script, as in the publication: the script reads the live channel's manifest and
//! requests segments at random offsets.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use thalweg_load::figures::{Figures, Time};
use thalweg_load::report::from_json;

use super::audience::Channel;
use super::processes::{LoadProcess, attend};
use super::{Bench, Quantiles, servers};

/// The script, which also runs in wrk.
const SCRIPT: &str = include_str!("live-offsets.lua");
/// Time over which clients start.
const JOIN_WITHIN: Duration = Duration::from_secs(2);
/// Extra time allowed for the process to exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of clients.
    pub clients: u64,
    /// How long the clients request segments.
    pub duration: Duration,
}

/// Results of the script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scripted {
    /// Number of clients.
    pub clients: u64,
    /// Completed requests, including those for the manifest.
    pub requests: u64,
    /// Failed requests.
    pub errors: u64,
    /// Content received, in bytes.
    pub content_bytes: u64,
    /// TTFB of the responses; `None` without responses.
    pub ttfb: Option<Quantiles>,
}

pub(super) async fn measure(bench: &Bench<'_>, channel: &Channel) -> anyhow::Result<Scripted> {
    let Plan { clients, duration } = bench.plan.script;
    (bench.log)(&format!("{clients} clients of a wrk script"));
    let (origin, manifest) = channel.manifest();
    let (_edge, edge) = servers::edge(bench.requirements, origin)?;
    let file = bench.scratch.path().join("live-offsets.lua");
    fs::write(&file, SCRIPT).with_context(|| file.display().to_string())?;
    let file = file.to_str().context("the temporary directory's name is not UTF-8")?;
    ensure!(!file.contains(char::is_whitespace), "{file}: the temporary directory's name contains a space");
    let (duration_ms, join_ms) = (duration.as_millis(), JOIN_WITHIN.as_millis());
    let offset_s = bench.plan.audience.offset_max.as_secs();
    let text = format!(
        "--clients {clients} --join-within {join_ms}ms --duration {duration_ms}ms --script {file} http://{edge}{manifest} -- {offset_s}"
    );
    let mut all = [LoadProcess::start(&bench.scratch, "script", &text)?];
    // Allow status 1: some requests may fail, and the figures count them.
    attend(&mut all, &[0, 1], duration + PATIENCE, |_| {}).await?;
    Ok(scripted(&from_json(&all[0].figures()?).context("cannot read the script's figures")?))
}

fn scripted(figures: &Figures) -> Scripted {
    Scripted {
        clients: figures.clients,
        requests: figures.requests,
        errors: figures.errors_total(),
        content_bytes: figures.content_bytes,
        ttfb: figures.time(Time::Ttfb).and_then(Quantiles::of_histogram),
    }
}
