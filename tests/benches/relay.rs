//! Measures the relay delay: the time from the origin's receipt of a CMAF chunk to the chunk's
//! arrival at a client behind the edge.
//!
//! A scripted ingest source pushes the sample's chunks in real time, as one long PUT. Before a
//! segment starts, all clients request it from the edge, each on a persistent connection. The clock
//! starts just before the source writes a chunk to its socket, and stops at each client once the
//! chunk's last byte has arrived. The result is therefore an upper bound of the delay.

mod support;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes, BytesMut};
use hdrhistogram::Histogram;
use support::Server;
use thalweg_http::chunked::{Decoder, Step};
use thalweg_media::chunk::{ChunkScanner, Event};
use thalweg_media::retime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Clients per segment, and the number of segments measured.
const RUNS: [(usize, usize); 3] = [(1, 15), (50, 6), (200, 6)];
const CHUNKS_IN_SEGMENT: usize = 4;
const CHUNK_TIME: Duration = Duration::from_millis(500);
const P50_MAX: Duration = Duration::from_millis(2);
const P99_MAX: Duration = Duration::from_millis(10);

fn main() -> Result<()> {
    support::leave_server_core()?;
    let ingest = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let any = "127.0.0.1:0";
    let arguments = ["origin", "--listen", any, "--ingest", &ingest.to_string(), "--admin", any];
    let origin = support::start_thalweg(&arguments)?;
    let edge = support::start_edge(origin.address, &["--memory", "256MiB"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(support::never_sleep());
        run(ingest, &edge).await
    })
}

async fn run(ingest: SocketAddr, edge: &Server) -> Result<()> {
    let mut source = Source::start(ingest).await?;
    // The channel is served once its first segment is complete.
    for _ in 0..2 * CHUNKS_IN_SEGMENT {
        source.push().await?;
    }
    println!("delay of a chunk through origin and edge, chunks of {} ms", CHUNK_TIME.as_millis());
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>22}",
        "clients", "samples", "p50", "p99", "p99.9", "max", "edge CPU/client/chunk"
    );
    let mut late = Vec::new();
    for (clients, segments) in RUNS {
        let mut delays = Histogram::<u64>::new_with_max(60_000_000, 3)?;
        let mut cpu_ns = 0;
        let mut connections = Vec::new();
        for _ in 0..clients {
            connections.push(Client::connect(edge).await?);
        }
        for _ in 0..segments {
            cpu_ns += segment(&mut source, edge, &mut connections, &mut delays).await?;
        }
        let millis = |quantile: f64| format!("{:.2} ms", delays.value_at_quantile(quantile) as f64 / 1000.0);
        println!(
            "{clients:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>19.1} µs",
            delays.len(),
            millis(0.5),
            millis(0.99),
            millis(0.999),
            millis(1.0),
            cpu_ns as f64 / 1000.0 / delays.len() as f64
        );
        let micros = |limit: Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        if delays.value_at_quantile(0.5) > micros(P50_MAX) || delays.value_at_quantile(0.99) > micros(P99_MAX)
        {
            late.push(clients);
        }
    }
    ensure!(late.is_empty(), "p50 exceeds {P50_MAX:?} or p99 exceeds {P99_MAX:?} with {late:?} clients");
    Ok(())
}

/// Relays one segment to `clients`; returns the CPU time used by the edge.
async fn segment(
    source: &mut Source,
    edge: &Server,
    clients: &mut Vec<Client>,
    delays: &mut Histogram<u64>,
) -> Result<u64> {
    let path = next_segment(edge).await?;
    let sizes = source.next_sizes();
    let cpu = edge.cpu_ns();
    let mut reading = tokio::task::JoinSet::new();
    for mut client in clients.drain(..) {
        client.send_request(&path).await?;
        reading.spawn(async move { client.read_chunks(&sizes).await });
    }
    let mut pushed = Vec::new();
    for _ in 0..CHUNKS_IN_SEGMENT {
        pushed.push(source.push().await?);
    }
    while let Some(ended) = reading.join_next().await {
        let (client, arrived) = ended??;
        for (arrived, pushed) in arrived.iter().zip(&pushed) {
            delays.record(u64::try_from(arrived.saturating_duration_since(*pushed).as_micros())?)?;
        }
        clients.push(client);
    }
    Ok(edge.cpu_ns() - cpu)
}

/// A client with a persistent connection.
struct Client {
    stream: TcpStream,
    input: BytesMut,
}

impl Client {
    async fn connect(edge: &Server) -> Result<Self> {
        let stream = TcpStream::connect(edge.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: BytesMut::with_capacity(256 * 1024) })
    }

    async fn send_request(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Reads a response and returns the arrival time of each chunk's last byte.
    async fn read_chunks(mut self, sizes: &[usize; CHUNKS_IN_SEGMENT]) -> Result<(Self, Vec<Instant>)> {
        let head = loop {
            self.receive().await?;
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                break self.input.split_to(end + 4);
            }
        };
        ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        let mut decoder = Decoder::new();
        let (mut bytes, mut end, mut arrived) = (0, 0, Vec::new());
        loop {
            match decoder.decode(&self.input)? {
                Step::Data { data, consumed } => {
                    bytes += data.len();
                    self.input.advance(consumed);
                }
                Step::More => {
                    self.input.clear();
                    self.receive().await?;
                }
                Step::Done { consumed, .. } => {
                    self.input.advance(consumed);
                    ensure!(arrived.len() == sizes.len(), "the segment ended after {bytes} bytes");
                    return Ok((self, arrived));
                }
            }
            while sizes.get(arrived.len()).is_some_and(|size| bytes >= end + size) {
                end += sizes[arrived.len()];
                arrived.push(Instant::now());
            }
        }
    }

    async fn receive(&mut self) -> Result<()> {
        self.input.reserve(64 * 1024);
        ensure!(self.stream.read_buf(&mut self.input).await? > 0, "the edge closed the connection");
        Ok(())
    }
}

/// Returns the path of the segment that follows the last segment in the playlist.
async fn next_segment(edge: &Server) -> Result<String> {
    let playlist = get(edge, "/live/bench/video/media.m3u8").await?;
    let last =
        playlist.lines().rev().find(|line| line.ends_with(".m4s")).context("no segment in playlist")?;
    let number: u64 = last.trim_end_matches(".m4s").parse()?;
    Ok(format!("/live/bench/video/{}.m4s", number + 1))
}

async fn get(edge: &Server, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(edge.address).await?;
    // Use a unique query, because the cached playlist may be half a segment old.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let request = format!("GET {path}?{now} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    ensure!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    Ok(response)
}

/// The ingest source: the sample's chunks, repeated on a continuous timeline.
struct Source {
    stream: TcpStream,
    chunks: Vec<Bytes>,
    /// Total duration of the chunks, and the timescale.
    duration: u64,
    timescale: u32,
    next: usize,
    due: tokio::time::Instant,
}

impl Source {
    async fn start(ingest: SocketAddr) -> Result<Self> {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/sample/video_360.mp4");
        let mut scanner = ChunkScanner::new();
        scanner.push(&std::fs::read(&sample).with_context(|| sample.display().to_string())?);
        let (mut header, mut found) = (None, Vec::new());
        while let Some(event) = scanner.next_event()? {
            match event {
                Event::Header(found) => header = Some(found),
                Event::Chunk(chunk) => found.push(chunk),
            }
        }
        found.truncate(found.len() / CHUNKS_IN_SEGMENT * CHUNKS_IN_SEGMENT);
        let header = header.context("the sample has no CMAF header")?;
        let duration = found.iter().map(|chunk| chunk.fragment.duration).sum();
        let chunks = found.into_iter().map(|chunk| chunk.bytes).collect();
        let mut stream = TcpStream::connect(ingest).await?;
        stream.set_nodelay(true)?;
        let head = "PUT /ingest/bench/Streams(video.cmfv) HTTP/1.1\r\nHost: bench\r\n\
                    Content-Type: video/mp4\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let (timescale, due) = (header.info.timescale, tokio::time::Instant::now());
        let mut source = Self { stream, chunks, duration, timescale, next: 0, due };
        source.send(&header.bytes).await?;
        Ok(source)
    }

    /// Sends the next chunk at its scheduled time. Returns the time just before sending.
    async fn push(&mut self) -> Result<Instant> {
        tokio::time::sleep_until(self.due).await;
        self.due += CHUNK_TIME;
        let (round, at) = (self.next / self.chunks.len(), self.next % self.chunks.len());
        let later = i64::try_from(self.duration * round as u64)?;
        let chunk = retime::shifted(&self.chunks[at], later, self.timescale)?;
        let chunk = chunk.context("cannot shift the timestamps of the sample's chunks")?;
        self.next += 1;
        let sent = Instant::now();
        self.send(&chunk).await?;
        Ok(sent)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        Ok(self.stream.write_all(&framed).await?)
    }

    /// Returns the sizes of the next segment's chunks.
    fn next_sizes(&self) -> [usize; CHUNKS_IN_SEGMENT] {
        std::array::from_fn(|at| self.chunks[(self.next + at) % self.chunks.len()].len())
    }
}
