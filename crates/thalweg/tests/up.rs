//! Roles that run: their lines, what they answer, and their end.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use program::{Directory, Running, thalweg};

/// How long a stopped program may take, by contract.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Sends a request and gives the connection, at the first byte of the response.
fn ask(addr: &str, path: &str, fields: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {addr}\r\n{fields}\r\n").unwrap();
    BufReader::new(stream)
}

/// The whole response to a request.
fn get(addr: &str, path: &str, fields: &str) -> String {
    let mut response = String::new();
    ask(addr, path, &format!("{fields}Connection: close\r\n")).read_to_string(&mut response).unwrap();
    response
}

/// The next line that starts with `start`.
fn line_with(from: &mut impl BufRead, start: &str) -> String {
    for line in from.lines() {
        let line = line.unwrap();
        if line.starts_with(start) {
            return line;
        }
    }
    panic!("the stream ended before {start:?}");
}

/// Everything on ports of its own: the running program, and the addresses of origin, edge, admin and console.
fn up(directory: &Directory) -> (Running, [String; 4]) {
    let any = "listen = '127.0.0.1:0'";
    let config = format!(
        "[origin]\n{any}\n[edge]\n{any}\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\n[console]\n{any}\n"
    );
    let path = directory.write("thalweg.toml", &config);
    let mut running = Running::start(thalweg(&["up", "--config", path.to_str().unwrap()]));
    let addrs = ["origin", "edge", "admin", "console"].map(|role| running.listening(role));
    (running, addrs)
}

#[test]
fn every_role_is_there_and_ends_on_a_signal() {
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
        // A stream of records that never ends by itself does not hold up the end.
        let mut records = ask(&console, "/api/records", "");
        assert_eq!(line_with(&mut records, "HTTP/1.1"), "HTTP/1.1 200 OK");
        let asked = Instant::now();
        assert_eq!(running.stop(signal), Some(0));
        assert!(asked.elapsed() < STOP_MAX, "{:?}", asked.elapsed());
    }
}

#[test]
fn a_request_shows_in_the_log_and_in_the_console() {
    let directory = Directory::new();
    let (running, [_, edge, admin, console]) = up(&directory);
    let mut records = ask(&console, "/api/records", "");
    line_with(&mut records, "content-type: text/event-stream"); // subscribed from here on
    get(&edge, "/of-the-test", "");
    let record = line_with(&mut records, "data:");
    assert!(record.contains(r#""path":"/of-the-test""#), "{record}");
    assert!(record.contains(r#""congestion_control":""#), "{record}");

    // By nothing can be seen that `thalweg log` has subscribed: the request is repeated until it shows. If it
    // never does, the edge goes, the log ends, and its next line is empty.
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
fn a_source_becomes_a_channel_of_the_edge() {
    let directory = Directory::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample");
    let any = "listen = '127.0.0.1:0'";
    let config = format!(
        "[origin]\n{any}\n[edge]\n{any}\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\n\
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
fn what_is_advised_can_be_played() {
    let directory = Directory::new();
    let media = directory.path().join("media");
    for refused in [".hidden", "broken"] {
        fs::create_dir_all(media.join(refused)).unwrap();
        fs::write(media.join(refused).join("v.mp4"), "no media").unwrap();
    }
    symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample"), media.join("sample")).unwrap();
    let config = format!("[origin]\nlisten = '127.0.0.1:0'\nmedia = '{}'\n", media.display());
    let path = directory.write("thalweg.toml", &config);
    let mut running = Running::start(thalweg(&["up", "--config", path.to_str().unwrap()]));
    let origin = running.listening("origin");
    let advised = format!("  ffplay http://{origin}/vod/sample/master.m3u8");
    assert_eq!(line_with(&mut running.out, "  ffplay"), advised);
    let playlist = get(&origin, "/vod/sample/master.m3u8", "");
    assert!(playlist.starts_with("HTTP/1.1 200"), "{playlist}");
}

#[test]
fn the_console_serves_its_pages_with_validators() {
    let directory = Directory::new();
    let (_running, [.., console]) = up(&directory);
    let page = get(&console, "/", "");
    // A program that was built before the pages were says 503: `make build` builds both.
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("content-type: text/html; charset=utf-8\r\n"), "{page}");
    let etag = page.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = get(&console, "/index.html", &format!("If-None-Match: \"other\", W/{etag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 304"), "{again}");
    let missing = get(&console, "/../Cargo.toml", "");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
}
