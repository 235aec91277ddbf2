//! `thalweg purge`, `ban` and `bans` against a running edge.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;

use crate::program::{Running, thalweg};

/// Runs the program; returns its exit status and all output.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = thalweg(args).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Requests `path` from the edge and responds to the edge's fetch with a response tagged `t`.
fn serve(backend: &TcpListener, edge: &str, path: &str) {
    let mut client = TcpStream::connect(edge).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: media.example\r\nConnection: close\r\n\r\n").unwrap();
    let (mut fetch, _) = backend.accept().unwrap();
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nSurrogate-Key: t\r\nConnection: close\r\n";
    write!(fetch, "{head}Content-Length: 1\r\n\r\nx").unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn urls_and_tags_are_purged_and_expressions_banned() {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", backend.local_addr().unwrap());
    let listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off", "--backend", &url];
    let mut edge = Running::start(thalweg(&[&["edge"], &listen[..]].concat()));
    let addr = edge.listening("edge");
    let admin = edge.listening("admin");
    let done = |report: &str| (Some(0), report.to_owned());

    serve(&backend, &addr, "/a");
    let purge = |args: &[&str]| run(&[&["purge", "--admin", &admin], args].concat());
    assert_eq!(purge(&["http://media.example/a"]), done("1 stored response purged\n"));
    serve(&backend, &addr, "/a");
    assert_eq!(purge(&["--soft", "media.example/a", "media.example/b"]), done("1 stored response purged\n"));
    let by_tag = "purged; tagged responses are found on their next request, so their number is unknown\n";
    assert_eq!(purge(&["--tag", "s", "t"]), done(by_tag));
    serve(&backend, &addr, "/a");

    // A pending fetch keeps the ban in force.
    let mut waiting = TcpStream::connect(&addr).unwrap();
    waiting.write_all(b"GET /b HTTP/1.1\r\nHost: media.example\r\n\r\n").unwrap();
    let (fetch, _) = backend.accept().unwrap();
    assert_eq!(run(&["ban", "--admin", &admin, "obj.status == 200"]), done("banned\n"));
    let (status, bans) = run(&["bans", "--admin", &admin]);
    assert!(status == Some(0) && bans.ends_with("s ago: obj.status == 200\n"), "{bans}");
    serve(&backend, &addr, "/a");

    let refused = purge(&["media.example/../a"]);
    assert_eq!(refused, (Some(1), "thalweg: media.example/../a: path contains a dot segment\n".into()));
    drop((waiting, fetch));
    assert_eq!(edge.stop(Signal::TERM), Some(0));
    let gone = format!(
        "thalweg: no edge answers at {admin}; set --admin: cannot reach http://{admin}/purge: tcp connect error: Connection refused (os error 111)\n"
    );
    assert_eq!(purge(&["media.example/a"]), (Some(1), gone));
}
