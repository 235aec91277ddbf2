//! The edge is killed again and again, while its bundles come: it begins with the last good one, from the first response on,
//! whether the server of bundles is there or not.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

use program::{Directory, PATIENCE, Process, number, thalweg, until};
use serde_json::Value;
use thalweg_bundle::{Bundle, Content, Rule, Share};

/// How often the edge is killed while it takes a bundle, each time a little later, up to twice the time that this takes.
const KILLS: u64 = 12;
const OTHER_RULES: u64 = 5000;

/// A rule for clients here, and many others, so that there is something to write.
fn bundle(number: u64) -> Bundle {
    let rule = |prefix: String| Rule {
        tenant: String::new(),
        prefix: prefix.parse().unwrap(),
        congestion_control: "reno".into(),
        size_bytes_min: Some(0),
        salt: String::new(),
        holdout: Share::from_number(0.0).unwrap(),
        reason: "slow".into(),
    };
    let others = (0..OTHER_RULES).map(|at| format!("10.{}.{}.0/24", at >> 8, at & 255));
    let rules = others.chain(["127.0.0.0/8".into()]).map(rule).collect();
    Bundle::new(Content { number, rules, ..Content::default() }).unwrap()
}

/// The head of a message; nothing if whoever sends it has gone.
fn head(stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut input, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Whether the other end has not closed.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let is_open = matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    is_open
}

/// A server of bundles, which answers when it is told to.
struct Server(TcpListener);

impl Server {
    /// The next request of an edge that has not been killed since.
    fn poll(&self) -> (TcpStream, String) {
        loop {
            let (stream, _) = self.0.accept().unwrap();
            if let Some(head) = head(&stream).filter(|_| is_open(&stream)) {
                return (stream, head);
            }
        }
    }

    /// Answers the next request with a bundle.
    fn give(&self, bundle: &Bundle) {
        let (document, checksum) = (bundle.encode(), bundle.checksum());
        let (mut stream, _) = self.poll();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nETag: \"{checksum}\"\r\nContent-Length: {}\r\n\r\n{document}",
            document.len()
        )
        .unwrap();
    }
}

/// A backend whose every response is the same.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            head(&stream).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\nCache-Control: no-store\r\n\r\na";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

struct Edge {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Edge {
    fn start(directory: &Path, backend: SocketAddr, server: SocketAddr) -> Self {
        let mut command = thalweg();
        command.args([
            "edge",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--memory",
            "16MiB",
            "--threads",
            "1",
        ]);
        command.arg("--backend").arg(format!("http://{backend}"));
        command.arg("--bundle").arg(format!("http://{server}/bundle?pop=test"));
        command.arg("--state").arg(directory.join("edge")).arg("--log").arg(directory.join("log"));
        let process = Process::start(&mut command);
        let address = process.said("edge listening").parse().unwrap();
        let admin = process.said("admin listening").parse().unwrap();
        Self { process, address, admin }
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        content.to_owned()
    }

    /// The record of this start's first response, to a request for `path`.
    fn first_record(&self, directory: &Path, path: &str) -> Value {
        Self::get(self.address, path);
        let of_path = || {
            let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            // The last line may be half written.
            let whole = log[..log.rfind('\n').map_or(0, |end| end + 1)].lines();
            let mut records = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
            records.find(|record| record.to_string().contains(&format!("\"{path}\"")))
        };
        until("the response is in the log", || of_path().is_some());
        of_path().unwrap()
    }

    fn bundle(&self) -> Value {
        serde_json::from_str::<Value>(&Self::get(self.admin, "/stats")).unwrap()["bundle"].clone()
    }
}

#[test]
fn an_edge_begins_with_the_last_good_bundle() {
    let directory = Directory::new();
    let backend = backend();
    let server = Server(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = server.0.local_addr().unwrap();
    let start = || Edge::start(&directory.0, backend, address);

    let mut edge = start();
    server.give(&bundle(1));
    let given = Instant::now();
    until("it is in force", || edge.bundle()["number"] == 1);
    let took = given.elapsed();
    // What it is told of is kept.
    let (stream, head) = server.poll();
    assert!(head.contains(bundle(1).checksum()), "{head}");
    edge.process.kill();
    drop(stream);

    // Killed while it takes one more, it begins with that or with the one before.
    let (mut last, mut taken) = (1, 0);
    for kill in 0..KILLS {
        let mut edge = start();
        let stats = edge.bundle();
        assert!([last, kill + 1].contains(&number(&stats, "number")), "{stats}, after {last}");
        assert_eq!(stats["source"], "kept");
        taken += u64::from(number(&stats, "number") > last);
        last = number(&stats, "number");
        server.give(&bundle(kill + 2));
        thread::sleep(took.mul_f64(2.0 * kill as f64 / KILLS as f64)); // when the kill comes, not what is waited for
        edge.process.kill();
    }
    let mut edge = start();
    server.give(&bundle(100));
    let (stream, head) = server.poll();
    assert!(head.contains(bundle(100).checksum()), "{head}");
    edge.process.kill();

    // Without the server.
    drop((server, stream));
    println!("{taken} of {KILLS} bundles were kept before the kill");
    let edge = start();
    let record = edge.first_record(&directory.0, "/first");
    assert_eq!(
        (&record["steered"]["bundle"], &record["tcp"]["decider"]),
        (&100.into(), &"rule".into()),
        "{record}"
    );
    assert_eq!(edge.bundle()["source"], "kept");
    until("it is told that there is no server", || edge.bundle()["unheard"]["reason"].is_string());
    edge.process.end();

    // A server that has come back is asked as if nothing had been.
    let server = Server(TcpListener::bind(address).unwrap());
    let edge = start();
    let (_, head) = server.poll();
    assert!(head.contains(&format!("\r\nif-none-match: \"{}\"\r\n", bundle(100).checksum())), "{head}");
    assert!(head.starts_with("GET /bundle?pop=test&edge="), "{head}");
    edge.process.end();
}
