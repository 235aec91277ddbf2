//! Test support: a real edge on its own port, clients on real sockets, and a backend for which the
//! test writes every byte.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod mmdb;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use thalweg_edge::{BackendUrl, Config, Edge, Records};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Maximum wait for an expected event before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct TestEdge {
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub records: Records,
    pub bundle_changes: watch::Receiver<u64>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<std::io::Result<()>>,
}

pub fn config(backend: SocketAddr) -> Config {
    Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        backends: vec![BackendUrl::at(backend)],
        memory_bytes: 64 << 20,
        // A single thread has one connection pool and handles requests in order of arrival.
        threads: NonZeroUsize::new(1),
        admin: None,
        ..Config::default()
    }
}

impl TestEdge {
    pub fn start(config: Config) -> Self {
        Self::run(Edge::bind(config).unwrap())
    }

    pub fn run(edge: Edge) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (address, admin, records) = (edge.local_addr(), edge.admin_addr(), edge.records());
        let bundle_changes = edge.bundle_changes();
        let running = tokio::spawn(edge.run(async {
            let _ = stopped.await;
        }));
        Self { address, admin, records, bundle_changes, stop: Some(stop), running }
    }

    pub fn before(backend: &Backend) -> Self {
        Self::start(config(backend.address))
    }

    pub fn with_two_threads(backend: &Backend) -> Self {
        Self::start(Config { threads: NonZeroUsize::new(2), ..config(backend.address) })
    }

    /// Connects to the admin interface.
    pub async fn admin_client(&self) -> Client {
        Client::of_admin(self.admin.unwrap()).await
    }

    pub async fn client(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends one request on a new connection.
    pub async fn get(&self, path: &str, fields: &str) -> Response {
        let mut client = self.client().await;
        client.request("GET", path, fields).await;
        client.response().await
    }

    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        tokio::time::timeout(PATIENCE, self.running).await.unwrap().unwrap().unwrap();
    }
}

/// Reserves a port for a server that stops and restarts, so that no other process can take it.
pub struct Port(TcpSocket);

impl Port {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // The server can bind to the same port, because both sockets set SO_REUSEADDR and this one
        // does not listen.
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

pub struct Client {
    pub stream: TcpStream,
    host: &'static str,
    input: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub content: Vec<u8>,
    /// Whether the content is complete according to its framing.
    pub whole: bool,
}

impl Response {
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub fn cache_status(&self) -> &str {
        self.field("cache-status").unwrap()
    }

    /// Returns `Cache-Status`, replacing a `ttl` up to 5 s below `ttl_s` by `ttl_s`, because a test
    /// may take that long on a busy machine.
    pub fn cache_status_from(&self, ttl_s: i64) -> String {
        let status = self.cache_status();
        let left = status.split("; ").find_map(|parameter| parameter.strip_prefix("ttl="));
        match left.filter(|left| (ttl_s - 5..=ttl_s).contains(&left.parse().unwrap())) {
            Some(left) => status.replace(&format!("ttl={left}"), &format!("ttl={ttl_s}")),
            None => status.to_owned(),
        }
    }
}

pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, host: "media.example", input: Vec::new() }
    }

    /// Connects to an admin interface.
    pub async fn of_admin(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self { host: "localhost", ..Self::new(stream) }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn request(&mut self, method: &str, path: &str, fields: &str) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.host);
        self.send(head.as_bytes()).await;
    }

    pub async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.input.split_off(end + 4);
                return String::from_utf8(std::mem::replace(&mut self.input, rest)).unwrap();
            }
            assert!(
                self.more().await,
                "the connection ended within a head: {:?}",
                String::from_utf8_lossy(&self.input)
            );
        }
    }

    /// Reads more input. Returns false at the end of the connection, clean or not.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.input)).await;
        matches!(read.expect("data arrives in time"), Ok(n) if n > 0)
    }

    /// Returns the next content of a chunked response, at least one byte. Returns `None` at the
    /// end, and an error if the response breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ()> {
        loop {
            if let Some(line) = self.input.windows(2).position(|two| two == b"\r\n") {
                let size = usize::from_str_radix(str::from_utf8(&self.input[..line]).unwrap(), 16).unwrap();
                let end = line + 2 + size + 2;
                if self.input.len() >= end {
                    assert_eq!(&self.input[end - 2..end], b"\r\n");
                    let chunk = self.input[line + 2..end - 2].to_vec();
                    self.input.drain(..end);
                    return Ok((size > 0).then_some(chunk));
                }
            }
            if !self.more().await {
                return Err(());
            }
        }
    }

    pub async fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len {
            assert!(self.more().await, "the connection ended after {} of {len} bytes", self.input.len());
        }
        let rest = self.input.split_off(len);
        std::mem::replace(&mut self.input, rest)
    }

    /// Reads up to `len` bytes; returns fewer if the connection ends.
    pub async fn up_to(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len && self.more().await {}
        let rest = self.input.split_off(len.min(self.input.len()));
        std::mem::replace(&mut self.input, rest)
    }

    pub async fn is_closed(&mut self) -> bool {
        self.input.is_empty() && !self.more().await
    }

    pub async fn response(&mut self) -> Response {
        self.response_to("GET").await
    }

    pub async fn response_to(&mut self, method: &str) -> Response {
        let head = self.head().await;
        let status = head[9..12].parse().unwrap();
        let mut response = Response { status, head, content: Vec::new(), whole: true };
        if method == "HEAD" || status == 304 || status == 204 {
            return response;
        }
        if let Some(length) = response.field("content-length") {
            let length: usize = length.parse().unwrap();
            while self.input.len() < length && response.whole {
                response.whole = self.more().await;
            }
            response.content = self.input.drain(..length.min(self.input.len())).collect();
        } else if response.field("transfer-encoding").is_some() {
            loop {
                match self.chunk().await {
                    Ok(Some(chunk)) => response.content.extend(chunk),
                    Ok(None) => break,
                    Err(()) => {
                        response.whole = false;
                        break;
                    }
                }
            }
        } else {
            while self.more().await {}
            response.content = std::mem::take(&mut self.input);
        }
        response
    }
}

pub struct Backend {
    pub address: SocketAddr,
    listener: TcpListener,
}

/// A backend connection from the edge, and its current request.
pub struct Fetch {
    pub client: Client,
    pub request: String,
}

impl Backend {
    pub async fn new() -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        Self { address: listener.local_addr().unwrap(), listener }
    }

    /// Accepts the next connection and reads its request.
    pub async fn fetch(&self) -> Fetch {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let (stream, _) = accepted.expect("the edge connects in time").unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Client::new(stream);
        let request = client.head().await;
        Fetch { client, request }
    }

    /// Returns whether the edge has opened another connection.
    pub async fn is_asked_again(&self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.listener.accept()).await.is_ok()
    }
}

impl Fetch {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.send(bytes.as_ref()).await;
    }

    /// Writes as much as the connection accepts immediately.
    pub async fn write(&mut self, bytes: &[u8]) -> usize {
        self.client.stream.write(bytes).await.unwrap()
    }

    /// Sends bytes. Returns false once the edge has closed the connection.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.client.stream.write_all(bytes).await.is_ok()
    }

    pub async fn chunk(&mut self, content: &[u8]) {
        let mut chunk = format!("{:x}\r\n", content.len()).into_bytes();
        chunk.extend_from_slice(content);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk).await;
    }

    /// Sends a complete response with `Content-Length`.
    pub async fn respond(&mut self, status: &str, fields: &str, content: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", content.len());
        self.send([head.as_bytes(), content].concat()).await;
    }

    /// Waits for another request on the same connection. Returns false if the connection closes.
    pub async fn try_next(&mut self) -> bool {
        if self.client.input.is_empty() && !self.client.more().await {
            return false;
        }
        self.next().await;
        true
    }

    /// Reads the next request on the same connection.
    pub async fn next(&mut self) {
        self.request = self.client.head().await;
    }
}

/// Returns test content, in which each byte is derived from its offset.
pub fn content(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
