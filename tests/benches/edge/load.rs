//! The clients: connections of one thread that ask, read and note when.
//!
//! Content of a known length is discarded in the kernel (`MSG_TRUNC`), so that the client's core draws more than the
//! server's can send. All connections share one buffer, so that 10,000 of them cost little.

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

const READ_BYTES: usize = 1 << 20;
/// What is read at a time until a head is complete: content that comes with it is copied.
const HEAD_READ_BYTES: usize = 2048;
const HEAD_BYTES_MAX: usize = 8192;

thread_local! {
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Which path the request of this number asks for.
pub(crate) type Paths = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// A connection that is kept.
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

    pub(crate) async fn ask(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Takes a response, all of it. `heard` is told how many bytes of content have come, at each read from the
    /// first on.
    pub(crate) async fn response(&mut self, mut heard: impl FnMut(u64)) -> Result<u64> {
        self.head.clear();
        let end = loop {
            let read = self.receive(HEAD_READ_BYTES, RecvFlags::empty()).await?;
            if self.head.is_empty() {
                heard(0);
            }
            READ.with_borrow(|buffer| self.head.extend_from_slice(&buffer[..read]));
            if let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(self.head.len() < HEAD_BYTES_MAX, "the head does not end");
        };
        let content = self.head.split_off(end);
        let head = String::from_utf8_lossy(&self.head);
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        match content_length(&head)? {
            Some(length) => self.discard(length, content.len() as u64, heard).await,
            None => self.decode(&content, heard).await,
        }
    }

    async fn discard(&mut self, length: u64, mut come: u64, mut heard: impl FnMut(u64)) -> Result<u64> {
        ensure!(come <= length, "more content than its length says");
        while come < length {
            heard(come);
            let most = usize::try_from(length - come)?.min(READ_BYTES);
            come += self.receive(most, RecvFlags::TRUNC).await? as u64;
        }
        heard(come);
        Ok(come)
    }

    async fn decode(&mut self, first: &[u8], mut heard: impl FnMut(u64)) -> Result<u64> {
        let (mut decoder, mut come) = (Decoder::new(), 0);
        let mut done = decode_all(&mut decoder, first, &mut come)?;
        while !done {
            heard(come);
            let read = self.receive(READ_BYTES, RecvFlags::empty()).await?;
            done = READ.with_borrow(|buffer| decode_all(&mut decoder, &buffer[..read], &mut come))?;
        }
        heard(come);
        Ok(come)
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
                Ok(0) => bail!("the connection ended early"),
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

/// Adds the bytes of content in `input` to `come`; true at the end of all.
fn decode_all(decoder: &mut Decoder, mut input: &[u8], come: &mut u64) -> Result<bool> {
    loop {
        match decoder.decode(input)? {
            Step::Data { data, consumed } => {
                *come += data.len() as u64;
                input = &input[consumed..];
            }
            Step::More => return Ok(false),
            Step::Done { .. } => return Ok(true),
        }
    }
}

/// What came of many requests.
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) content_bytes: u64,
    pub(crate) elapsed: Duration,
    /// From a request to the end of its response, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
}

/// Asks `requests` times in all: `lanes` requests at a time, each lane over its share of the connections in turn.
/// Each response must have `length` bytes of content.
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
                let (client, asked) = (&mut share[at], Instant::now());
                client.ask(&paths(number)).await?;
                let come = client.response(|_| ()).await?;
                ensure!(come == length, "{come} bytes of {length}");
                latency_ns.record(u64::try_from(asked.elapsed().as_nanos())?)?;
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

/// One request on a connection of its own.
pub(crate) async fn once(address: SocketAddr, path: &str) -> Result<u64> {
    let mut client = Client::connect(address).await?;
    client.ask(path).await?;
    client.response(|_| ()).await
}
