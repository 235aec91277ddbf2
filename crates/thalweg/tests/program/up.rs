//! `thalweg up` tests: the roles' log lines, responses and shutdown.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{Directory, Running, thalweg};

/// Maximum duration of a shutdown.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Sends a request and returns the connection at the first byte of the response.
fn ask(addr: &str, path: &str, fields: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {addr}\r\n{fields}\r\n").unwrap();
    BufReader::new(stream)
}

/// Sends a request and returns the whole response.
fn get(addr: &str, path: &str, fields: &str) -> String {
    let mut response = String::new();
    ask(addr, path, &format!("{fields}Connection: close\r\n")).read_to_string(&mut response).unwrap();
    response
}

/// Returns the next line that starts with `start`.
fn line_with(from: &mut impl BufRead, start: &str) -> String {
    for line in from.lines() {
        let line = line.unwrap();
        if line.starts_with(start) {
            return line;
        }
    }
    panic!("the stream ended before {start:?}");
}

/// Config of an origin on free ports.
const ORIGIN: &str = "[origin]\nlisten = '127.0.0.1:0'\ningest = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n";

/// Starts every role on free ports; returns the running program, and the addresses of origin, edge,
/// admin interface and console.
fn up(directory: &Directory) -> (Running, [String; 4]) {
    let any = "listen = '127.0.0.1:0'";
    let config =
        format!("{ORIGIN}[edge]\n{any}\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\n[console]\n{any}\n");
    let path = directory.write("thalweg.toml", &config);
    let mut running = Running::start(thalweg(&["up", "--config", path.to_str().unwrap()]));
    let addrs = ["origin", "edge", "admin", "console"].map(|role| running.listening(role));
    (running, addrs)
}

#[test]
fn every_role_starts_and_stops_on_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = Directory::new();
        let (mut running, [_, edge, admin, console]) = up(&directory);
        assert_eq!(line_with(&mut running.out, "  http://"), format!("  http://{console}/"));
        assert_eq!(line_with(&mut running.out, "  thalweg log"), format!("  thalweg log --admin {admin}"));
        let port = edge.rsplit_once(':').unwrap().1;
        let config = get(&console, "/api/config", "");
        assert!(
            config.contains(&format!(
                r#"{{"control":false,"edge":{{"port":{port}}},"telemetry":false,"version":""#
            )),
            "{config}"
        );
        // An endless record stream must not delay the shutdown.
        let mut records = ask(&console, "/api/records", "");
        assert_eq!(line_with(&mut records, "HTTP/1.1"), "HTTP/1.1 200 OK");
        let stopped = Instant::now();
        assert_eq!(running.stop(signal), Some(0));
        assert!(stopped.elapsed() < STOP_MAX, "{:?}", stopped.elapsed());
    }
}

#[test]
fn request_appears_in_the_log_and_the_console() {
    let directory = Directory::new();
    let (running, [_, edge, admin, console]) = up(&directory);
    let mut records = ask(&console, "/api/records", "");
    line_with(&mut records, "content-type: text/event-stream"); // subscribed from here on
    get(&edge, "/of-the-test", "");
    let record = line_with(&mut records, "data:");
    assert!(record.contains(r#""path":"/of-the-test""#), "{record}");
    assert!(record.contains(r#""congestion_control":""#), "{record}");

    // Nothing shows when `thalweg log` has subscribed, so repeat the request until the log shows
    // its record. If the log never does, the edge is killed, the log ends, and its next line is
    // empty.
    let mut log = Running::start(thalweg(&["log", "--json", "--admin", &admin]));
    let (shown, is_shown) = mpsc::channel();
    let asking = thread::spawn(move || {
        let _running = running;
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && is_shown.try_recv().is_err() {
            get(&edge, "/again", "");
        }
    });
    let record = log.out_line();
    shown.send(()).unwrap();
    asking.join().unwrap();
    assert!(record.contains(r#""path":"/again""#), "{record}");
}

#[test]
fn source_becomes_a_live_channel_at_the_edge() {
    let directory = Directory::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample");
    // The source must present the ingest token of the origin in the same file.
    let config = format!(
        "{ORIGIN}ingest_token = 'correct-horse-battery'\n\
         [edge]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\n\
         [[source]]\nchannel = 'a'\nmedia = '{sample}'\n"
    );
    let path = directory.write("thalweg.toml", &config);
    let mut running = Running::start(thalweg(&["up", "--config", path.to_str().unwrap()]));
    let [_, edge, _] = ["origin", "edge", "admin"].map(|role| running.listening(role));
    running.err_line_with("epoch published");
    let playlist = get(&edge, "/live/a/master.m3u8", "");
    assert!(playlist.starts_with("HTTP/1.1 200") && playlist.contains("RESOLUTION=960x540"), "{playlist}");
    assert_eq!(running.stop(Signal::TERM), Some(0));
}

#[test]
fn advised_url_can_be_played() {
    let directory = Directory::new();
    let media = directory.path().join("media");
    for refused in [".hidden", "broken"] {
        fs::create_dir_all(media.join(refused)).unwrap();
        fs::write(media.join(refused).join("v.mp4"), "no media").unwrap();
    }
    symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample"), media.join("sample")).unwrap();
    let config = format!("{ORIGIN}media = '{}'\n", media.display());
    let path = directory.write("thalweg.toml", &config);
    let mut running = Running::start(thalweg(&["up", "--config", path.to_str().unwrap()]));
    let origin = running.listening("origin");
    let advised = format!("  ffplay http://{origin}/vod/sample/master.m3u8");
    assert_eq!(line_with(&mut running.out, "  ffplay"), advised);
    let playlist = get(&origin, "/vod/sample/master.m3u8", "");
    assert!(playlist.starts_with("HTTP/1.1 200"), "{playlist}");
}

#[test]
fn console_serves_its_pages_with_validators() {
    let directory = Directory::new();
    let (_running, [.., console]) = up(&directory);
    let page = get(&console, "/", "");
    // A program built without the pages responds with 503; `make build` builds both.
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("content-type: text/html; charset=utf-8\r\n"), "{page}");
    let etag = page.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = get(&console, "/index.html", &format!("If-None-Match: \"other\", W/{etag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 304"), "{again}");
    let missing = get(&console, "/../Cargo.toml", "");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    let own = get(&console, "/api/config", &format!("Origin: http://{console}\r\n"));
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let foreign = get(&console, "/api/config", "Origin: http://evil.example\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let rebound = get(&console, "/", "Host: evil.example\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
    assert!(rebound.contains(r#"{"error":"host \"evil.example\" is refused"#), "{rebound}");
}
