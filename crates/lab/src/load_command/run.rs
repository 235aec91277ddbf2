//! `thalweg-lab load` without a subcommand: turns the arguments into a load, runs it, and writes
//! the figures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use thalweg_load::client::Plan;
use thalweg_load::connection::{Protocols, Timeouts, Trust};
use thalweg_load::engine::{self, Clients, Load};
use thalweg_load::schedule::{Population, Ramp, Rate, Storm};
use thalweg_load::script::{Script, ScriptFile};
use thalweg_load::sources::{Source, Sources};
use thalweg_load::target::{Target, read_field};
use thalweg_load::viewer::crowd::CrowdPlan;
use thalweg_load::viewer::shared::Behaviour;
use thalweg_load::viewer::spread::Offsets;
use thalweg_netem::signals::Signals;
use thalweg_units::{Rate as BitRate, Size, Span};

use super::progress::Progress;
use super::{Output, cores};

/// Exit status if requests failed.
const FAILED: u8 = 1;

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  50 clients, each sending its next request once it has the response (closed model):
    thalweg-lab load --clients 50 --duration 10s http://127.0.0.1:8080/a
  5,000 requests per second regardless of the server's speed; times count from when each request was due (open model):
    thalweg-lab load --rate 5000/s --clients 200 --duration 30s http://127.0.0.1:8080/a
  20 more clients every 5 s up to 600, and another 500 at once after 30 s:
    thalweg-lab load --ramp 20/5s..600 --storm 500@30s --duration 3min http://127.0.0.1:8080/a
  On-demand viewing: consecutive ranges of 512 KiB of two files, from 49 addresses:
    thalweg-lab load --range 512KiB --source 127.0.0.2-127.0.0.50 --duration 10s http://…/a.mp4 http://…/b.mp4
  HTTP/2 over TLS with a handshake per request, to a server whose certificate is from a private authority:
    thalweg-lab load --http2 --fresh --ca authority.pem --duration 10s https://127.0.0.1:8443/a
  Every byte verified; load serve is the origin behind the server under test:
    thalweg-lab load --verify --requests 10000 'http://127.0.0.1:8080/a?bytes=1200000'
  Requests from a wrk script, with the argument --token abc:
    thalweg-lab load --clients 100 --duration 30s --script auth.lua http://127.0.0.1:8080/ -- --token abc
  10,000 viewers of a live channel, up to a minute behind, joining at 500 per second; 2,000 at once after 40 s:
    thalweg-lab load --viewers --ramp 500/1s..10000 --storm 2000@40s --offsets 0s..60s --source 127.0.1.0/24 \\
        --duration 60s http://127.0.0.1:8080/live/demo/manifest.mpd

A viewer reads the manifest, joins behind the live edge by the manifest's target latency plus its own offset, fetches chunk by
chunk, and keeps a playhead that stalls when its buffer is empty. Nothing is decoded.

Times: connect, the TCP handshake; tls, the TLS handshake; ttfb, from the last byte of the request to the first of the response;
ttlb, from the start of the request (including connecting, if necessary; with --rate, from its due time) to the last byte;
lateness, with --rate, from a request's due time until a client was free; chunk_gap, between the ends of two chunks; for
viewers, manifest and segment (the ttlb of these responses), startup, stall and live_latency.

An interrupt ends the load and reports the measurements so far. Exit status: 0 success; 1 if some requests failed or were not
sent, or none got a response; 2 for wrong usage or an unreachable server.")]
pub(crate) struct Arguments {
    /// URLs to request: http://HOST:PORT/PATH or https://…; several are requested in turn
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Simulate viewers of live or on-demand presentations; the URLs are MPDs or playlists
    #[arg(long, conflicts_with_all = ["rate", "requests", "warm_up", "random", "verify", "fresh", "cmcd_bitrate"])]
    viewers: bool,
    /// Initial clients, each with one request at a time [default: 10; 100 with --rate; none with
    /// --ramp or --storm]
    #[arg(long, short, value_name = "N")]
    clients: Option<usize>,
    /// Clients added over time: 20/5s..600 adds 20 every 5 s up to 600
    #[arg(long, value_name = "N/TIME..MAX")]
    ramp: Option<Ramp>,
    /// Clients that start all at once: 500@30s adds 500 after 30 s; may be repeated
    #[arg(long, value_name = "N@TIME")]
    storm: Vec<Storm>,
    /// Spread the start of the initial clients evenly over this time [default: 0s; 1s with
    /// --viewers]
    #[arg(long, value_name = "TIME")]
    join_within: Option<Span>,
    /// Send requests at this rate, such as 5000/s, whether or not earlier ones have completed
    #[arg(long, value_name = "N/s")]
    rate: Option<Rate>,
    /// End after this time, including the warm-up [default: 10s; 30s with --viewers; none with
    /// --requests]
    #[arg(long, short, value_name = "TIME")]
    duration: Option<Span>,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "warm_up")]
    requests: Option<u64>,
    /// Do not count requests started during this initial time
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Span,
    /// Request consecutive ranges of this size; with --viewers, only for on-demand content
    #[arg(long, value_name = "SIZE")]
    range: Option<Size>,
    /// Open a new connection for each request
    #[arg(long)]
    fresh: bool,
    /// Request URLs in random order, from this seed, instead of in turn
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Verify every byte of content from load serve; otherwise the kernel discards content
    #[arg(long)]
    verify: bool,
    /// A field to send with each request; may be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = read_field)]
    header: Vec<(String, String)>,
    /// Distance of viewers behind the live edge, as FROM..TO (uniform) or exp:MEAN; on demand,
    /// their start position
    #[arg(long, value_name = "TIMES", default_value = "0s", requires = "viewers")]
    offsets: Offsets,
    /// Media that viewers buffer before playing [default: set by the manifest, else 1s]
    #[arg(long, value_name = "TIME", requires = "viewers")]
    buffer: Option<Span>,
    /// Maximum media that viewers fetch ahead of the playhead
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "viewers")]
    ahead: Span,
    /// Send CMCD fields (CTA-5004): session, content, object type; viewers add their measurements
    #[arg(long)]
    cmcd: bool,
    /// Encoded bitrate to send in CMCD
    #[arg(long, value_name = "RATE", requires = "cmcd")]
    cmcd_bitrate: Option<BitRate>,
    /// Generate requests with a wrk script; its init() receives the arguments after --
    #[arg(long, value_name = "FILE", conflicts_with_all = ["viewers", "random", "range", "verify", "cmcd"])]
    script: Option<PathBuf>,
    /// Use HTTP/2 instead of HTTP/1.1: with ALPN over TLS, with prior knowledge without TLS
    #[arg(long)]
    http2: bool,
    /// PEM file of certificate authorities to trust besides the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate, regardless of issuer, name and date: only for servers under test
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Addresses to connect from, in turn: ADDRESS, FIRST-LAST or PREFIX/LENGTH; may be repeated
    #[arg(long, value_name = "ADDRESSES")]
    source: Vec<Source>,
    /// Time limit for connecting and, separately, for the TLS handshake
    #[arg(long, value_name = "TIME", default_value = "5s")]
    connect_timeout: Span,
    /// Time limit for a response's head
    #[arg(long, value_name = "TIME", default_value = "30s")]
    head_timeout: Span,
    /// Time limit for a pause in the content
    #[arg(long, value_name = "TIME", default_value = "30s")]
    content_timeout: Span,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    output: Output,
    /// Arguments for the script
    #[arg(last = true, value_name = "ARGUMENT", requires = "script")]
    script_arguments: Vec<String>,
}

const CLIENTS_DEFAULT: usize = 10;
/// With `--rate`, clients only limit the number of requests in flight.
const CLIENTS_DEFAULT_RATE: usize = 100;

/// Default measured time, used if neither a duration nor a number of requests is given.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const DURATION_DEFAULT_VIEWERS: Duration = Duration::from_secs(30);
/// Default time over which viewers join. Joining all at once is a storm, which needs `--storm`.
const JOIN_WITHIN_VIEWERS: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load = read(arguments)?;
    arguments.output.check()?;
    let mut progress = Progress::start();
    // Once the handlers are installed, the figures are written even after a signal.
    let (runtime, mut signals) = Signals::install()?;
    let interrupted = async {
        signals.next().await;
    };
    let figures = runtime.block_on(engine::run(&load, interrupted, |snapshot| progress.show(snapshot)))?;
    progress.end();
    let written = arguments.output.write(&figures);
    if let Clients::Scripted(_, script) = &load.clients
        && let Err(wrong) = script.done(&figures)
    {
        eprintln!("thalweg-lab: {wrong}");
        return Ok(ExitCode::from(FAILED));
    }
    written?;
    // A server that never responds causes no errors, so check for zero responses as well.
    let is_failed = figures.errors_total() > 0 || figures.requests == 0 || figures.unsent > 0;
    Ok(if is_failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn read(arguments: &Arguments) -> anyhow::Result<Load> {
    let trust = if arguments.insecure { Trust::Any } else { Trust::Authorities(arguments.ca.clone()) };
    let protocols = Protocols::new(arguments.http2, trust);
    let targets: Vec<Target> = arguments
        .urls
        .iter()
        .map(|url| Target::new(url, &arguments.header, &protocols))
        .collect::<Result<_, _>>()
        .map_err(anyhow::Error::msg)?;
    let sources = Sources(arguments.source.clone());
    if let Some(target) = targets.iter().find(|target| !sources.suit(target.server.address.ip())) {
        bail!(
            "{}: resolves to {}, but --source has addresses of the other family",
            target.url,
            target.server.address
        );
    }
    if arguments.range.is_some_and(|range| range.bytes == 0) {
        bail!("--range 0B: must be at least one byte");
    }
    let warm_up = arguments.warm_up.duration;
    let duration = match (arguments.duration, arguments.requests) {
        (Some(duration), _) => Some(duration.duration),
        (None, Some(_)) => None,
        (None, None) if arguments.viewers => Some(DURATION_DEFAULT_VIEWERS),
        (None, None) => Some(warm_up + DURATION_DEFAULT),
    };
    if duration.is_some_and(|duration| duration <= warm_up) {
        bail!(
            "--duration {:?}: must be longer than the warm-up of {warm_up:?}",
            duration.unwrap_or_default()
        );
    }
    let population = population(arguments)?;
    let threads = arguments.threads.map_or_else(cores, usize::from).min(population.clients());
    Ok(Load {
        clients: clients(arguments, targets, sources, threads)?,
        population,
        rate: arguments.rate,
        duration,
        requests: arguments.requests,
        warm_up,
        threads,
        arguments: recorded_arguments(std::env::args().skip(1)),
    })
}

/// Returns the command line to record with the figures, without field values, which may be secret.
fn recorded_arguments(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_field = false;
    let strike = |argument: String| {
        let is_value = std::mem::replace(&mut is_field, matches!(&*argument, "-H" | "--header"));
        let is_both = argument.starts_with("-H") || argument.starts_with("--header=");
        match argument.split_once(':') {
            Some((name, _)) if is_value || is_both => format!("{name}: …"),
            _ => argument,
        }
    };
    arguments.map(strike).collect()
}

fn clients(
    arguments: &Arguments,
    targets: Vec<Target>,
    sources: Sources,
    threads: usize,
) -> anyhow::Result<Clients> {
    let timeouts = Timeouts {
        connect: arguments.connect_timeout.duration,
        head: arguments.head_timeout.duration,
        content: arguments.content_timeout.duration,
    };
    let range_bytes = arguments.range.map(|range| range.bytes);
    if arguments.viewers {
        let behaviour = Behaviour {
            threshold: arguments.buffer.map(|buffer| buffer.duration),
            ahead: arguments.ahead.duration,
            range_bytes,
            cmcd: arguments.cmcd,
        };
        return Ok(Clients::Viewers(CrowdPlan {
            targets,
            offsets: arguments.offsets,
            sources,
            timeouts,
            behaviour,
        }));
    }
    let plan = Plan {
        targets,
        random: arguments.random,
        range_bytes,
        is_fresh: arguments.fresh,
        verify: arguments.verify,
        cmcd: arguments.cmcd.then(|| arguments.cmcd_bitrate.map(|rate| rate.bits_per_s / 1000)),
        timeouts,
        sources,
    };
    match &arguments.script {
        None => Ok(Clients::Requests(plan)),
        Some(file) => {
            let script = script(arguments, file, &plan.targets, threads).map_err(anyhow::Error::msg)?;
            Ok(Clients::Scripted(plan, Arc::new(script)))
        }
    }
}

fn script(arguments: &Arguments, file: &Path, targets: &[Target], threads: usize) -> Result<Script, String> {
    let [target] = targets else {
        return Err("--script: expected one URL; the script chooses further requests".to_owned());
    };
    let is_output_taken = arguments.output.is_standard_output();
    let source = ScriptFile::read(file, target, &arguments.header, is_output_taken)?;
    Script::load(&source, &arguments.script_arguments, threads, target.server.address)
}

fn population(arguments: &Arguments) -> anyhow::Result<Population> {
    let clients =
        arguments.clients.unwrap_or(match (arguments.rate, arguments.ramp, arguments.storm.len()) {
            (_, Some(_), _) | (_, None, 1..) => 0,
            (Some(_), None, 0) => CLIENTS_DEFAULT_RATE,
            (None, None, 0) => CLIENTS_DEFAULT,
        });
    let usual = if arguments.viewers { JOIN_WITHIN_VIEWERS } else { Duration::ZERO };
    let within = arguments.join_within.map_or(usual, |within| within.duration);
    Population::new(clients, within, arguments.ramp, &arguments.storm)
        .map_err(|error| anyhow!(error))
        .context("--clients, --ramp, --storm")
}
