//! The edge is killed before, while and after it keeps a bundle: it begins with the last good one, from the first response on, whether
//! the server of bundles is there or not.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use program::{Directory, PATIENCE, Port, Process, edge, until};
use serde_json::Value;
use thalweg_bundle::{Bundle, Content, Rule, Share};

/// Tries to kill the edge while it writes a bundle: one has to be in time.
const TRIES_MAX: u64 = 100;
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
        self.give_part(bundle, bundle.encode().len());
    }

    /// Answers the next request with so many bytes of a bundle.
    fn give_part(&self, bundle: &Bundle, bytes: usize) -> TcpStream {
        let (document, checksum) = (bundle.encode(), bundle.checksum());
        let (mut stream, _) = self.poll();
        let head =
            format!("HTTP/1.1 200 OK\r\nETag: \"{checksum}\"\r\nContent-Length: {}\r\n\r\n", document.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&document.as_bytes()[..bytes]).unwrap();
        stream
    }

    /// Answers the next request with a bundle, and waits until the edge says that it has it: then it is kept. The next request is held.
    fn give_and_hear(&self, bundle: &Bundle) -> TcpStream {
        self.give(bundle);
        let (stream, head) = self.poll();
        assert!(head.contains(bundle.checksum()), "{head}");
        stream
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
        let mut command = edge(backend);
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

/// What an edge keeps.
struct Kept(PathBuf);

impl Kept {
    fn number(&self) -> u64 {
        Bundle::decode(&std::fs::read(&self.0).unwrap()).unwrap().content().number
    }

    /// That another is being written.
    fn is_written(&self) -> bool {
        self.0.with_added_extension("new").exists()
    }

    /// Which file it is.
    fn inode(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().ino()
    }
}

#[test]
fn an_edge_begins_with_the_last_good_bundle() {
    let directory = Directory::new();
    let (backend, port) = (backend(), Port::new());
    let server = Server(port.listen());
    let kept = Kept(directory.0.join("edge/bundle.json"));
    let start = || Edge::start(&directory.0, backend, port.address());
    let begin_with = |number: u64| {
        let edge = start();
        let stats = edge.bundle();
        assert_eq!((&stats["number"], &stats["source"]), (&number.into(), &"kept".into()), "{stats}");
        edge
    };

    // Killed after it was kept, which it is once the edge says that it has it.
    let mut edge = start();
    let held = server.give_and_hear(&bundle(1));
    edge.process.kill();
    assert!(kept.number() == 1 && !kept.is_written());
    drop(held);

    // Before: a part of it has come.
    let mut edge = begin_with(1);
    let part = server.give_part(&bundle(2), 100_000);
    edge.process.kill();
    assert!(kept.number() == 1 && !kept.is_written());
    drop(part);

    // While it is written: the file that takes the place of the other is there.
    let (mut last, mut is_caught) = (1, false);
    for next in 3..3 + TRIES_MAX {
        let mut edge = begin_with(last);
        let before = kept.inode();
        server.give(&bundle(next));
        let begun = Instant::now();
        while !kept.is_written() && kept.inode() == before {
            assert!(begun.elapsed() < PATIENCE, "it is not written");
            std::hint::spin_loop();
        }
        edge.process.kill();
        is_caught = kept.is_written();
        let expected = if is_caught { last } else { next };
        assert_eq!(kept.number(), expected);
        last = expected;
        if is_caught {
            break;
        }
    }
    assert!(is_caught, "never killed while a bundle was written");

    // What is left of it is in nobody's way.
    let mut edge = begin_with(last);
    let held = server.give_and_hear(&bundle(200));
    edge.process.kill();
    assert!(kept.number() == 200 && !kept.is_written());

    // Without the server.
    drop((server, held));
    let edge = start();
    let record = edge.first_record(&directory.0, "/first");
    assert_eq!(
        (&record["steered"]["bundle"], &record["tcp"]["decider"]),
        (&200.into(), &"rule".into()),
        "{record}"
    );
    assert_eq!(edge.bundle()["source"], "kept");
    until("it is told that there is no server", || edge.bundle()["unheard"]["reason"].is_string());
    edge.process.end();

    // A server that has come back is asked as if nothing had been.
    let server = Server(port.listen());
    let edge = start();
    let (_, head) = server.poll();
    assert!(head.contains(&format!("\r\nif-none-match: \"{}\"\r\n", bundle(200).checksum())), "{head}");
    assert!(head.starts_with("GET /bundle?pop=test&edge="), "{head}");
    edge.process.end();
}
