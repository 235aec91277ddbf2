//! Viewers against a scripted live source whose hole is known, against servers that misbehave, and against the programs.

#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod source;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use source::Script;
use thalweg_http::Authority;
use thalweg_lab::viewer::crowd::{Crowd, Orders};
use thalweg_lab::viewer::figures::Figures;
use thalweg_lab::viewer::http::Server;
use thalweg_lab::viewer::shared::{Behaviour, Stream};
use thalweg_lab::viewer::spread::Offsets;

/// What a busy machine may add to a time.
const TOLERANCE: Duration = Duration::from_millis(250);

fn orders(address: &str, target: &str, viewers: u64, seconds: u64) -> Orders {
    let authority = Authority::parse(address.as_bytes()).unwrap();
    Orders {
        streams: vec![Stream {
            server: Server { authority, address: address.parse().unwrap() },
            target: target.to_owned(),
        }],
        viewers,
        duration: Duration::from_secs(seconds),
        join_within: Duration::ZERO,
        offsets: Offsets::Even(Duration::ZERO, Duration::ZERO),
        sources: Vec::new(),
        behaviour: Behaviour {
            threshold: None,
            ahead: Duration::from_secs(30),
            range_bytes: None,
            cmcd: true,
        },
        threads: 2,
    }
}

fn watch(orders: &Orders) -> Figures {
    Crowd::start(orders).unwrap().finish().unwrap()
}

fn near(found: Duration, expected: Duration) {
    assert!(found.abs_diff(expected) < TOLERANCE, "{found:?} is not near {expected:?}");
}

#[test]
fn a_hole_is_the_stall_of_who_is_near_the_edge() {
    // From 3 s to 6 s nothing comes. At 1 s behind the edge that is a stall of 2 s, at 2.5 s one of 0.5 s, at 4 s none.
    let script = Script { hole: Some((Duration::from_secs(3), Duration::from_secs(6))), ..Script::default() };
    let address = script.start();
    let mut orders = orders(&address, "/live.mpd", 3, 9);
    orders.offsets = Offsets::Even(Duration::ZERO, Duration::from_secs(3));
    let figures = watch(&orders);
    assert_eq!((figures.account.stalls, figures.viewers_stalled), (2, 2), "{figures:?}");
    assert_eq!((figures.now.playing, figures.errors.len()), (3, 0), "{:?}", figures.errors);
    near(figures.account.stalled, Duration::from_millis(2500));
    near(figures.stall.longest().unwrap(), Duration::from_secs(2));
    // In the end all are behind the edge by 3 s, 3 s and 4 s.
    near(figures.live_latency_now.quantile(0.5).unwrap(), Duration::from_secs(3));
    near(figures.live_latency_now.longest().unwrap(), Duration::from_secs(4));
}

#[test]
fn chunk_by_chunk_at_the_intended_latency() {
    let address = Script::default().start();
    let figures = watch(&orders(&address, "/live.mpd", 8, 4));
    assert_eq!((figures.now.playing, figures.account.stalls), (8, 0), "{figures:?}");
    near(figures.live_latency.quantile(0.5).unwrap(), source::LATENCY);
    // Four chunks a segment, told of one by one: a chunk's length apart at the edge.
    assert!(figures.chunks >= figures.segments * 4, "{} of {}", figures.chunks, figures.segments);
    near(figures.chunk_gap.quantile(0.9).unwrap(), source::CHUNK);
}

#[test]
fn segments_that_are_missing_are_counted_and_passed_over() {
    let missing = Script { missing: Some(source::FIRST + 12), ..Script::default() };
    let address = missing.start();
    let figures = watch(&orders(&address, "/live.mpd", 1, 8));
    assert_eq!(figures.errors.get("status 404"), Some(&5), "{:?}", figures.errors);
    assert_eq!((figures.now.playing, figures.account.stalls), (1, 1));
    near(figures.account.skipped, source::SEGMENT);
}

#[test]
fn what_is_no_manifest_ends_no_process() {
    let address = Script::default().start();
    for target in ["/nonsense", "/none"] {
        let figures = watch(&orders(&address, target, 2, 1));
        assert!(!figures.errors.is_empty());
        assert_eq!((figures.now.starting, figures.now.playing), (2, 0), "{target}");
    }
}

#[test]
fn a_server_that_is_down_is_one_line() {
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{down}/live.mpd"), "https://example.org/".to_owned()] {
        let out = Command::new(env!("CARGO_BIN_EXE_thalweg-lab")).args(["watch", &url]).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        assert_eq!(String::from_utf8(out.stderr).unwrap().lines().count(), 1);
    }
}

/// The delivery program, gone with the test.
struct Thalweg(Child);

impl Drop for Thalweg {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Origin, live source and edge in one process, once the channel is on air; and where the edge is.
fn on_air() -> (Thalweg, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg-lab")).with_file_name("thalweg");
    assert!(program.exists(), "build it first: cargo build -p thalweg");
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets");
    let config = std::env::temp_dir().join(format!("thalweg-watch-{}.toml", std::process::id()));
    let text = format!(
        "[origin]\nmedia = {assets:?}\nlisten = \"127.0.0.1:0\"\n\
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
    // Read on, so that it never waits for us.
    std::thread::spawn(move || rest.for_each(drop));
    (running, edge.expect("the edge says where it listens"))
}

#[test]
fn the_programs_let_nobody_stall() {
    let (_running, edge) = on_air();
    let dash = watch(&orders(&edge, "/live/demo/manifest.mpd", 6, 6));
    assert_eq!((dash.now.playing, dash.account.stalls), (6, 0), "{:?}", dash.errors);
    near(dash.live_latency.quantile(0.5).unwrap(), Duration::from_secs(2));
    let hls = watch(&orders(&edge, "/live/demo/master.m3u8", 6, 6));
    assert_eq!((hls.now.playing, hls.account.stalls), (6, 0), "{:?}", hls.errors);
    let mut on_demand = orders(&edge, "/vod/sample/manifest.mpd", 4, 3);
    on_demand.behaviour.range_bytes = Some(50_000);
    let on_demand = watch(&on_demand);
    assert_eq!((on_demand.now.playing, on_demand.account.stalls), (4, 0), "{:?}", on_demand.errors);
    assert!(on_demand.requests > on_demand.segments * 2 && on_demand.switches_up > 0, "{on_demand:?}");
}
