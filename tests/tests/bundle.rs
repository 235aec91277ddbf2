//! Bundle persistence: the edge is killed before, during and after it stores a bundle. It must
//! restart with the last good bundle in force from the first response on, whether or not the bundle
//! server is reachable.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// Maximum number of attempts to kill the edge while it writes a bundle, one of which must succeed.
const TRIES_MAX: u64 = 100;
const OTHER_RULES: u64 = 5000;

/// Returns a bundle with a rule for local clients and many others, so that writing takes time.
fn bundle(number: u64) -> Bundle {
    let rule = |prefix: String| Rule {
        tenant: String::new(),
        prefix: prefix.parse().unwrap(),
        congestion_control: "reno".into(),
        size_bytes_min: Some(0),
        initcwnd: None,
        initrwnd: None,
        salt: String::new(),
        holdout: Share::from_number(0.0).unwrap(),
        period_s: None,
        switchback_block_s: None,
        reason: "slow".into(),
    };
    let others = (0..OTHER_RULES).map(|at| format!("10.{}.{}.0/24", at >> 8, at & 255));
    let rules = others.chain(["127.0.0.0/8".into()]).map(rule).collect();
    Bundle::new(Content { number, rules, ..Content::default() }).unwrap()
}

/// Reads the head of a message; returns `None` if the sender has closed the connection.
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

/// Returns whether the peer has kept the connection open.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let is_open = matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    is_open
}

/// A bundle server controlled by the test.
struct Server(TcpListener);

impl Server {
    /// Waits for the next request from an edge that is still running.
    fn next_request(&self) -> (TcpStream, String) {
        loop {
            let (stream, _) = self.0.accept().unwrap();
            if let Some(head) = head(&stream).filter(|_| is_open(&stream)) {
                return (stream, head);
            }
        }
    }

    /// Sends a bundle as the response to the next request.
    fn send_bundle(&self, bundle: &Bundle) {
        self.send_part(bundle, bundle.encode().len());
    }

    /// Sends the first `bytes` of a bundle as the response to the next request.
    fn send_part(&self, bundle: &Bundle, bytes: usize) -> TcpStream {
        let (document, checksum) = (bundle.encode(), bundle.checksum());
        let (mut stream, _) = self.next_request();
        let head =
            format!("HTTP/1.1 200 OK\r\nETag: \"{checksum}\"\r\nContent-Length: {}\r\n\r\n", document.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&document.as_bytes()[..bytes]).unwrap();
        stream
    }

    /// Sends a bundle as the response to the next request, and waits for the request in which the
    /// edge acknowledges it. By then, the edge has stored the bundle. Returns that request,
    /// unanswered.
    fn send_and_await_ack(&self, bundle: &Bundle) -> TcpStream {
        self.send_bundle(bundle);
        let (stream, head) = self.next_request();
        assert!(head.contains(bundle.checksum()), "{head}");
        stream
    }
}

/// Starts a backend that always sends the same response.
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
        let address = process.wait_for_log("edge listening").parse().unwrap();
        let admin = process.wait_for_log("admin listening").parse().unwrap();
        Self { process, address, admin }
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        content.to_owned()
    }

    /// Returns the record of the first response since the edge started, to a request for `path`.
    fn first_record(&self, directory: &Path, path: &str) -> Value {
        Self::get(self.address, path);
        let of_path = || {
            let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            // The last line may be incomplete.
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

/// The bundle file of an edge.
struct BundleFile(PathBuf);

impl BundleFile {
    fn number(&self) -> u64 {
        Bundle::decode(&std::fs::read(&self.0).unwrap()).unwrap().content().number
    }

    /// Returns whether a new bundle is being written.
    fn is_written(&self) -> bool {
        self.0.with_added_extension("new").exists()
    }

    /// Returns the inode, which identifies the file.
    fn inode(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().ino()
    }
}

#[test]
fn edge_starts_with_the_last_good_bundle() {
    let directory = Directory::new();
    let (backend, port) = (backend(), Port::new());
    let server = Server(port.listen());
    let kept = BundleFile(directory.0.join("edge/bundle.json"));
    let start = || Edge::start(&directory.0, backend, port.address());
    let begin_with = |number: u64| {
        let edge = start();
        let stats = edge.bundle();
        assert_eq!((&stats["number"], &stats["source"]), (&number.into(), &"kept".into()), "{stats}");
        edge
    };

    // Kill the edge after it has acknowledged the bundle, which implies that the bundle is stored.
    let mut edge = start();
    let held = server.send_and_await_ack(&bundle(1));
    edge.process.kill();
    assert!(kept.number() == 1 && !kept.is_written());
    drop(held);

    // Kill the edge before it stores the bundle: only part of it has arrived.
    let mut edge = begin_with(1);
    let part = server.send_part(&bundle(2), 100_000);
    edge.process.kill();
    assert!(kept.number() == 1 && !kept.is_written());
    drop(part);

    // Kill the edge while it writes: the temporary file exists.
    let (mut last, mut is_caught) = (1, false);
    for next in 3..3 + TRIES_MAX {
        let mut edge = begin_with(last);
        let before = kept.inode();
        server.send_bundle(&bundle(next));
        let begun = Instant::now();
        while !kept.is_written() && kept.inode() == before {
            assert!(begun.elapsed() < PATIENCE, "the bundle must be written in time");
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
    assert!(is_caught, "no kill hit the edge while it wrote a bundle");

    // A leftover temporary file must do no harm.
    let mut edge = begin_with(last);
    let held = server.send_and_await_ack(&bundle(200));
    edge.process.kill();
    assert!(kept.number() == 200 && !kept.is_written());

    // Restart while the bundle server is unreachable.
    drop((server, held));
    let edge = start();
    let record = edge.first_record(&directory.0, "/first");
    assert_eq!(
        (&record["steered"]["bundle"], &record["tcp"]["decider"]),
        (&200.into(), &"rule".into()),
        "{record}"
    );
    assert_eq!(edge.bundle()["source"], "kept");
    until("the edge reports that the server is unreachable", || {
        edge.bundle()["unheard"]["reason"].is_string()
    });
    edge.process.stop();

    // Once the bundle server is back, it must receive the usual request.
    let server = Server(port.listen());
    let edge = start();
    let (_, head) = server.next_request();
    assert!(head.contains(&format!("\r\nif-none-match: \"{}\"\r\n", bundle(200).checksum())), "{head}");
    assert!(head.starts_with("GET /bundle?pop=test&edge="), "{head}");
    edge.process.stop();
}
