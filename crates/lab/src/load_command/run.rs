//! Runs a load as the command line says, with a line of progress on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use thalweg_lab::load::client::Plan;
use thalweg_lab::load::connection::{Protocols, Timeouts, Trust};
use thalweg_lab::load::engine::{self, Load, Moment};
use thalweg_lab::load::report::{bit_rate, time_text};
use thalweg_lab::load::schedule::{Population, Ramp, Rate, Storm};
use thalweg_lab::load::sources::{Source, Sources};
use thalweg_lab::load::target::{Target, read_field};
use thalweg_record::units::{Rate as BitRate, Size, Span};

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

Times: connect of TCP; tls of its handshake; ttfb from the last byte of the request to the first of the response; ttlb from the start of the request, with its
connection if it needed one, to the last byte; chunk_gap between the ends of two chunks of the chunked coding. Under --rate ttfb
and ttlb count from when the request was due.

Interrupted, it ends and tells what it has. Exit status: 0 done, 1 some requests failed, 2 wrong use or no server there.")]
pub(crate) struct Arguments {
    /// What to ask for: http://HOST:PORT/PATH or https://…; several are asked for in turn
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Clients from the start, each with one request at a time [default: 10; 100 with --rate; none with --ramp or --storm]
    #[arg(long, short, value_name = "N")]
    clients: Option<usize>,
    /// More clients by and by: 20/5s..600 is 20 more each 5 s up to 600
    #[arg(long, value_name = "N/TIME..MAX")]
    ramp: Option<Ramp>,
    /// Clients that start all at once: 500@30s is 500 after 30 s; may be repeated
    #[arg(long, value_name = "N@TIME")]
    storm: Vec<Storm>,
    /// Requests are due at this rate, as 5000/s, whether or not earlier ones have ended
    #[arg(long, value_name = "N/s")]
    rate: Option<Rate>,
    /// End after so long, the warm-up included [default: 10s unless --requests is given]
    #[arg(long, short, value_name = "TIME")]
    duration: Option<Span>,
    /// End after so many requests
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "warm_up")]
    requests: Option<u64>,
    /// Do not count what begins within so long from the start
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Span,
    /// Ask for ranges of this size, one after the other
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
    /// Send CMCD fields: session, content, object type
    #[arg(long)]
    cmcd: bool,
    /// The encoded bitrate that CMCD tells
    #[arg(long, value_name = "RATE", requires = "cmcd")]
    cmcd_bitrate: Option<BitRate>,
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
}

const CLIENTS_DEFAULT: usize = 10;
/// With a rate clients are only as many as may be under way at once.
const CLIENTS_DEFAULT_RATE: usize = 100;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load = read(arguments)?;
    let is_shown = stderr().is_terminal();
    let figures = engine::run(&load, |moment| {
        if is_shown {
            show(moment);
        }
    })?;
    if is_shown {
        eprint!("\r\x1b[K");
    }
    arguments.output.write(&figures)?;
    Ok(if figures.errors_total() > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
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
        (None, None) => Some(warm_up + std::time::Duration::from_secs(10)),
    };
    if duration.is_some_and(|duration| duration <= warm_up) {
        bail!("--duration {:?}: is over before the warm-up of {warm_up:?}", duration.unwrap_or_default());
    }
    Ok(Load {
        plan: Plan {
            targets,
            random: arguments.random,
            range_bytes: arguments.range.map(|range| range.bytes),
            is_fresh: arguments.fresh,
            verify: arguments.verify,
            cmcd: arguments.cmcd.then(|| arguments.cmcd_bitrate.map(|rate| rate.bits_per_s / 1000)),
            timeouts: Timeouts {
                connect: arguments.connect_timeout.duration,
                head: arguments.head_timeout.duration,
                content: arguments.content_timeout.duration,
            },
            sources,
        },
        population: population(arguments)?,
        rate: arguments.rate,
        duration,
        requests: arguments.requests,
        warm_up,
        threads: arguments.threads.map_or_else(cores, usize::from),
    })
}

fn population(arguments: &Arguments) -> anyhow::Result<Population> {
    let clients =
        arguments.clients.unwrap_or(match (arguments.rate, arguments.ramp, arguments.storm.len()) {
            (_, Some(_), _) | (_, None, 1..) => 0,
            (Some(_), None, 0) => CLIENTS_DEFAULT_RATE,
            (None, None, 0) => CLIENTS_DEFAULT,
        });
    Population::new(clients, arguments.ramp, &arguments.storm)
        .map_err(|error| anyhow!(error))
        .context("--clients, --ramp, --storm")
}

/// One line in place of the last.
fn show(moment: &Moment) {
    let mut line = format!("{:>4}s", moment.elapsed.as_secs());
    let counts = &moment.counts;
    let per_s = |count: u64| if moment.span_s > 0.0 { count as f64 / moment.span_s } else { 0.0 };
    if moment.is_counted {
        line += &format!(
            "  {} clients  {:.0} requests/s  {}  {} errors",
            counts.clients,
            per_s(counts.requests),
            bit_rate(per_s(counts.content_bytes) * 8.0),
            counts.errors
        );
    } else {
        line += &format!("  {} clients  warming up", counts.clients);
    }
    if let Some(ttlb) = moment.ttlb.as_ref().filter(|ttlb| !ttlb.is_empty()) {
        let at = |quantile| time_text(ttlb.value_at_quantile(quantile) as f64);
        line += &format!("  p50 {}  p99 {}", at(0.5), at(0.99));
    }
    let _ = write!(stderr(), "\r{line}\x1b[K");
}
