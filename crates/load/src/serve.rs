//! HTTP server with verifiable content and injected faults: a test server for the load generator,
//! and an origin for the edge.
//!
//! Content comes from [`Content`]; the request's query determines its length and how it is sent
//! ([`script`]). Requests on the same connection are served one after another. Each thread has its
//! own listener on the same port.

mod script;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};
use thalweg_http::chunked::{CHUNK_END, LAST_CHUNK, SIZE_LINE_BYTES, encode_size};
use thalweg_http::framing::{keep_alive, request_framing};
use thalweg_http::head::{HEAD_BYTES_MAX, parse_request};
use thalweg_http::{Framing, Limits, RequestHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::content::Content;
use super::micros;

pub use script::{LENGTH_BYTES_DEFAULT, Reply, Script};

/// Length of the accept queue.
const BACKLOG: i32 = 4096;
/// Approximate size of each write.
const WRITE_BYTES: usize = 64 * 1024;
/// Pause after a failed accept, for example if no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A server that runs until dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on `address`. If the port is 0, the system chooses one.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot listen or start a thread.
    pub fn start(address: SocketAddr, threads: usize) -> io::Result<Self> {
        let first = listen(address)?;
        let address = first.local_addr()?;
        let mut listeners = vec![first];
        for _ in 1..threads {
            listeners.push(listen(address)?);
        }
        let (stop, stopped) = watch::channel(false);
        let mut server = Self { address, stop, threads: Vec::new() };
        for listener in listeners {
            let mut stopped = stopped.clone();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let work = move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener) => {}
                        _ = stopped.wait_for(|stopped| *stopped) => {}
                    }
                });
            };
            server.threads.push(thread::Builder::new().name("serve".to_owned()).spawn(work)?);
        }
        Ok(server)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

async fn accept(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            // Ignore connection errors: the client reports them.
            Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves the requests on one connection.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    let mut head = RequestHead::default();
    loop {
        let taken = loop {
            match parse_request(&buffer, &mut head, &Limits::default()) {
                Ok(Some(taken)) => break taken,
                Ok(None) if buffer.len() < HEAD_BYTES_MAX => {
                    if stream.read_buf(&mut buffer).await? == 0 {
                        return Ok(());
                    }
                }
                Ok(None) | Err(_) => return reject(&mut stream).await,
            }
        };
        if !matches!(request_framing(&head), Ok(Framing::None | Framing::Length(0))) {
            return reject(&mut stream).await;
        }
        buffer.drain(..taken);
        let script = Script::of(&head);
        let content = Content::of(head.target.as_str());
        let reply = script.reply(&head, content);
        if !answer(&mut stream, &script, &reply, content).await? || !keep_alive(head.version, &head.fields) {
            return Ok(());
        }
    }
}

async fn reject(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await
}

/// Sends a response. Returns whether the connection can be reused.
async fn answer(
    stream: &mut TcpStream,
    script: &Script,
    reply: &Reply,
    content: Content,
) -> io::Result<bool> {
    if !script.wait.is_zero() {
        sleep(script.wait).await;
    }
    let mut buffer = reply.head.clone().into_bytes();
    if let Some(text) = &reply.text {
        buffer.extend_from_slice(text.as_bytes());
        stream.write_all(&buffer).await?;
        return Ok(true);
    }
    let (range, cut) =
        (&reply.range, script.cut.map_or(u64::MAX, |cut| reply.range.start.saturating_add(cut)));
    let started = Instant::now();
    let mut start = range.start;
    for index in 0.. {
        if start == range.end {
            break;
        }
        let end = script.chunk_bytes.map_or(range.end, |bytes| range.end.min(start + bytes));
        if script.chunk_bytes.is_some() {
            stream.write_all(&buffer).await?;
            buffer.clear();
            sleep_until(started + script.every * index).await;
            buffer.extend_from_slice(encode_size(end - start, &mut [0; SIZE_LINE_BYTES]));
        }
        send_content(stream, &mut buffer, start..end.min(cut), script, content).await?;
        if cut < end {
            stream.write_all(&buffer).await?;
            return Ok(false);
        }
        if script.chunk_bytes.is_some() {
            buffer.extend_from_slice(CHUNK_END);
        }
        start = end;
    }
    if script.chunk_bytes.is_some() {
        buffer.extend_from_slice(LAST_CHUNK);
    }
    stream.write_all(&buffer).await?;
    Ok(true)
}

/// Sends the buffer and the content in `range`. The last part stays in the buffer, so that the
/// caller can send it together with what follows.
async fn send_content(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    range: Range<u64>,
    script: &Script,
    content: Content,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        if buffer.len() >= WRITE_BYTES {
            stream.write_all(buffer).await?;
            buffer.clear();
        }
        let (from, piece) = (buffer.len(), (range.end - at).min(WRITE_BYTES as u64));
        // The cast is safe: a piece has at most `WRITE_BYTES` bytes.
        buffer.resize(from + piece as usize, 0);
        content.fill(at, &mut buffer[from..]);
        script.corrupt_in(at, &mut buffer[from..]);
        if at == range.start {
            script.stamp(&mut buffer[from..], now_us());
        }
        at += piece;
    }
    Ok(())
}

/// Returns the Unix time in microseconds. A system clock before 1970 counts as 1970.
fn now_us() -> u64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
