//! Tests of `load` over TLS and HTTP/2, against nginx, and against scripted servers for behaviour
//! that nginx rarely shows.
#![allow(clippy::unwrap_used)]

mod nginx;
mod program;
mod source;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use hdrhistogram::Histogram;
use thalweg_load::ErrorKind;
use thalweg_load::figures::{Figures, Time};
use thalweg_load::serve::Server;

use nginx::{Nginx, SHORT};
use program::{counts, measured, refused};

fn server() -> Server {
    Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1).unwrap()
}

fn times(figures: &Figures, time: Time) -> u64 {
    figures.time(time).map_or(0, Histogram::len)
}

#[test]
fn content_is_verified_over_tls_and_http2() {
    let server = server();
    let nginx = Nginx::start("bytes", &[("/large", 20_000_000), ("/small", 10)], server.address());
    let ca = format!("--ca {}", nginx.authority());
    for (options, scheme, address, tls) in [
        (ca.clone(), "https", nginx.tls, 3),
        (format!("--http2 {ca}"), "https", nginx.tls2, 3),
        // The server prefers HTTP/2, but the client does not offer it.
        (ca.clone(), "https", nginx.tls2, 3),
        ("--http2".to_owned(), "http", nginx.plain2, 0),
    ] {
        let urls = ["/large", "/small"].map(|path| format!("{scheme}://{address}{path}"));
        let (figures, status) = measured(&format!("-n 12 -c 3 --verify {options}"), &urls);
        assert_eq!((status, counts(&figures)), (0, vec![]), "{options}");
        assert_eq!(figures.statuses, [(200, 12)].into());
        // The content exceeds the flow-control window, so the client must send window updates. The
        // number of requests for each file varies: every request counts 10 bytes, and one for the
        // large file 19,999,990 more.
        assert_eq!(figures.content_bytes % 19_999_990, 120, "{}", figures.content_bytes);
        assert_eq!((times(&figures, Time::Connect), times(&figures, Time::Tls)), (3, tls), "{options}");
        assert_eq!((times(&figures, Time::Ttfb), times(&figures, Time::ChunkGap)), (12, 0));
    }
    let requests = nginx.finish();
    let count = |version: &str| requests.iter().filter(|line| line.starts_with(version)).count();
    // SNI must not contain addresses (RFC 6066 §3).
    assert!(requests.iter().all(|line| line.ends_with(" -")), "{requests:?}");
    assert_eq!((count("HTTP/1.1 "), count("HTTP/2.0 ")), (24, 24));
}

#[test]
fn wrong_byte_is_detected_and_ranges_are_consecutive() {
    let server = server();
    let nginx = Nginx::start("ranges", &[("/large", 1_200_000)], server.address());
    let options = format!("--http2 --verify --ca {}", nginx.authority());
    let urls = [format!("https://{}/large", nginx.tls2)];
    let (figures, status) = measured(&format!("-n 6 -c 1 --range 512KiB {options}"), &urls);
    assert_eq!((status, figures.statuses, figures.content_bytes), (0, [(206, 6)].into(), 2_400_000));
    let urls = [format!("https://{}/a?bytes=1000&corrupt=321", nginx.tls2)];
    let (figures, _) = measured(&format!("-n 5 -c 1 {options}"), &urls);
    assert_eq!(counts(&figures), [(ErrorKind::Content, 5)]);
}

#[test]
fn each_fresh_connection_does_a_handshake() {
    let server = server();
    let nginx = Nginx::start("fresh", &[("/a", 1000)], server.address());
    for (options, address) in [("", nginx.tls), ("--http2", nginx.tls2)] {
        let urls = [format!("https://localhost:{}/a", address.port())];
        let (figures, status) = measured(&format!("-n 8 -c 2 --fresh --insecure {options}"), &urls);
        assert_eq!((status, figures.content_bytes, times(&figures, Time::Tls)), (0, 8000, 8));
        let times = |time| figures.time(time).unwrap().max();
        assert!(times(Time::Tls) < times(Time::Ttlb), "ttlb includes the handshake");
    }
    let requests = nginx.finish();
    assert!(requests.iter().all(|line| line.ends_with(" localhost")), "{requests:?}");
}

#[test]
fn each_tls_error_is_one_line() {
    let server = server();
    let nginx = Nginx::start("trust", &[("/a", 1000)], server.address());
    let (ca, tls) = (nginx.authority(), nginx.tls);
    let secure = format!("https://{tls}/a");
    assert_eq!(
        refused(&[&secure]),
        "thalweg-lab: TLS with 127.0.0.1 failed: certificate signed by an unknown authority: trust it with --ca FILE, \
         or accept any with --insecure\n"
    );
    let named = format!("https://localhost:{}/a", tls.port());
    let error = refused(&["--ca", &ca, &named]);
    assert!(error.starts_with("thalweg-lab: TLS with localhost failed: invalid certificate: "), "{error}");
    assert_eq!(error.lines().count(), 1);
    for url in [&secure, &named] {
        let (figures, status) = measured("-n 3 -c 1 --insecure", std::slice::from_ref(url));
        assert_eq!((status, figures.content_bytes), (0, 3000));
    }
    assert_eq!(
        refused(&["--http2", "--ca", &ca, &secure]),
        "thalweg-lab: TLS with 127.0.0.1 failed: the server does not support HTTP/2: omit --http2\n"
    );
    assert_eq!(
        refused(&["--insecure", &format!("https://{}/", server.address())]),
        "thalweg-lab: TLS with 127.0.0.1 failed: the response is not TLS\n"
    );
    let error = refused(&["--ca", "/nowhere", &secure]);
    assert!(error.starts_with(&format!("thalweg-lab: {secure}: --ca /nowhere: ")), "{error}");
    let error = refused(&["--ca", "/dev/null", &secure]);
    assert!(error.contains("/dev/null: no certificate found"), "{error}");
}

#[test]
fn errors_are_counted_as_over_cleartext_http() {
    let server = server();
    let nginx = Nginx::start("errors", &[], server.address());
    for (options, scheme, address) in [
        ("--insecure", "https", nginx.tls),
        ("--insecure --http2", "https", nginx.tls2),
        ("--http2", "http", nginx.plain2),
    ] {
        let paths =
            ["cut?bytes=1200000&cut=700000", "cut?chunk=90B&cut=100", "down?status=503", "gone?status=404"];
        let urls = paths.map(|path| format!("{scheme}://{address}/{path}"));
        let (figures, status) = measured(&format!("-n 12 -c 1 {options}"), &urls);
        let expected = [(ErrorKind::Cut, 6), (ErrorKind::Status4xx, 3), (ErrorKind::Status5xx, 3)];
        assert_eq!((status, counts(&figures)), (1, expected.to_vec()), "{options}: {:?}", figures.examples);
        let paths = ["a?wait=10s", "a?chunk=100B&every=10s"];
        let urls = paths.map(|path| format!("{scheme}://{address}/{path}"));
        let late = "-n 4 -c 1 --head-timeout 200ms --content-timeout 200ms";
        let (figures, _) = measured(&format!("{late} {options}"), &urls);
        let expected = [(ErrorKind::HeadTimeout, 2), (ErrorKind::ContentTimeout, 2)];
        assert_eq!(counts(&figures), expected, "{options}: {:?}", figures.examples);
    }
}

#[test]
fn connection_with_a_request_limit_is_replaced() {
    let server = server();
    let nginx = Nginx::start("short", &[("/a", 1000)], server.address());
    for options in ["", "--http2"] {
        let urls = [format!("https://{}/a", nginx.short)];
        let (figures, status) = measured(&format!("-n 10 -c 1 --insecure {options}"), &urls);
        assert_eq!((status, figures.requests, figures.content_bytes), (0, 10, 10_000));
        assert_eq!(times(&figures, Time::Tls), 10 / SHORT, "{options}");
    }
}

#[test]
fn viewers_watch_over_tls_and_http2() {
    let address = source::Script::default().start();
    let nginx = Nginx::start("viewers", &[], address.parse().unwrap());
    for (options, scheme, address, tls) in [
        ("--insecure", "https", nginx.tls, 2),
        ("--insecure --http2", "https", nginx.tls2, 2),
        ("--http2", "http", nginx.plain2, 0),
    ] {
        let urls = [format!("{scheme}://{address}/live.mpd")];
        let (figures, status) = measured(&format!("--viewers -c 2 --join-within 0s -d 4s {options}"), &urls);
        let viewers = figures.viewers.unwrap();
        assert_eq!((status, counts(&figures), viewers.now.playing), (0, vec![], 2), "{options}");
        assert_eq!(times(&figures, Time::Tls), tls, "{options}");
        assert!(
            times(&figures, Time::ChunkGap) > 0,
            "chunk gaps are measured on CMAF chunks over any transport"
        );
    }
}

#[test]
fn scripts_run_over_tls_and_http2() {
    let server = server();
    let nginx = Nginx::start("script", &[], server.address());
    let script =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("secure-{}.lua", std::process::id()));
    fs::write(&script, "wrk.method = 'POST'\nwrk.body = 'foo=bar'\n").unwrap();
    for (options, scheme, address) in [
        ("--insecure", "https", nginx.tls),
        ("--insecure --http2", "https", nginx.tls2),
        ("--http2", "http", nginx.plain2),
    ] {
        let options = format!("-n 3 -c 1 --script {} {options}", script.display());
        let (figures, _) = measured(&options, &[format!("{scheme}://{address}/a")]);
        // The backend rejects requests with content.
        assert_eq!((figures.requests, times(&figures, Time::Ttlb)), (3, 3), "{:?}", figures.examples);
    }
    fs::remove_file(&script).unwrap();
    let line = |version: &str| vec![format!("{version} POST foo=bar /a -"); 3];
    assert_eq!(nginx.finish(), [line("HTTP/1.1"), line("HTTP/2.0"), line("HTTP/2.0")].concat());
}

/// The server's reaction to the second request on each connection.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Refuses the stream.
    Refuse,
    /// Sends a GOAWAY that names the first request as the last one processed.
    GoAway,
    /// Closes the connection without sending anything.
    Close,
    /// Resets the stream with an error code after which the request may have been processed.
    Fail,
}

/// Serves cleartext HTTP/2 frame by frame until the process exits. Returns the URL.
fn scripted(then: Then) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The initial connectivity check sends no request.
            thread::spawn(move || serve(&mut stream, then));
        }
    });
    url
}

/// Frame types (RFC 9113 §6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn serve(stream: &mut TcpStream, then: Then) -> io::Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    stream.read_exact(&mut [0; PREFACE.len()])?;
    write_frame(stream, SETTINGS, 0, 0, &[])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        stream.read_exact(&mut vec![0; length])?;
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], number, then) {
            // `:status: 204` (RFC 7541, appendix A), with END_HEADERS and END_STREAM.
            (HEADERS, 1, _) => write_frame(stream, HEADERS, 0x5, 1, &[0x89])?,
            (HEADERS, _, Then::Refuse) => write_frame(stream, RST_STREAM, 0, number, &7u32.to_be_bytes())?,
            (HEADERS, _, Then::Fail) => write_frame(stream, RST_STREAM, 0, number, &2u32.to_be_bytes())?,
            (HEADERS, _, Then::GoAway) => write_frame(stream, GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])?,
            (HEADERS, _, Then::Close) => return Ok(()),
            _ => {}
        }
    }
}

fn write_frame(stream: &mut TcpStream, kind: u8, flags: u8, number: u32, content: &[u8]) -> io::Result<()> {
    let [_, length @ ..] = u32::try_from(content.len()).unwrap().to_be_bytes();
    let head = [&length[..], &[kind, flags], &number.to_be_bytes(), content].concat();
    stream.write_all(&head)
}

#[test]
fn unprocessed_request_is_retried() {
    for then in [Then::Refuse, Then::GoAway, Then::Close] {
        let (figures, status) = measured("-n 5 -c 1 --http2", &[scripted(then)]);
        assert_eq!((status, figures.requests, counts(&figures)), (0, 5, vec![]), "{then:?}");
        assert_eq!((figures.reconnects, times(&figures, Time::Connect)), (4, 5), "{then:?}");
    }
    let (figures, status) = measured("-n 5 -c 1 --http2", &[scripted(Then::Fail)]);
    assert_eq!((status, counts(&figures), figures.reconnects), (1, vec![(ErrorKind::NoHead, 2)], 0));
}

#[test]
fn http1_response_to_http2_is_malformed() {
    let server = server();
    let (figures, status) = measured("-n 3 -c 1 --http2", &[format!("http://{}/", server.address())]);
    assert_eq!((status, counts(&figures)), (1, vec![(ErrorKind::Malformed, 3)]));
}
