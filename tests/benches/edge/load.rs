//! The clients: single-threaded connections that send requests, read responses and measure times.
//!
//! Content of known length is discarded in the kernel (`MSG_TRUNC`), so that the clients' core can
//! receive faster than the server's core can send. All connections share one read buffer, so that
//! 10,000 connections need little memory.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::net::RecvFlags;
use thalweg_http::chunked::{Decoder, Step};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The `Host` field of all requests.
pub(crate) const HOST: &str = "bench";
const READ_BYTES: usize = 1 << 20;
/// Maximum number of bytes per read until the head is complete. Content read with the head has to
/// be copied.
const HEAD_READ_BYTES: usize = 2048;
const HEAD_BYTES_MAX: usize = 8192;

thread_local! {
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Returns the path of the request with a given number.
pub(crate) type Paths = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// A persistent connection.
pub(crate) struct Client {
    stream: TcpStream,
    head: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, head: Vec::new() })
    }

    pub(crate) async fn connect_all(address: SocketAddr, count: usize) -> Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(Self::connect(address).await?);
        }
        Ok(clients)
    }

    pub(crate) async fn send_request(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Reads a response to its end and returns the content length. After every read, calls
    /// `on_progress` with the number of content bytes received so far.
    pub(crate) async fn response(&mut self, mut on_progress: impl FnMut(u64)) -> Result<u64> {
        self.head.clear();
        let end = loop {
            let read = self.receive(HEAD_READ_BYTES, RecvFlags::empty()).await?;
            if self.head.is_empty() {
                on_progress(0);
            }
            READ.with_borrow(|buffer| self.head.extend_from_slice(&buffer[..read]));
            if let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(self.head.len() < HEAD_BYTES_MAX, "response head exceeds {HEAD_BYTES_MAX} bytes");
        };
        let content = self.head.split_off(end);
        let head = String::from_utf8_lossy(&self.head);
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        match content_length(&head)? {
            Some(length) => self.discard(length, content.len() as u64, on_progress).await,
            None => self.decode(&content, on_progress).await,
        }
    }

    async fn discard(
        &mut self,
        length: u64,
        mut received: u64,
        mut on_progress: impl FnMut(u64),
    ) -> Result<u64> {
        ensure!(received <= length, "received more content than Content-Length: {length}");
        while received < length {
            on_progress(received);
            let most = usize::try_from(length - received)?.min(READ_BYTES);
            received += self.receive(most, RecvFlags::TRUNC).await? as u64;
        }
        on_progress(received);
        Ok(received)
    }

    async fn decode(&mut self, first: &[u8], mut on_progress: impl FnMut(u64)) -> Result<u64> {
        let (mut decoder, mut received) = (Decoder::new(), 0);
        let mut done = decode_all(&mut decoder, first, &mut received)?;
        while !done {
            on_progress(received);
            let read = self.receive(READ_BYTES, RecvFlags::empty()).await?;
            done = READ.with_borrow(|buffer| decode_all(&mut decoder, &buffer[..read], &mut received))?;
        }
        on_progress(received);
        Ok(received)
    }

    async fn receive(&self, most: usize, flags: RecvFlags) -> Result<usize> {
        loop {
            self.stream.readable().await?;
            let received = self.stream.try_io(Interest::READABLE, || {
                READ.with_borrow_mut(|buffer| {
                    let (_, received) = rustix::net::recv(&self.stream, &mut buffer[..most], flags)?;
                    Ok(received)
                })
            });
            match received {
                Ok(0) => bail!("the server closed the connection before the end of the response"),
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn content_length(head: &str) -> Result<Option<u64>> {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    value.map(|value| value.parse().with_context(|| format!("Content-Length: {value}"))).transpose()
}

/// Adds the number of content bytes in `input` to `received`. Returns `true` at the end of the
/// content.
fn decode_all(decoder: &mut Decoder, mut input: &[u8], received: &mut u64) -> Result<bool> {
    loop {
        match decoder.decode(input)? {
            Step::Data { data, consumed } => {
                *received += data.len() as u64;
                input = &input[consumed..];
            }
            Step::More => return Ok(false),
            Step::Done { .. } => return Ok(true),
        }
    }
}

/// The results of a run.
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) content_bytes: u64,
    pub(crate) elapsed: Duration,
    /// Time from a request to the end of its response, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
}

/// Sends `requests` requests, `lanes` at a time; each lane uses its share of the connections in
/// turn. Each response must have `length` bytes of content.
pub(crate) async fn run(
    clients: &mut Vec<Client>,
    lanes: usize,
    requests: usize,
    length: u64,
    paths: &Paths,
) -> Result<Outcome> {
    let mut shares: Vec<Vec<Client>> = (0..lanes).map(|_| Vec::new()).collect();
    for (at, client) in clients.drain(..).enumerate() {
        shares[at % lanes].push(client);
    }
    let (next, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut running = JoinSet::new();
    for mut share in shares {
        let (next, paths) = (next.clone(), paths.clone());
        running.spawn(async move {
            let mut latency_ns = Histogram::<u64>::new(3)?;
            let mut turn = 0;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= requests {
                    return anyhow::Ok((share, latency_ns));
                }
                let at = turn % share.len();
                let (client, sent_at) = (&mut share[at], Instant::now());
                client.send_request(&paths(number)).await?;
                let received = client.response(|_| ()).await?;
                ensure!(received == length, "received {received} of {length} content bytes");
                latency_ns.record(u64::try_from(sent_at.elapsed().as_nanos())?)?;
                turn += 1;
            }
        });
    }
    let mut latency_ns = Histogram::<u64>::new(3)?;
    while let Some(ended) = running.join_next().await {
        let (share, of_lane) = ended??;
        clients.extend(share);
        latency_ns.add(of_lane)?;
    }
    let content_bytes = requests as u64 * length;
    Ok(Outcome { requests, content_bytes, elapsed: begun.elapsed(), latency_ns })
}

/// Sends one request on a new connection.
pub(crate) async fn once(address: SocketAddr, path: &str) -> Result<u64> {
    let mut client = Client::connect(address).await?;
    client.send_request(path).await?;
    client.response(|_| ()).await
}
