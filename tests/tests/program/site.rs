//! A site under load: a backend, clients in several networks, and a controller that starts all
//! trials at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::{Directory, thalweg};

/// Number of client networks, from 127.0.1.0/24 up: one more than a bottom group needs.
pub const NETWORKS: u8 = 6;
/// Number of client addresses in each network.
pub const CLIENTS: u8 = 64;
/// Pause between two connections of a network.
pub const CLIENT_PAUSE: Duration = Duration::from_millis(20);
/// Content length above a rule's minimum response size.
pub const CONTENT_BYTES: usize = 200_000;

/// Sends a GET; returns status, entity tag and content.
pub fn http_get(server: SocketAddr, target: &str, fields: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, content) = text.split_once("\r\n\r\n").unwrap();
    let status = head[9..12].parse().unwrap();
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    (status, etag.to_owned(), content.to_owned())
}

/// Sends a GET; returns the content as JSON.
pub fn get_json(controller: SocketAddr, target: &str) -> Value {
    let (_, _, content) = http_get(controller, target, "");
    serde_json::from_str(&content).unwrap()
}

/// Starts a backend with one cacheable file, `/content`.
pub fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut input = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    if line == "\r\n" {
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {CONTENT_BYTES}\r\n\r\n"
                        );
                        let sent = stream.write_all(head.as_bytes());
                        if sent.and_then(|()| stream.write_all(&vec![7; CONTENT_BYTES])).is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

/// Connects to the edge from a network, each time from the next client address.
pub fn connect(edge: SocketAddr, network: u8) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let client = NEXT.fetch_add(1, Relaxed) % CLIENTS + 1;
    socket.bind(&SocketAddr::from(([127, 0, network, client], 0)).into())?;
    socket.connect(&edge.into())?;
    Ok(TcpStream::from(socket))
}

/// Requests a host's content once, on a new connection from a network. Returns an error if the edge
/// is down.
pub fn fetch(edge: SocketAddr, network: u8, host: &str) -> std::io::Result<()> {
    let mut stream = connect(edge, network)?;
    let request = format!("GET /content HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut content = Vec::new();
    stream.read_to_end(&mut content).map(drop)
}

/// Clients in every network that open one connection after another, for each host in turn, until
/// dropped.
pub struct Clients(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Clients {
    pub fn of(edge: SocketAddr, hosts: &'static [&'static str]) -> Self {
        Self::of_networks(edge, 1..=NETWORKS, hosts)
    }

    pub fn of_networks(
        edge: SocketAddr,
        networks: RangeInclusive<u8>,
        hosts: &'static [&'static str],
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = networks.map(|network| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                for host in hosts.iter().cycle().take_while(|_| !is_over.load(Relaxed)) {
                    let _ = fetch(edge, network, host); // a killed edge restarts
                    thread::sleep(CLIENT_PAUSE);
                }
            })
        });
        let clients = clients.collect();
        Self(is_over, clients)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        for client in self.1.drain(..) {
            client.join().unwrap();
        }
    }
}

/// Returns the command for a controller with windows of a few seconds. It starts all trials at once
/// and never concludes one, because loopback behaves like no real network.
pub fn controller(directory: &Directory, listen: SocketAddr) -> Command {
    let mut command = thalweg();
    command.args(["controller", "run", "--window", "2s", "--late", "1s", "--min-rtt-min", "0ms"]);
    command.args(["--connections-min", "1", "--observed-windows-min", "1", "--history-windows", "8"]);
    command.args([
        "--exploring-max",
        "100",
        "--explored-max",
        "100",
        "--evidence-connections-min",
        "1000000",
    ]);
    command.args([
        "--measure",
        "goodput",
        "--congestion-control",
        "reno",
        "--trial-windows-max",
        "100000",
        "--effect-min",
        "0",
        "--guardrail-pause-windows",
        "1",
    ]);
    command.args(["--listen", &listen.to_string()]).arg("--database").arg(directory.0.join("control.sqlite"));
    command
}
