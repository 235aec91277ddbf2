//! The relay's delay: from the origin's receipt of a CMAF chunk to its arrival at a client behind the edge.
//!
//! A scripted ingest source pushes the sample's chunks in real time, as one long PUT. Before each segment begins,
//! all clients ask the edge for it. The clock starts when the source is about to hand a chunk to its socket, and
//! stops at each client when its last byte is there: more than the promise covers, never less.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use hdrhistogram::Histogram;
use support::Server;
use thalweg_http::chunked::{Decoder, Step};
use thalweg_media::chunk::{ChunkScanner, Event};
use thalweg_media::write::rewrite_tfdt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Clients on one segment, and over how many segments they are measured.
const RUNS: [(usize, usize); 3] = [(1, 15), (50, 6), (200, 6)];
const CHUNKS_IN_SEGMENT: usize = 4;
const CHUNK_TIME: Duration = Duration::from_millis(500);
const P50_MAX: Duration = Duration::from_millis(2);
const P99_MAX: Duration = Duration::from_millis(10);

fn main() -> Result<()> {
    support::leave_server_core()?;
    let origin = support::start_thalweg(&["origin", "--listen", "127.0.0.1:0"])?;
    let edge = support::start_edge(origin.address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&origin, &edge))
}

async fn run(origin: &Server, edge: &Server) -> Result<()> {
    let mut source = Source::start(origin).await?;
    // The channel is there once its first segment is complete.
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
        for _ in 0..segments {
            cpu_ns += segment(&mut source, edge, clients, &mut delays).await?;
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
    ensure!(late.is_empty(), "p50 over {P50_MAX:?} or p99 over {P99_MAX:?} with {late:?} clients");
    Ok(())
}

/// One segment, relayed to `clients`; the CPU time that the edge took.
async fn segment(
    source: &mut Source,
    edge: &Server,
    clients: usize,
    delays: &mut Histogram<u64>,
) -> Result<u64> {
    let path = next_segment(edge).await?;
    let sizes = source.next_sizes();
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let mut stream = TcpStream::connect(edge.address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes()).await?;
        let tell = tell.clone();
        reading.spawn(async move { read_chunks(stream, &sizes, &tell).await });
    }
    drop(tell);
    let cpu = edge.cpu_ns();
    let mut pushed = Vec::new();
    for _ in 0..CHUNKS_IN_SEGMENT {
        pushed.push(source.push().await?);
    }
    while let Some((chunk, arrived)) = told.recv().await {
        let delay: Duration = arrived.saturating_duration_since(pushed[chunk]);
        delays.record(u64::try_from(delay.as_micros())?)?;
    }
    while let Some(ended) = reading.join_next().await {
        ended??;
    }
    Ok(edge.cpu_ns() - cpu)
}

/// Tells when the end of each chunk is there.
async fn read_chunks(
    mut stream: TcpStream,
    sizes: &[usize; CHUNKS_IN_SEGMENT],
    tell: &mpsc::UnboundedSender<(usize, Instant)>,
) -> Result<()> {
    let mut input = BytesMut::with_capacity(256 * 1024);
    let head = loop {
        ensure!(stream.read_buf(&mut input).await? > 0, "the connection ended in the head");
        if let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            break input.split_to(end + 4);
        }
    };
    ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    let mut decoder = Decoder::new();
    let (mut bytes, mut chunk, mut end) = (0, 0, sizes[0]);
    loop {
        match decoder.decode(&input)? {
            Step::Data { data, consumed } => {
                bytes += data.len();
                let _ = input.split_to(consumed);
            }
            Step::More => {
                input.clear();
                ensure!(stream.read_buf(&mut input).await? > 0, "the connection ended after {bytes} bytes");
            }
            Step::Done { .. } => bail!("the segment ended after {bytes} of {end} bytes"),
        }
        while bytes >= end {
            tell.send((chunk, Instant::now()))?;
            chunk += 1;
            match sizes.get(chunk) {
                Some(size) => end += size,
                None => return Ok(()),
            }
        }
    }
}

/// The path of the segment that has not begun yet: one after the last that the playlist has.
async fn next_segment(edge: &Server) -> Result<String> {
    let playlist = get(edge, "/live/bench/video/media.m3u8").await?;
    let last = playlist.lines().rev().find(|line| line.ends_with(".m4s")).context("no segment is listed")?;
    let number: u64 = last.trim_end_matches(".m4s").parse()?;
    Ok(format!("/live/bench/video/{}.m4s", number + 1))
}

async fn get(edge: &Server, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(edge.address).await?;
    // A query of its own for each look: the cached playlist may be half a segment old.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let request = format!("GET {path}?{now} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    ensure!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    Ok(response)
}

/// The ingest source: the sample's chunks, over and over, on a timeline that goes on.
struct Source {
    stream: TcpStream,
    chunks: Vec<(Vec<u8>, u64)>,
    next: usize,
    time: u64,
    due: tokio::time::Instant,
}

impl Source {
    async fn start(origin: &Server) -> Result<Self> {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/sample/video_360.mp4");
        let mut scanner = ChunkScanner::new();
        scanner.push(&std::fs::read(&sample).with_context(|| sample.display().to_string())?);
        let (mut header, mut chunks) = (None, Vec::new());
        while let Some(event) = scanner.next_event()? {
            match event {
                Event::Header(found) => header = Some(found.bytes),
                Event::Chunk(chunk) => chunks.push((chunk.bytes.to_vec(), chunk.fragment.duration)),
            }
        }
        chunks.truncate(chunks.len() / CHUNKS_IN_SEGMENT * CHUNKS_IN_SEGMENT);
        let mut stream = TcpStream::connect(origin.address).await?;
        stream.set_nodelay(true)?;
        let head = "PUT /ingest/bench/Streams(video.cmfv) HTTP/1.1\r\nHost: bench\r\n\
                    Content-Type: video/mp4\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let mut source = Self { stream, chunks, next: 0, time: 0, due: tokio::time::Instant::now() };
        source.send(&header.context("the sample has a header")?).await?;
        Ok(source)
    }

    /// Sends the next chunk when it is due. Says when.
    async fn push(&mut self) -> Result<Instant> {
        tokio::time::sleep_until(self.due).await;
        self.due += CHUNK_TIME;
        let at = self.next % self.chunks.len();
        let (mut chunk, duration) = self.chunks[at].clone();
        rewrite_tfdt(&mut chunk, self.time, u32::try_from(self.next)? + 1)?;
        self.next += 1;
        self.time += duration;
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

    /// Bytes of the chunks of the segment that comes next.
    fn next_sizes(&self) -> [usize; CHUNKS_IN_SEGMENT] {
        std::array::from_fn(|at| self.chunks[(self.next + at) % self.chunks.len()].0.len())
    }
}
