//! End-to-end tests of `load` against servers whose known misbehaviour the figures must show.
#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use thalweg_load::ErrorKind;
use thalweg_load::figures::{Figures, Time};
use thalweg_load::report::to_json;
use thalweg_load::serve::Server;

use program::{PROGRAM, counts, done, lab, refused};

fn server() -> Server {
    Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1).unwrap()
}

/// Runs a load with `options` against `paths` on the server.
fn measured(server: &Server, options: &str, paths: &[&str]) -> (Figures, i32) {
    let urls: Vec<String> = paths.iter().map(|path| format!("http://{}{path}", server.address())).collect();
    program::measured(options, &urls)
}

#[test]
fn known_delay_is_measured() {
    let (figures, status) = measured(&server(), "-n 40 -c 2", &["/a?wait=50ms"]);
    assert_eq!((status, figures.requests, figures.begun, figures.clients), (0, 40, 40, 2));
    assert_eq!((figures.content_bytes, &figures.statuses), (40_000, &[(200, 40)].into()));
    for time in [Time::Ttfb, Time::Ttlb] {
        let times = figures.time(time).unwrap();
        let asked = times.lowest_equivalent(50_000);
        assert_eq!(times.len(), 40);
        // Allow 2 ms less: the server's timer has millisecond resolution, and a busy machine may
        // record a request's send time late.
        assert!((asked - 2000..60_000).contains(&times.min()), "{time:?}: {}", times.min());
    }
    assert_eq!(figures.time(Time::Connect).unwrap().len(), 2);
}

#[test]
fn chunk_gaps_are_measured() {
    let path = "/a?bytes=100000&chunk=20kB&every=20ms";
    for verify in ["", "--verify"] {
        let (figures, status) = measured(&server(), &format!("-n 4 -c 1 {verify}"), &[path]);
        assert_eq!((status, figures.content_bytes), (0, 400_000));
        let gaps = figures.time(Time::ChunkGap).unwrap();
        assert_eq!(gaps.len(), 4 * 4);
        assert!((19_000..40_000).contains(&gaps.value_at_quantile(0.5)), "{}", gaps.value_at_quantile(0.5));
        assert!(figures.time(Time::Ttlb).unwrap().min() >= 79_900);
    }
}

#[test]
fn errors_are_counted_exactly_with_examples() {
    let paths = [
        "/good",
        "/cut?cut=700",
        "/wrong?corrupt=321",
        "/gone?status=404",
        "/down?status=503",
        "/cut?chunk=90B&cut=100",
    ];
    let (figures, status) = measured(&server(), "-n 60 -c 1 --verify", &paths);
    assert_eq!(status, 1);
    assert_eq!(
        counts(&figures),
        [
            (ErrorKind::Cut, 20),
            (ErrorKind::Status4xx, 10),
            (ErrorKind::Status5xx, 10),
            (ErrorKind::Content, 10)
        ]
    );
    assert_eq!(figures.statuses, [(200, 40), (404, 10), (503, 10)].into());
    // Only complete responses have times.
    assert_eq!(figures.time(Time::Ttlb).unwrap().len(), 30);
    let example = |kind| figures.examples[&kind].1.split_once(": ").unwrap().1.to_owned();
    assert_eq!(example(ErrorKind::Cut), "the server closed after 700 of 1000 bytes");
    assert_eq!(example(ErrorKind::Content), "byte 321 differs from the expected content");
    assert_eq!(example(ErrorKind::Status5xx), "responded with 503");
}

#[test]
fn slow_responses_time_out() {
    let paths = ["/a?wait=10s", "/a?chunk=100B&every=10s"];
    let (figures, status) =
        measured(&server(), "-n 4 -c 1 --head-timeout 50ms --content-timeout 50ms", &paths);
    assert_eq!((status, figures.requests), (1, 4));
    assert_eq!(counts(&figures), [(ErrorKind::HeadTimeout, 2), (ErrorKind::ContentTimeout, 2)]);
}

#[test]
fn content_is_checked_only_with_verify() {
    let (figures, status) = measured(&server(), "-n 9 -c 3", &["/wrong?corrupt=321&bytes=900000"]);
    assert_eq!((status, figures.content_bytes), (0, 9 * 900_000));
    let (figures, status) = measured(&server(), "-n 9 -c 3 --verify", &["/right?bytes=900000"]);
    assert_eq!((status, figures.content_bytes), (0, 9 * 900_000));
}

#[test]
fn ranges_are_consecutive_to_the_end() {
    let (figures, status) = measured(&server(), "-n 6 -c 1 --range 512KiB --verify", &["/a?bytes=1200000"]);
    assert_eq!((status, figures.statuses, figures.content_bytes), (0, [(206, 6)].into(), 2_400_000));
    let (figures, _) = measured(&server(), "-n 3 -c 1 --range 1KiB", &["/a?status=200"]);
    assert_eq!(counts(&figures), [(ErrorKind::Range, 3)]);
}

/// With one client, responses after 20 ms, and a request due every 10 ms, each request waits for
/// all earlier ones; times must include that wait.
#[test]
fn open_model_counts_the_wait_for_a_slow_server() {
    let server = server();
    let (figures, _) = measured(&server, "-n 30 -c 1 --rate 100/s", &["/a?wait=20ms"]);
    let times = figures.time(Time::Ttlb).unwrap();
    // Request i is due at 10 i ms, and its response arrives at 20 (i + 1) ms at the earliest. The
    // last request, i = 29, thus takes at least 600 − 290 = 310 ms.
    assert!(times.max() >= times.lowest_equivalent(310_000), "{}", times.max());
    assert!(times.mean() >= 164_000.0, "{}", times.mean());
    assert!((20_000 - 20..40_000).contains(&times.min()), "{}", times.min());
    let (closed, _) = measured(&server, "-n 30 -c 1", &["/a?wait=20ms"]);
    assert!(closed.time(Time::Ttlb).unwrap().value_at_quantile(0.5) < 60_000);
}

#[test]
fn open_model_ends_with_its_requests() {
    // The run must not wait until all fifty clients have had a request, which would take fifty
    // seconds.
    let (figures, status) = measured(&server(), "-n 2 -c 50 --rate 1/s", &["/a"]);
    assert_eq!((status, figures.begun, figures.requests, figures.unsent), (0, 2, 2, 0));
    assert!(figures.measured_s() < 20.0, "{}", figures.measured_s());
}

#[test]
fn unsent_requests_are_counted() {
    let (figures, _) = measured(&server(), "-d 500ms -c 1 --rate 100/s", &["/a?wait=10s"]);
    // One request is in flight; the others due within half a second had no client.
    assert_eq!((figures.begun, figures.requests), (1, 0));
    // On a busy machine, the run ends late, with more requests due by then.
    assert!((48..=150).contains(&figures.unsent), "{}", figures.unsent);
}

#[test]
fn warm_up_is_excluded() {
    let (figures, _) = measured(&server(), "-d 600ms --warm-up 300ms -c 1 --rate 100/s", &["/a"]);
    // On a busy machine, the run ends late, and requests due in the extra time count too.
    let due = 100.0 * figures.measured_s();
    assert!((figures.requests as f64 - due).abs() <= 5.0, "{} of {due}", figures.requests);
    assert!((0.29..1.5).contains(&figures.measured_s()), "{}", figures.measured_s());
}

#[test]
fn merged_figures_equal_those_of_all_runs() {
    let server = server();
    let directory = std::env::temp_dir().join(format!("thalweg-lab-load-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut expected = Figures::default();
    let mut arguments = vec!["merge".to_owned()];
    let run = |options| measured(&server, options, &["/a?wait=50ms", "/b?status=500"]).0;
    let both = thread::scope(|scope| {
        let beside = scope.spawn(|| run("-n 20 -c 2"));
        [run("-n 30 -c 3"), beside.join().unwrap()]
    });
    for (name, figures) in ["a.json", "b.json"].into_iter().zip(both) {
        let file = directory.join(name);
        fs::write(&file, to_json(&figures)).unwrap();
        arguments.push(file.to_str().unwrap().to_owned());
        expected.merge(&figures);
    }
    arguments.extend(["--json".to_owned(), "-".to_owned()]);
    let (merged, status) =
        done(lab(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap());
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!((status, merged.requests, merged.runs.len(), merged.clients), (0, 50, 2, expected.clients));
    assert_eq!(merged, expected);
}

/// Reads one request head from a client.
fn request(stream: &TcpStream) -> String {
    let mut text = String::new();
    let mut reader = BufReader::new(stream);
    while !text.ends_with("\r\n\r\n") && reader.read_line(&mut text).unwrap() > 0 {}
    text
}

#[test]
fn interrupted_load_writes_its_figures() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v/1.m4s", listener.local_addr().unwrap());
    let options = "-d 1h -c 3 --source 127.0.0.2-127.0.0.4 --cmcd --cmcd-bitrate 3Mbit/s -H a:b --json -";
    let arguments: Vec<&str> = options.split_whitespace().chain([url.as_str()]).collect();
    let child = lab(&arguments).spawn().unwrap();
    // The first connection is the initial connectivity check.
    let mut streams: Vec<_> = (0..4).map(|_| listener.accept().unwrap()).collect();
    let mut sources: Vec<String> = streams
        .drain(1..)
        .map(|(stream, address)| {
            let text = request(&stream);
            assert!(
                text.contains("\r\na: b\r\n") && text.contains("\r\nCMCD-Object: br=3000,ot=v\r\n"),
                "{text}"
            );
            assert!(text.contains("\r\nCMCD-Session: cid=\"/v\",sid=\""), "{text}");
            address.ip().to_string()
        })
        .collect();
    sources.sort();
    assert_eq!(sources, ["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (figures, _) = done(child);
    assert_eq!(figures.clients, 3);
}

#[test]
fn request_on_a_closed_connection_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if !request(&stream).is_empty() {
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            }
        }
    });
    let (figures, status) = done(lab(&["-n", "5", "-c", "1", "--json", "-", &url]).spawn().unwrap());
    assert_eq!((status, figures.requests, figures.reconnects), (0, 5, 4));
}

#[test]
fn each_startup_error_is_one_line() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(
        refused(&[&format!("http://{unused}/")]),
        format!("thalweg-lab: cannot connect to {unused}: Connection refused (os error 111)\n")
    );
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" load -c 50 http://127.0.0.1:1/", PROGRAM]);
    let output = limited.output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "thalweg-lab: 50 clients need 114 open files, but the limit is 100: raise `ulimit -Hn`, or run several \
         processes and `thalweg-lab load merge` their figures\n"
    );
    let wrong = ["--source", "::1", "http://127.0.0.1/"];
    assert_eq!(
        refused(&wrong),
        "thalweg-lab: http://127.0.0.1/: resolves to 127.0.0.1:80, but --source has addresses of the other family\n"
    );
    assert!(refused(&["merge", "/nowhere"]).starts_with("thalweg-lab: /nowhere: No such file"));
}

#[test]
fn unwritable_output_fails_before_measuring() {
    let server = server();
    let url = format!("http://{}/a", server.address());
    let error = refused(&["-n", "1", "--html", "/nowhere/page.html", &url]);
    assert_eq!(
        error,
        "thalweg-lab: cannot write /nowhere/page.html: No such file or directory (os error 2)\n"
    );
}

#[test]
fn load_without_any_response_fails() {
    let (figures, status) = measured(&server(), "-c 2 -d 300ms", &["/a?wait=60s"]);
    assert_eq!((status, figures.requests, figures.begun), (1, 0, 2));
}

#[test]
fn open_model_counts_unanswered_requests() {
    // Both clients are blocked the whole time; due requests without a response count with their
    // waiting time so far.
    let (figures, status) = measured(&server(), "--rate 100/s -c 2 -d 1s", &["/a?wait=60s"]);
    let times = figures.time(Time::Ttlb).unwrap();
    assert_eq!((status, figures.begun, times.len()), (1, 2, 2 + figures.unsent));
    assert!(figures.unsent >= 90 && times.max() >= 990_000, "{} {}", figures.unsent, times.max());
    assert!((350_000..700_000).contains(&times.value_at_quantile(0.5)), "{}", times.value_at_quantile(0.5));
}

#[test]
fn verification_finds_missing_content() {
    let server = server();
    let (figures, status) = measured(&server, "-n 4 -c 1 --verify", &["/a?bytes=0", "/a?bytes=500"]);
    assert_eq!((status, counts(&figures)), (1, vec![(ErrorKind::Content, 2)]));
    let (figures, status) = measured(&server, "-n 3 -c 1 --verify --range 200B", &["/a?bytes=500"]);
    assert_eq!((status, figures.content_bytes, counts(&figures)), (0, 500, vec![]));
    let (figures, _) = measured(&server, "-n 2 -c 1 --verify", &["/a?status=302"]);
    assert_eq!(counts(&figures), [(ErrorKind::Content, 2)]);
}
