//! The practical limit: throughput of segments from the origin, and of the same byte ranges of the
//! same objects through nginx with kept-alive connections, in turn.
//!
//! A fixed number of clients request segments at random, each its next one once it has the last.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use serde::Serialize;
use thalweg_http::{Authority, ResponseHead, Target as HttpTarget};
use thalweg_load::Failure;
use thalweg_load::client;
use thalweg_load::connection::{Connection, Protocols, Timeouts, Trust};
use thalweg_load::engine::{self, Clients, Load};
use thalweg_load::response::Sink;
use thalweg_load::schedule::Population;
use thalweg_load::script::{Script, ScriptFile};
use thalweg_load::sources::Sources;
use thalweg_load::target::Target;
use thalweg_load::viewer::manifest::{Base, Found, Presentation, dash};

use super::content::{self, Film, LADDER_KBIT, Range, video_name};
use super::storage::Storage;
use super::{Arm, Format, Lab, NEAR, servers};

/// The script, which requests the lines of a file.
const SCRIPT: &str = include_str!("requests.lua");
/// Segments requested of each track, spread evenly over the film.
const SEGMENTS_OF_TRACK: usize = 100;
/// Time until connections are open and the origin has its index.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time limit for each step of a request.
const TIMEOUTS: Timeouts = Timeouts::each(Duration::from_secs(30));
/// Threads of clients.
const THREADS: usize = 1;

/// How to compare with nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of clients.
    pub clients: usize,
    /// How often both are measured.
    pub rounds: usize,
    /// Duration of each measurement.
    pub duration: Duration,
}

/// Throughput in one round, in content bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Round {
    /// Through the origin.
    pub origin_bytes_per_s: f64,
    /// Through nginx.
    pub nginx_bytes_per_s: f64,
    /// Failed requests at both.
    pub errors: u64,
}

impl Round {
    /// Returns the origin's throughput divided by nginx's.
    pub fn ratio(&self) -> f64 {
        self.origin_bytes_per_s / self.nginx_bytes_per_s.max(f64::MIN_POSITIVE)
    }
}

impl Plan {
    /// Estimates how long the plan takes.
    pub(super) fn duration(self) -> Duration {
        (self.duration + WARM_UP) * 2 * self.rounds as u32
    }
}

/// A segment: its target at the origin, and the same bytes of an object.
struct Segment {
    target: String,
    object: String,
    range: Range,
}

/// Measures all rounds. The two servers take turns, in alternating order.
pub(super) fn measure(
    lab: &Lab<'_>,
    plan: Plan,
    storage: &Storage,
    film: &Film,
) -> anyhow::Result<Vec<Round>> {
    let origin = servers::origin(lab, storage, Arm::Pooled)?;
    let nginx = servers::nginx(lab, storage)?;
    let segments = segments(lab, origin.address, storage, film)?;
    let scratch = lab.emulation.scratch();
    let write = |name: &str, text: &str| {
        let file = scratch.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        anyhow::Ok(file)
    };
    let script = write("requests.lua", SCRIPT)?;
    let (mut of_origin, mut of_nginx) = (String::new(), String::new());
    for Segment { target, object, range: Range { first, last } } in &segments {
        let _ = writeln!(of_origin, "{target} -");
        let _ = writeln!(of_nginx, "{object} {first}-{last}");
    }
    let of_origin = (origin.address, write("origin.txt", &of_origin)?);
    let of_nginx = (nginx.address, write("nginx.txt", &of_nginx)?);
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        let run = |(server, list): &(SocketAddr, PathBuf)| throughput(lab, plan, *server, &script, list);
        let [(origin_bytes_per_s, wrong), (nginx_bytes_per_s, also_wrong)] = if round % 2 == 0 {
            let ours = run(&of_origin).context("origin")?;
            [ours, run(&of_nginx)?]
        } else {
            let nginxs = run(&of_nginx)?;
            [run(&of_origin).context("origin")?, nginxs]
        };
        rounds.push(Round { origin_bytes_per_s, nginx_bytes_per_s, errors: wrong + also_wrong });
    }
    Ok(rounds)
}

/// Returns the throughput and the number of failed requests.
fn throughput(
    lab: &Lab<'_>,
    plan: Plan,
    server: SocketAddr,
    script: &Path,
    list: &Path,
) -> anyhow::Result<(f64, u64)> {
    let protocols = Protocols::new(false, Trust::Any);
    let target = Target::new(&format!("http://{server}/"), &[], &protocols).map_err(anyhow::Error::msg)?;
    let source = ScriptFile::read(script, &target, &[], true).map_err(anyhow::Error::msg)?;
    let arguments = [list.display().to_string()];
    let script = Script::load(&source, &arguments, THREADS, server).map_err(anyhow::Error::msg)?;
    let clients = client::Plan {
        targets: vec![target],
        random: None,
        range_bytes: None,
        is_fresh: false,
        verify: false,
        cmcd: None,
        timeouts: TIMEOUTS,
        sources: Sources::default(),
    };
    let load = Load {
        clients: Clients::Scripted(clients, Arc::new(script)),
        population: Population::new(plan.clients, Duration::ZERO, None, &[]).map_err(anyhow::Error::msg)?,
        rate: None,
        duration: Some(plan.duration + WARM_UP),
        requests: None,
        warm_up: WARM_UP,
        threads: THREADS,
        arguments: Vec::new(),
    };
    let run = || engine::run(&load, std::future::pending(), |_| ());
    let figures = lab.emulation.run_on(NEAR, run)??;
    let per_s = figures.content_bytes as f64 / figures.measured_s().max(f64::MIN_POSITIVE);
    Ok((per_s, figures.errors_total()))
}

/// Returns segments of all video tracks, with their byte ranges. One segment per track is requested
/// from the origin, and must have the length of its range.
fn segments(
    lab: &Lab<'_>,
    origin: SocketAddr,
    storage: &Storage,
    film: &Film,
) -> anyhow::Result<Vec<Segment>> {
    let target = servers::manifest(Format::Dash);
    let text = get(lab, origin, &target)?;
    let text = String::from_utf8(text).context("the MPD is not UTF-8")?;
    let base = Base {
        authority: Authority::parse(origin.to_string().as_bytes()).map_err(|error| anyhow!("{error}"))?,
        target: HttpTarget::new(&target).map_err(|error| anyhow!("{error}"))?,
    };
    let presentation = dash::read(&text, &base).context("the origin's MPD")?;
    let tracks = presentation.periods[0].tracks.len();
    ensure!(tracks == LADDER_KBIT.len(), "the origin's MPD has {tracks} video tracks");
    let mut segments = Vec::new();
    for (track, kbit) in LADDER_KBIT.into_iter().enumerate() {
        let (of_track, object) = (segments.len(), storage.object(&video_name(kbit)));
        for (target, range) in ranges(&presentation, film, track)? {
            segments.push(Segment { target, object: object.clone(), range });
        }
        let Segment { target, range, .. } = &segments[of_track];
        let (bytes, expected) = (get(lab, origin, target)?.len() as u64, range.last + 1 - range.first);
        ensure!(
            bytes == expected,
            "{target}: {bytes} bytes, but its range of the object has {expected} bytes"
        );
    }
    Ok(segments)
}

/// Returns the targets of a track's segments, and the ranges of the fragments that they consist of.
fn ranges(presentation: &Presentation, film: &Film, track: usize) -> anyhow::Result<Vec<(String, Range)>> {
    let fragments = film.fragments(track)?;
    let mut ranges = Vec::new();
    for index in 0..SEGMENTS_OF_TRACK {
        let at = film.duration.mul_f64((index as f64 + 0.5) / SEGMENTS_OF_TRACK as f64);
        let Found::Segment(segment) = presentation.containing(track, at) else {
            continue;
        };
        // The casts are safe: times are below the film's duration.
        let index = |at: Duration| (at.as_secs_f64() / content::FRAGMENT.as_secs_f64()).round() as usize;
        let (from, to) = (index(segment.start), index(segment.end()).min(fragments.len()));
        let found = fragments.get(from).zip(fragments.get(to.saturating_sub(1)));
        let (first, last) =
            found.with_context(|| format!("{}: beyond the end of the film", segment.target))?;
        ranges.push((segment.target, Range { first: first.first, last: last.last }));
    }
    ensure!(!ranges.is_empty(), "the origin's MPD has no segments");
    Ok(ranges)
}

/// A sink that keeps the content.
#[derive(Default)]
struct Content(Vec<u8>);

impl Sink for Content {
    fn head(&mut self, _head: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn is_reading(&self) -> bool {
        true
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Requests a target from the near side.
fn get(lab: &Lab<'_>, server: SocketAddr, target: &str) -> anyhow::Result<Vec<u8>> {
    let fetch = || async {
        let mut content = Content::default();
        let mut connection = Connection::open(&server.into(), None, TIMEOUTS).await?;
        let exchange = connection.get(&server.to_string(), target, "", &mut content).await?;
        Ok::<_, Failure>((exchange.status, content.0))
    };
    let (status, content) = lab.emulation.run_on(NEAR, fetch)?.map_err(|failure| anyhow!("{failure}"))?;
    ensure!(status == 200, "{target}: status {status}: {}", String::from_utf8_lossy(&content));
    Ok(content)
}
