//! Backend for the servers under test: a small HTTP/1.1 server in the benchmark process, on the
//! clients' core.
//!
//! `/bytes/N/…` has N bytes of content, `/fill/…` arrives in chunks over two seconds, and
//! `/relay/…` carries the chunks pushed during the request. Every response may be stored for an
//! hour.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// Maximum content length.
pub(crate) const CONTENT_BYTES_MAX: usize = 5_000_000;
/// Duration of a `/fill/` response, and the number and size of its chunks.
pub(crate) const FILL_TIME: Duration = Duration::from_secs(2);
const FILL_CHUNKS: u32 = 40;
const FILL_CHUNK_BYTES: usize = 25_000;
/// Maximum number of chunks by which a `/relay/` response may lag behind.
const PUSHED_MAX: usize = 64;

/// The backend, which runs until the runtime shuts down.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    content: Bytes,
    requests: AtomicUsize,
    pushed: broadcast::Sender<Bytes>,
}

impl Backend {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let content: Vec<u8> = (0..CONTENT_BYTES_MAX).map(|at| (at ^ (at >> 8)) as u8).collect();
        let shared = Arc::new(Shared {
            content: content.into(),
            requests: AtomicUsize::new(0),
            pushed: broadcast::Sender::new(PUSHED_MAX),
        });
        let backend = Self { address, shared: shared.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A server closing its connection is not an error.
                tokio::spawn(serve(shared.clone(), stream));
            }
        });
        Ok(backend)
    }

    /// Returns the number of requests received so far.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Relaxed)
    }

    /// Sends a chunk of `length` bytes on all `/relay/` responses in progress. A length of 0 ends
    /// them.
    pub(crate) fn push(&self, length: usize) -> Result<()> {
        self.shared
            .pushed
            .send(self.shared.content.slice(..length))
            .context("no /relay/ response is in progress")?;
        Ok(())
    }
}

async fn serve(shared: Arc<Shared>, mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BytesMut::with_capacity(4096);
    loop {
        let end = loop {
            if let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        };
        let head = input.split_to(end);
        let path = head[..].split(|byte| *byte == b' ').nth(1).context("request line has no target")?;
        shared.requests.fetch_add(1, Relaxed);
        answer(&shared, &mut stream, std::str::from_utf8(path)?).await?;
    }
}

async fn answer(shared: &Shared, stream: &mut TcpStream, path: &str) -> Result<()> {
    let mut parts = path.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("bytes"), Some(length)) => {
            let length: usize = length.parse()?;
            let head = head(&format!("Content-Length: {length}"));
            let mut message = Bytes::from(head).chain(shared.content.slice(..length));
            stream.write_all_buf(&mut message).await?;
        }
        (Some("fill"), _) => {
            stream.write_all(head("Transfer-Encoding: chunked").as_bytes()).await?;
            for _ in 0..FILL_CHUNKS {
                chunk(stream, shared.content.slice(..FILL_CHUNK_BYTES)).await?;
                tokio::time::sleep(FILL_TIME / FILL_CHUNKS).await;
            }
            chunk(stream, Bytes::new()).await?;
        }
        (Some("relay"), _) => {
            let mut pushed = shared.pushed.subscribe();
            stream.write_all(head("Transfer-Encoding: chunked").as_bytes()).await?;
            loop {
                let content = pushed.recv().await?;
                let last = content.is_empty();
                chunk(stream, content).await?;
                if last {
                    break;
                }
            }
        }
        _ => bail!("unknown path {path}"),
    }
    Ok(())
}

fn head(framing: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let date = thalweg_http::date::format(now.as_secs());
    let date = String::from_utf8_lossy(&date);
    format!(
        "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: video/mp4\r\nCache-Control: max-age=3600\r\n\
         ETag: \"bench\"\r\n{framing}\r\n\r\n"
    )
}

/// Sends a chunk; an empty chunk ends the content.
async fn chunk(stream: &mut TcpStream, content: Bytes) -> Result<()> {
    let size = Bytes::from(format!("{:x}\r\n", content.len()));
    Ok(stream.write_all_buf(&mut size.chain(content).chain(&b"\r\n"[..])).await?)
}
