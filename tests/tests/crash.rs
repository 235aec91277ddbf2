//! Crash safety of the disk store: the edge is repeatedly killed under load at random times. No
//! client may ever receive a wrong byte, because after a crash, a response on disk is either
//! complete or absent.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const SEED: u64 = 0x7468_616c_7765_6721;
/// Number of kills.
const ROUNDS: usize = 40;
/// Maximum time from start to kill.
const LIFE_MS_MAX: u64 = 250;
const CLIENTS: usize = 4;
/// Number of paths requested per edge process: as many as fit on the disk.
const PATHS: u64 = 60;
/// Number of those paths that are new in each process.
const NEW_PATHS: u64 = 7;
/// Number of paths that must survive the last kills. They fill a third of the disk.
const KEPT_PATHS: u64 = 20;
/// Maximum number of edge processes started before these paths have all survived.
const KEPT_LIVES_MAX: usize = 20;
const SIZES: [usize; 5] = [0, 700, 20_000, 300_000, 1_500_000];

/// A deterministic random number generator (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn size(path: u64) -> usize {
    SIZES[path as usize % SIZES.len()]
}

/// Returns the byte at an offset of a path's content.
fn byte(path: u64, at: usize) -> u8 {
    let at = at as u64;
    (path.wrapping_mul(0x9e37_79b9) ^ at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// Reads a head; returns `None` if the connection closes first.
fn read_head(input: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = head.split_once(&format!("\r\n{name}: "))?;
    Some(rest.split_once("\r\n")?.0)
}

/// Serves as a backend. Responses for every third path must be validated on each use.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        thread::spawn(move || {
            let mut input = BufReader::new(stream);
            while let Some(head) = read_head(&mut input) {
                let path: u64 = head["GET /".len()..].split(' ').next().unwrap().parse().unwrap();
                let max_age = if path.is_multiple_of(3) { 0 } else { 600 };
                let fields = format!("ETag: \"{path}\"\r\nCache-Control: max-age={max_age}\r\n");
                let mut answer = if field(&head, "If-None-Match").is_some() {
                    format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes()
                } else {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", size(path)).into_bytes()
                };
                if answer.starts_with(b"HTTP/1.1 200") {
                    answer.extend((0..size(path)).map(|at| byte(path, at)));
                }
                if input.get_mut().write_all(&answer).is_err() {
                    return;
                }
            }
        });
    }
}

struct Edge {
    child: Child,
    address: String,
    admin: String,
}

impl Edge {
    fn start(backend: &str, directory: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("thalweg");
        let mut child = Command::new(&program)
            .args(["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--backend", backend])
            .args([
                "--state",
                "off",
                "--memory",
                "16MiB",
                "--disk",
                &format!("{directory}=20MiB"),
                "--threads",
                "2",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; cargo test --workspace builds it", program.display())
            });
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut wait_for_line = |what: &str| {
            let line = lines.find_map(|line| Some(line.strip_prefix(what)?.trim().to_owned()));
            line.unwrap_or_else(|| panic!("the edge stopped before {what}"))
        };
        let (address, admin) = (wait_for_line("edge listening"), wait_for_line("admin listening"));
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Self { child, address, admin }
    }

    fn stats(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.admin)?;
        stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut stats = String::new();
        stream.read_to_string(&mut stats)?;
        Ok(stats)
    }
}

impl Edge {
    fn kill(&mut self) {
        self.child.kill().unwrap(); // SIGKILL
        self.child.wait().unwrap();
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The result of a request.
#[derive(Debug, PartialEq)]
enum Answer {
    Hit,
    Other,
    /// The edge was killed before the response was complete.
    Cut,
}

/// Requests a path on a connection and checks every byte received.
fn ask(input: &mut BufReader<TcpStream>, path: u64) -> Answer {
    let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
    if input.get_mut().write_all(request.as_bytes()).is_err() {
        return Answer::Cut;
    }
    let Some(head) = read_head(input) else { return Answer::Cut };
    assert!(head.starts_with("HTTP/1.1 200"), "/{path}: {head}");
    assert_eq!(field(&head, "ETag"), Some(&*format!("\"{path}\"")), "/{path}: head of a different response");
    let length: usize = field(&head, "Content-Length").unwrap().parse().unwrap();
    assert_eq!(length, size(path), "/{path}");
    let (mut at, mut buffer) = (0, vec![0; 64 * 1024]);
    while at < length {
        let most = buffer.len().min(length - at);
        let read = match input.read(&mut buffer[..most]) {
            Ok(0) | Err(_) => return Answer::Cut,
            Ok(read) => read,
        };
        for (offset, found) in buffer[..read].iter().enumerate() {
            assert_eq!(*found, byte(path, at + offset), "/{path} at {}", at + offset);
        }
        at += read;
    }
    if head.contains("thalweg; hit") { Answer::Hit } else { Answer::Other }
}

/// Sends requests until the edge is killed.
fn load(edge: &str, first: u64, mut random: Random, killed: &AtomicBool, answers: &AtomicUsize) {
    let Ok(stream) = TcpStream::connect(edge) else { return };
    let mut input = BufReader::new(stream);
    while !killed.load(SeqCst) {
        // Some paths are requested more often than others.
        let path = first + random.below(PATHS).max(random.below(PATHS));
        match ask(&mut input, path) {
            Answer::Cut => assert!(killed.load(SeqCst), "/{path} was cut without a kill"),
            Answer::Hit | Answer::Other => _ = answers.fetch_add(1, SeqCst),
        }
    }
}

/// Starts and kills edges until the first request for every path that needs no validation is a hit.
/// Returns the number of edges started.
fn lives_until_all_is_kept(backend: &str, directory: &str) -> usize {
    let first = ROUNDS as u64 * NEW_PATHS;
    let fresh = (first..first + KEPT_PATHS).filter(|path| !path.is_multiple_of(3)).count();
    let mut found = Vec::new();
    while found.last() != Some(&fresh) {
        assert!(found.len() < KEPT_LIVES_MAX, "{found:?} hits on {fresh} paths in successive edge processes");
        let mut edge = Edge::start(backend, directory);
        let mut input = BufReader::new(TcpStream::connect(&edge.address).unwrap());
        let hits = (first..first + KEPT_PATHS).filter(|path| ask(&mut input, *path) == Answer::Hit).count();
        found.push(hits);
        thread::sleep(Duration::from_millis(LIFE_MS_MAX)); // let the edge write the fetched responses
        edge.kill();
    }
    found.len()
}

#[test]
fn killed_edge_serves_no_wrong_byte_and_keeps_its_store() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let place = directory.to_str().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || serve(&listener));
    let mut random = Random(SEED);
    let answers = AtomicUsize::new(0);
    for round in 0..ROUNDS {
        let mut edge = Edge::start(&backend, place);
        let (address, killed) = (edge.address.clone(), AtomicBool::new(false));
        let life = Duration::from_millis(random.below(LIFE_MS_MAX));
        // Assertions must not fail before `killed` is set, or the clients would never stop.
        let stats = thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (first, random) = (round as u64 * NEW_PATHS, Random(random.below(u64::MAX) | 1));
                let (address, killed, answers) = (&address, &killed, &answers);
                scope.spawn(move || load(address, first, random, killed, answers));
            }
            thread::sleep(life); // a random time
            let stats = edge.stats();
            killed.store(true, SeqCst);
            edge.kill();
            stats
        });
        let stats = stats.unwrap_or_else(|error| panic!("round {round} of seed {SEED:#x}: {error}"));
        assert!(stats.contains("\"errors\":0"), "round {round} of seed {SEED:#x}: {stats}");
    }
    let answers = answers.load(SeqCst);
    assert!(answers > 10 * ROUNDS, "{answers}");
    println!(
        "{answers} responses from {ROUNDS} edge processes; {} more until all paths were hits",
        lives_until_all_is_kept(&backend, place)
    );
    let _ = std::fs::remove_dir_all(&directory);
}
