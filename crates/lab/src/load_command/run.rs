//! Runs a load as the command line says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use thalweg_lab::load::client::Plan;
use thalweg_lab::load::connection::{Protocols, Timeouts, Trust};
use thalweg_lab::load::engine::{self, Clients, Load};
use thalweg_lab::load::schedule::{Population, Ramp, Rate, Storm};
use thalweg_lab::load::script::{Script, ScriptFile};
use thalweg_lab::load::sources::{Source, Sources};
use thalweg_lab::load::target::{Target, read_field};
use thalweg_lab::viewer::crowd::Orders;
use thalweg_lab::viewer::shared::Behaviour;
use thalweg_lab::viewer::spread::Offsets;
use thalweg_record::units::{Rate as BitRate, Size, Span};

use super::progress::Progress;
use super::{Output, cores};

/// Exit status where requests failed.
const FAILED: u8 = 1;

/// A load.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  50 clients, each asks again as soon as it has been answered (closed model):
    thalweg-lab load --clients 50 --duration 10s http://127.0.0.1:8080/a
  5,000 requests a second whatever the server does; times count from when each was due (open model):
    thalweg-lab load --rate 5000/s --clients 200 --duration 30s http://127.0.0.1:8080/a
  20 more clients each 5 s up to 600; 500 at once after 30 s beside them:
    thalweg-lab load --ramp 20/5s..600 --storm 500@30s --duration 3min http://127.0.0.1:8080/a
  On-demand viewing: ranges of 512 KiB one after the other, of two files, from 49 addresses:
    thalweg-lab load --range 512KiB --source 127.0.0.2-127.0.0.50 --duration 10s http://…/a.mp4 http://…/b.mp4
  HTTP/2 over TLS, a handshake for each request, with a server whose certificate an authority of one's own has signed:
    thalweg-lab load --http2 --fresh --ca authority.pem --duration 10s https://127.0.0.1:8443/a
  Every byte verified, against load serve behind whatever is between:
    thalweg-lab load --verify --requests 10000 'http://127.0.0.1:8080/a?bytes=1200000'
  Requests by a script of wrk, which is given --token abc:
    thalweg-lab load --clients 100 --duration 30s --script auth.lua http://127.0.0.1:8080/ -- --token abc
  10,000 viewers of a live channel, up to a minute behind, 500 more each second; 2,000 at once after 40 s:
    thalweg-lab load --viewers --ramp 500/1s..10000 --storm 2000@40s --offsets 0s..60s --source 127.0.1.0/24 \\
        --duration 60s http://127.0.0.1:8080/live/demo/manifest.mpd

A viewer reads the manifest, joins behind the live edge as far as the manifest wants players to be and its own offset more, follows
chunk by chunk, and keeps a playhead that stalls when its buffer is empty. Nothing is decoded.

Times: connect of TCP; tls of its handshake; ttfb from the last byte of the request to the first of the response; ttlb from the start
of the request, with its connection if it needed one, to the last byte, under --rate from when the request was due; lateness, under
--rate, until a client was free for it; chunk_gap between the ends of two chunks; of viewers startup, stall, live_latency.

Interrupted, it ends and tells what it has. Exit status: 0 done, 1 some requests failed, were due and not sent, or none was answered, 2 wrong use or no server there.")]
pub(crate) struct Arguments {
    /// What to ask for: http://HOST:PORT/PATH or https://…; several are asked for in turn
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Each client watches a live or on-demand presentation: URLs are MPDs or playlists
    #[arg(long, conflicts_with_all = ["rate", "requests", "warm_up", "random", "verify", "fresh", "cmcd_bitrate"])]
    viewers: bool,
    /// Clients from the start, each with one request at a time [default: 10; 100 with --rate; none with --ramp or --storm]
    #[arg(long, short, value_name = "N")]
    clients: Option<usize>,
    /// More clients by and by: 20/5s..600 is 20 more each 5 s up to 600
    #[arg(long, value_name = "N/TIME..MAX")]
    ramp: Option<Ramp>,
    /// Clients that start all at once: 500@30s is 500 after 30 s; may be repeated
    #[arg(long, value_name = "N@TIME")]
    storm: Vec<Storm>,
    /// The clients from the start begin evenly within this time [default: 0s; 1s with --viewers]
    #[arg(long, value_name = "TIME")]
    join_within: Option<Span>,
    /// Requests are due at this rate, as 5000/s, whether or not earlier ones have ended
    #[arg(long, value_name = "N/s")]
    rate: Option<Rate>,
    /// End after so long, the warm-up included [default: 10s; 30s with --viewers; none with --requests]
    #[arg(long, short, value_name = "TIME")]
    duration: Option<Span>,
    /// End after so many requests
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "warm_up")]
    requests: Option<u64>,
    /// Do not count what begins within so long from the start
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Span,
    /// Ask for ranges of this size, one after the other; viewers on demand
    #[arg(long, value_name = "SIZE")]
    range: Option<Size>,
    /// A new connection for each request
    #[arg(long)]
    fresh: bool,
    /// URLs at random, from this seed, instead of in turn
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Compare every byte with what path and offset say (load serve); else content is discarded in the kernel
    #[arg(long)]
    verify: bool,
    /// A field of each request; may be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = read_field)]
    header: Vec<(String, String)>,
    /// How far behind viewers are: FROM..TO evenly, or exp:MEAN; on demand, where they begin
    #[arg(long, value_name = "TIMES", default_value = "0s", requires = "viewers")]
    offsets: Offsets,
    /// Media that viewers buffer before they show it [default: what the manifest wants, else 1s]
    #[arg(long, value_name = "TIME", requires = "viewers")]
    buffer: Option<Span>,
    /// Media that viewers fetch ahead of the playhead at most
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "viewers")]
    ahead: Span,
    /// Send CMCD fields (CTA-5004): session, content, object type; viewers also what they measure
    #[arg(long)]
    cmcd: bool,
    /// The encoded bitrate that CMCD tells
    #[arg(long, value_name = "RATE", requires = "cmcd")]
    cmcd_bitrate: Option<BitRate>,
    /// Ask for what a script of wrk says; its init() is given what follows --
    #[arg(long, value_name = "FILE", conflicts_with_all = ["viewers", "random", "range", "verify", "cmcd"])]
    script: Option<PathBuf>,
    /// Speak HTTP/2: by ALPN over TLS, by prior knowledge without; else HTTP/1.1
    #[arg(long)]
    http2: bool,
    /// Authorities to trust beside the system's, in PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Take any certificate, whoever signed it, for whatever name and date: for servers under test only
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Addresses to connect from, in turn: ADDRESS, FIRST-LAST or PREFIX/LENGTH; may be repeated
    #[arg(long, value_name = "ADDRESSES")]
    source: Vec<Source>,
    /// A connection may take so long, and its TLS handshake as long again
    #[arg(long, value_name = "TIME", default_value = "5s")]
    connect_timeout: Span,
    /// A response's head may take so long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    head_timeout: Span,
    /// Content may pause so long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    content_timeout: Span,
    /// Threads; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    output: Output,
    /// What a script is given
    #[arg(last = true, value_name = "ARGUMENT", requires = "script")]
    script_arguments: Vec<String>,
}

const CLIENTS_DEFAULT: usize = 10;
/// With a rate clients are only as many as may be under way at once.
const CLIENTS_DEFAULT_RATE: usize = 100;

/// It ends after so long if nothing says when.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const DURATION_DEFAULT_VIEWERS: Duration = Duration::from_secs(30);
/// Viewers begin within so long: all at once is a storm, and to be asked for.
const JOIN_WITHIN_VIEWERS: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load = read(arguments)?;
    arguments.output.check()?;
    let mut progress = Progress::begin();
    let figures = engine::run(&load, |moment| progress.tell(moment))?;
    progress.end();
    let written = arguments.output.write(&figures);
    if let Clients::Scripted(_, script) = &load.clients
        && let Err(wrong) = script.done(&figures)
    {
        eprintln!("thalweg-lab: {wrong}");
        return Ok(ExitCode::from(FAILED));
    }
    written?;
    // A server that answers nothing in all the time has no error of its own.
    let is_failed = figures.errors_total() > 0 || figures.requests == 0 || figures.unsent > 0;
    Ok(if is_failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn read(arguments: &Arguments) -> anyhow::Result<Load> {
    let trust = if arguments.insecure { Trust::Anybody } else { Trust::Authorities(arguments.ca.clone()) };
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
            "{}: is at {}, and --source has addresses of the other family",
            target.url,
            target.server.address
        );
    }
    if arguments.range.is_some_and(|range| range.bytes == 0) {
        bail!("--range 0B: a range has a byte at least");
    }
    let warm_up = arguments.warm_up.duration;
    let duration = match (arguments.duration, arguments.requests) {
        (Some(duration), _) => Some(duration.duration),
        (None, Some(_)) => None,
        (None, None) if arguments.viewers => Some(DURATION_DEFAULT_VIEWERS),
        (None, None) => Some(warm_up + DURATION_DEFAULT),
    };
    if duration.is_some_and(|duration| duration <= warm_up) {
        bail!("--duration {:?}: is over before the warm-up of {warm_up:?}", duration.unwrap_or_default());
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
        arguments: told(std::env::args().skip(1)),
    })
}

/// The command line as it is told with the figures: values of fields may be secret.
fn told(arguments: impl Iterator<Item = String>) -> Vec<String> {
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
        return Ok(Clients::Viewers(Orders {
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
        return Err("--script: is for one URL; the script says what else is asked for".to_owned());
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
