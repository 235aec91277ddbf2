//! Tests of viewers, against a scripted live source with a known gap, misbehaving servers, and the
//! real programs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod source;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use source::Script;
use thalweg_load::ErrorKind;
use thalweg_load::figures::{Figures, Time};
use thalweg_load::report::from_json;
use thalweg_load::viewer::figures::Viewers;

/// Deviation allowed on a busy machine.
const TOLERANCE: Duration = Duration::from_millis(250);

/// Runs viewers of `target` and returns their figures.
fn watched(address: &str, target: &str, options: &str) -> (Figures, Viewers) {
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg-lab"))
        .args(["load", "--viewers", "--join-within", "0s", "--threads", "2", "--cmcd", "--json", "-"])
        .args(options.split_whitespace())
        .arg(format!("http://{address}{target}"))
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let figures = from_json(&out).unwrap_or_else(|error| panic!("{error:#}: {out}{err}"));
    let is_failed = figures.errors_total() > 0;
    assert_eq!(output.status.code(), Some(i32::from(is_failed)), "{err}");
    let viewers = figures.viewers.unwrap();
    (figures, viewers)
}

fn near(found: Duration, expected: Duration) {
    assert!(found.abs_diff(expected) < TOLERANCE, "{found:?} is not near {expected:?}");
}

fn quantile(figures: &Figures, time: Time, quantile: f64) -> Duration {
    Duration::from_micros(figures.time(time).unwrap().value_at_quantile(quantile))
}

#[test]
fn gap_stalls_only_viewers_near_the_live_edge() {
    // Nothing arrives from 3 s to 6 s, so a viewer stalls for 3 s minus its distance behind the
    // live edge: for 2 s if it is 1 s behind, for 0.5 s if 2.5 s, and not at all if 4 s.
    let script = Script { hole: Some((Duration::from_secs(3), Duration::from_secs(6))), ..Script::default() };
    let address = script.start();
    let (figures, viewers) = watched(&address, "/live.mpd", "-c 3 --offsets 0s..3s -d 9s");
    assert_eq!((viewers.totals.stalls, viewers.totals.viewers_stalled), (2, 2), "{viewers:?}");
    assert_eq!((viewers.now.playing, figures.errors.len()), (3, 0), "{:?}", figures.errors);
    near(Duration::from_micros(viewers.totals.stalled_us), Duration::from_millis(2500));
    assert_eq!(figures.time(Time::Stall).unwrap().len(), 2);
    near(quantile(&figures, Time::Stall, 1.0), Duration::from_secs(2));
    // Viewers do not catch up after a stall: the first two are now 3 s behind, the third still 4 s.
    near(quantile(&figures, Time::LiveLatency, 1.0), Duration::from_secs(4));
}

#[test]
fn endless_gap_is_a_stall_until_the_end() {
    let script =
        Script { hole: Some((Duration::from_secs(2), Duration::from_secs(60))), ..Script::default() };
    let address = script.start();
    let began = Instant::now();
    let (figures, viewers) = watched(&address, "/live.mpd", "-c 1 -d 6s");
    let lasted = began.elapsed();
    assert_eq!((viewers.now.stalled, viewers.totals.stalls), (1, 1));
    // Nothing arrives after 2 s, and a viewer 1 s behind stalls at 3 s. The stall lasts to the end
    // of the run: 3 s, or longer if the program starts slowly on a busy machine.
    let (stall, stands_still) = (quantile(&figures, Time::Stall, 1.0), Duration::from_secs(3));
    let range = stands_still.saturating_sub(TOLERANCE)..lasted.saturating_sub(stands_still) + TOLERANCE;
    assert!(range.contains(&stall), "{stall:?} is not in {range:?}");
    // The live latency grows by the same time.
    assert!(quantile(&figures, Time::LiveLatency, 1.0) > Duration::from_secs(3), "{figures:?}");
}

#[test]
fn viewers_play_chunk_by_chunk_at_the_target_latency() {
    let address = Script::default().start();
    let (figures, viewers) = watched(&address, "/live.mpd", "-c 8 -d 4s");
    assert_eq!((viewers.now.playing, viewers.totals.stalls), (8, 0), "{figures:?}");
    near(quantile(&figures, Time::LiveLatency, 0.5), source::LATENCY);
    // All four chunks of a segment are measured: at the live edge they arrive one chunk duration
    // apart.
    assert!(viewers.chunks >= viewers.segments * 4, "{} of {}", viewers.chunks, viewers.segments);
    near(quantile(&figures, Time::ChunkGap, 0.9), source::CHUNK);
    assert_eq!((figures.clients, figures.time(Time::Connect).unwrap().len()), (8, 8));
    let requests: u64 = figures.seconds.values().map(|second| second.requests).sum();
    assert_eq!(requests, figures.requests);
}

#[test]
fn missing_segments_are_counted_and_skipped() {
    let missing = Script { missing: Some(source::FIRST + 12), ..Script::default() };
    let (figures, viewers) = watched(&missing.start(), "/live.mpd", "-c 1 -d 8s");
    assert_eq!(figures.errors.get(&ErrorKind::Status4xx), Some(&5), "{:?}", figures.errors);
    assert_eq!((viewers.now.playing, viewers.totals.stalls), (1, 1));
    near(Duration::from_micros(viewers.totals.skipped_us), source::SEGMENT);
}

#[test]
fn invalid_manifest_is_counted_and_retried() {
    let (figures, viewers) = watched(&Script::default().start(), "/nonsense", "-c 2 -d 1s");
    assert!(figures.errors[&ErrorKind::Manifest] >= 2, "{:?}", figures.errors);
    assert!(figures.examples[&ErrorKind::Manifest].1.starts_with("/nonsense: "), "{:?}", figures.examples);
    assert_eq!((viewers.now.starting, viewers.now.playing), (2, 0));
    // Viewers that never start count with their wait since joining.
    near(quantile(&figures, Time::Startup, 1.0), Duration::from_secs(1));
}

#[test]
fn each_startup_error_is_one_line() {
    let up = Script::default().start();
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{down}/live.mpd"), format!("http://{up}/none")] {
        let out = Command::new(env!("CARGO_BIN_EXE_thalweg-lab"))
            .args(["load", "--viewers", &url])
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(2));
        assert_eq!(String::from_utf8(out.stderr).unwrap().lines().count(), 1);
    }
}

/// The delivery program, killed when dropped.
struct Thalweg(Child);

impl Drop for Thalweg {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts origin, live source and edge in one process, and waits until the channel is on air.
/// Returns the process and the edge's address.
fn on_air() -> (Thalweg, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg-lab")).with_file_name("thalweg");
    assert!(program.exists(), "build it first: cargo build -p thalweg");
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets");
    let config = std::env::temp_dir().join(format!("thalweg-watch-{}.toml", std::process::id()));
    let text = format!(
        "[origin]\nmedia = {assets:?}\nlisten = \"127.0.0.1:0\"\ningest = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [edge]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ncongestion_control = \"system\"\n\
         [[source]]\nchannel = \"demo\"\nmedia = \"{assets}/sample\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new(program)
        .args(["up", "--config"])
        .arg(&config)
        .env_remove("THALWEG_LOG")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap());
    let running = Thalweg(child);
    let mut edge = None;
    let mut rest = lines.lines();
    for line in rest.by_ref() {
        let line = line.unwrap();
        edge = edge.or_else(|| line.strip_prefix("edge listening ").map(str::to_owned));
        if line.contains("epoch begins") {
            break;
        }
    }
    std::fs::remove_file(config).unwrap();
    // Keep draining the pipe, so that the server never blocks on it.
    std::thread::spawn(move || rest.for_each(drop));
    (running, edge.expect("the edge logs its address"))
}

#[test]
fn viewers_of_the_real_programs_never_stall() {
    let (_running, edge) = on_air();
    let (figures, dash) = watched(&edge, "/live/demo/manifest.mpd", "-c 6 -d 6s");
    assert_eq!((dash.now.playing, dash.totals.stalls), (6, 0), "{:?}", figures.errors);
    near(quantile(&figures, Time::LiveLatency, 0.5), Duration::from_secs(2));
    let (figures, hls) = watched(&edge, "/live/demo/master.m3u8", "-c 6 -d 6s");
    assert_eq!((hls.now.playing, hls.totals.stalls), (6, 0), "{:?}", figures.errors);
    let (figures, on_demand) = watched(&edge, "/vod/sample/manifest.mpd", "-c 4 -d 3s --range 50kB");
    assert_eq!((on_demand.now.playing, on_demand.totals.stalls), (4, 0), "{:?}", figures.errors);
    assert!(figures.requests > on_demand.segments * 2 && on_demand.switches_up > 0, "{on_demand:?}");
    // A segment that arrives in one read has no goodput.
    assert!(figures.goodput.is_none_or(|goodput| goodput.len() <= on_demand.segments));
}
