//! `thalweg-lab watch`: viewers of live and on-demand presentations, told of while they watch and at the end.

mod report;

use std::io::{IsTerminal, Write, stderr};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use thalweg_http::Authority;
use thalweg_lab::viewer::crowd::{Crowd, LOOK_EVERY, Orders, VIEWERS_MAX};
use thalweg_lab::viewer::http::{Connection, Server};
use thalweg_lab::viewer::shared::{Behaviour, Stream};
use thalweg_lab::viewer::spread::{Offsets, Source};
use thalweg_record::units::{Size, Span};

/// What to watch, and how.
#[derive(Debug, Args)]
#[command(after_help = "\
Each viewer reads the manifest, joins behind the live edge as far as the manifest wants players to be and its own offset more, \
follows chunk by chunk, and keeps a playhead that stalls when its buffer is empty. Nothing is decoded: what comes is measured and \
let go. On demand it begins at its offset.

Examples:
  thalweg-lab watch http://127.0.0.1:8080/live/demo/manifest.mpd --viewers 100
  thalweg-lab watch http://127.0.0.1:8080/live/demo/manifest.mpd --viewers 10000 \\
      --offsets 0s..60s --join-within 20s --source 127.0.1.0/24 --for 60s --json figures.json
  thalweg-lab watch http://127.0.0.1:8080/vod/sample/master.m3u8 --viewers 50 --ranges 512KiB --cmcd

Each viewer has one connection, so one open file; one source address has room for 28,000.
Exit status: 0 done, whatever was seen; 2 a server that cannot be reached, or wrong use.")]
pub(crate) struct Watch {
    /// MPDs or playlists; viewers take turns
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// How many viewers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=VIEWERS_MAX))]
    viewers: u64,
    /// How long to watch
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    duration: Span,
    /// All viewers join within this time, evenly
    #[arg(long, value_name = "TIME", default_value = "1s")]
    join_within: Span,
    /// How far behind: FROM..TO evenly, or exp:MEAN
    #[arg(long, value_name = "TIMES", default_value = "0s")]
    offsets: Offsets,
    /// Address or prefix that viewers come from; several take turns
    #[arg(long, value_name = "PREFIX")]
    source: Vec<Source>,
    /// Media that is to be buffered before playback starts or goes on [default: what the manifest wants, else 1s]
    #[arg(long, value_name = "TIME")]
    buffer: Option<Span>,
    /// Media that is fetched ahead of the playhead at most
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ahead: Span,
    /// On demand, ask for segments by ranges of this size
    #[arg(long, value_name = "SIZE")]
    ranges: Option<Size>,
    /// Send CMCD (CTA-5004) as request header fields
    #[arg(long)]
    cmcd: bool,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(watch: &Watch) -> anyhow::Result<ExitCode> {
    let mut streams = Vec::new();
    for url in &watch.urls {
        streams.push(stream(url)?);
    }
    for stream in &streams {
        reach(stream, watch.source.first().map(|source| source.address(0)))?;
    }
    if watch.ranges.is_some_and(|size| size.bytes == 0) {
        bail!("--ranges: at least 1B");
    }
    let orders = Orders {
        streams,
        viewers: watch.viewers,
        duration: watch.duration.duration,
        join_within: watch.join_within.duration,
        offsets: watch.offsets,
        sources: watch.source.clone(),
        behaviour: Behaviour {
            threshold: watch.buffer.map(|span| span.duration),
            ahead: watch.ahead.duration,
            range_bytes: watch.ranges.map(|size| size.bytes),
            cmcd: watch.cmcd,
        },
        threads: watch.threads.unwrap_or(0),
    };
    let began = Instant::now();
    let crowd = Crowd::start(&orders).context("starting viewers")?;
    follow(&crowd, began, orders.duration);
    let figures = crowd.finish().context("viewers")?;
    let took = began.elapsed();
    report::print(&figures, took);
    if let Some(file) = &watch.json {
        let text = report::json(&figures, &orders, took);
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells each second how they are, until all have left.
fn follow(crowd: &Crowd, began: Instant, duration: Duration) {
    let mut bytes_before = 0;
    let mut looks = 1;
    while !crowd.has_ended() {
        // Just after the viewers have been looked at.
        let at = began + LOOK_EVERY * looks + LOOK_EVERY / 10;
        let until = at.min(began + duration + LOOK_EVERY / 10);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        looks += 1;
        if began.elapsed() > duration {
            return;
        }
        let figures = crowd.figures();
        let line = report::line(began.elapsed(), &figures, figures.bytes - bytes_before);
        bytes_before = figures.bytes;
        let end = if stderr().is_terminal() { "\r" } else { "\n" };
        let _ = write!(stderr(), "{line}{end}");
    }
}

/// The server and target of an `http` URL.
fn stream(url: &str) -> anyhow::Result<Stream> {
    let Some(rest) = url.strip_prefix("http://") else { bail!("{url}: only http:// URLs can be watched") };
    let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority =
        Authority::parse(named.as_bytes()).map_err(|_| anyhow::anyhow!("{url}: {named:?} is no host"))?;
    let port = authority.port().unwrap_or(80);
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let found = (host.as_str(), port).to_socket_addrs().with_context(|| format!("{url}: {host}"))?;
    let address: Option<SocketAddr> = found.into_iter().next();
    let address = address.with_context(|| format!("{url}: {host} has no address"))?;
    let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Stream { server: Server { authority, address }, target })
}

/// Whether the server answers at all.
fn reach(stream: &Stream, source: Option<std::net::IpAddr>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Server { authority, address } = &stream.server;
    let what = || format!("http://{}{} ({address})", authority.as_str(), stream.target);
    let mut connection = Connection::new(source);
    match runtime.block_on(connection.get(&stream.server, &stream.target, "", |_, _| {})) {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => bail!("{}: status {}", what(), answer.status),
        Err(failure) => bail!("{}: {failure}", what()),
    }
}
