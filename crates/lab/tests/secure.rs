//! `load` over TLS and HTTP/2: against nginx, and against servers that do by script what nginx does seldom.
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
use thalweg_lab::load::ErrorKind;
use thalweg_lab::load::figures::{Figures, Time};
use thalweg_lab::load::serve::Server;

use nginx::{Nginx, SHORT};
use program::{counts, measured, refused};

fn server() -> Server {
    Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1).unwrap()
}

fn times(figures: &Figures, time: Time) -> u64 {
    figures.time(time).map_or(0, Histogram::len)
}

#[test]
fn every_byte_is_the_one_that_was_asked_for() {
    let server = server();
    let nginx = Nginx::start("bytes", &[("/large", 20_000_000), ("/small", 10)], server.address());
    let ca = format!("--ca {}", nginx.authority());
    for (options, scheme, address, tls) in [
        (ca.clone(), "https", nginx.tls, 3),
        (format!("--http2 {ca}"), "https", nginx.tls2, 3),
        // The server would rather speak HTTP/2, and is not asked to.
        (ca.clone(), "https", nginx.tls2, 3),
        ("--http2".to_owned(), "http", nginx.plain2, 0),
    ] {
        let urls = ["/large", "/small"].map(|path| format!("{scheme}://{address}{path}"));
        let (figures, status) = measured(&format!("-n 12 -c 3 --verify {options}"), &urls);
        assert_eq!((status, counts(&figures)), (0, vec![]), "{options}");
        assert_eq!(figures.statuses, [(200, 12)].into());
        // More than the window, so that room is given back as content comes. Which of the clients asks how often is not said: of each URL about half.
        assert_eq!(figures.content_bytes % 19_999_990, 120, "{}", figures.content_bytes);
        assert_eq!((times(&figures, Time::Connect), times(&figures, Time::Tls)), (3, tls), "{options}");
        assert_eq!((times(&figures, Time::Ttfb), times(&figures, Time::ChunkGap)), (12, 0));
    }
    let asked = nginx.finish();
    let count = |version: &str| asked.iter().filter(|line| line.starts_with(version)).count();
    // An address is no name of a server: there is none in SNI (RFC 6066 §3).
    assert!(asked.iter().all(|line| line.ends_with(" -")), "{asked:?}");
    assert_eq!((count("HTTP/1.1 "), count("HTTP/2.0 ")), (24, 24));
}

#[test]
fn a_wrong_byte_is_found_and_ranges_follow_one_another() {
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
fn each_fresh_connection_has_a_handshake() {
    let server = server();
    let nginx = Nginx::start("fresh", &[("/a", 1000)], server.address());
    for (options, address) in [("", nginx.tls), ("--http2", nginx.tls2)] {
        let urls = [format!("https://localhost:{}/a", address.port())];
        let (figures, status) = measured(&format!("-n 8 -c 2 --fresh --insecure {options}"), &urls);
        assert_eq!((status, figures.content_bytes, times(&figures, Time::Tls)), (0, 8000, 8));
        let times = |time| figures.time(time).unwrap().max();
        assert!(times(Time::Tls) < times(Time::Ttlb), "the handshake is in the time to the last byte");
    }
    let asked = nginx.finish();
    assert!(asked.iter().all(|line| line.ends_with(" localhost")), "{asked:?}");
}

#[test]
fn who_is_not_trusted_is_told_in_one_line() {
    let server = server();
    let nginx = Nginx::start("trust", &[("/a", 1000)], server.address());
    let (ca, tls) = (nginx.authority(), nginx.tls);
    let secure = format!("https://{tls}/a");
    assert_eq!(
        refused(&[&secure]),
        "thalweg-lab: no TLS with 127.0.0.1: nobody known has signed its certificate: --ca FILE names whom to trust, \
         --insecure takes any\n"
    );
    let named = format!("https://localhost:{}/a", tls.port());
    let told = refused(&["--ca", &ca, &named]);
    assert!(
        told.starts_with("thalweg-lab: no TLS with localhost: its certificate is not to be trusted: "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1);
    for url in [&secure, &named] {
        let (figures, status) = measured("-n 3 -c 1 --insecure", std::slice::from_ref(url));
        assert_eq!((status, figures.content_bytes), (0, 3000));
    }
    assert_eq!(
        refused(&["--http2", "--ca", &ca, &secure]),
        "thalweg-lab: no TLS with 127.0.0.1: it does not speak HTTP/2: leave out --http2\n"
    );
    assert_eq!(
        refused(&["--insecure", &format!("https://{}/", server.address())]),
        "thalweg-lab: no TLS with 127.0.0.1: what it says is not TLS\n"
    );
    let told = refused(&["--ca", "/nowhere", &secure]);
    assert!(told.starts_with(&format!("thalweg-lab: {secure}: --ca /nowhere: ")), "{told}");
    let told = refused(&["--ca", "/dev/null", &secure]);
    assert!(told.contains("/dev/null: there is no certificate in it"), "{told}");
}

#[test]
fn errors_are_those_of_plain_http() {
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
fn a_connection_that_is_to_carry_no_more_is_made_anew() {
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
fn viewers_watch_over_each_of_them() {
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
        assert!(times(&figures, Time::ChunkGap) > 0, "of CMAF chunks, whatever carries them");
    }
}

#[test]
fn a_script_asks_by_each_of_them() {
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
        // The server behind takes no content, and says so.
        assert_eq!((figures.requests, times(&figures, Time::Ttlb)), (3, 3), "{:?}", figures.examples);
    }
    fs::remove_file(&script).unwrap();
    let line = |version: &str| vec![format!("{version} POST foo=bar /a -"); 3];
    assert_eq!(nginx.finish(), [line("HTTP/1.1"), line("HTTP/2.0"), line("HTTP/2.0")].concat());
}

/// What a server does to the second request of each connection.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Refuses it.
    Refuse,
    /// Says that it takes no more than it has taken.
    GoAway,
    /// Closes, and says nothing.
    Close,
    /// Fails it; it may have begun with it.
    Fail,
}

/// Serves HTTP/2 in plain until the process ends, frame by frame; its URL.
fn scripted(then: Then) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The look whether anybody is there asks nothing.
            thread::spawn(move || serve(&mut stream, then));
        }
    });
    url
}

/// RFC 9113 §6.
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
            // `:status: 204` (RFC 7541, appendix A); the end of the head and of the stream.
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
fn a_request_that_was_not_begun_with_is_sent_again() {
    for then in [Then::Refuse, Then::GoAway, Then::Close] {
        let (figures, status) = measured("-n 5 -c 1 --http2", &[scripted(then)]);
        assert_eq!((status, figures.requests, counts(&figures)), (0, 5, vec![]), "{then:?}");
        assert_eq!((figures.reconnects, times(&figures, Time::Connect)), (4, 5), "{then:?}");
    }
    let (figures, status) = measured("-n 5 -c 1 --http2", &[scripted(Then::Fail)]);
    assert_eq!((status, counts(&figures), figures.reconnects), (1, vec![(ErrorKind::NoHead, 2)], 0));
}

#[test]
fn what_is_not_http2_is_malformed() {
    let server = server();
    let (figures, status) = measured("-n 3 -c 1 --http2", &[format!("http://{}/", server.address())]);
    assert_eq!((status, counts(&figures)), (1, vec![(ErrorKind::Malformed, 3)]));
}
