//! One sample: a connection of its own, one response, and what the server's kernel says at its end.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Ask, SLICE, Sample};

/// The longest that one step of a sample may take: a connection, or anything to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// A head is no longer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Fields of a head.
const FIELDS_MAX: usize = 64;
/// Read at once.
const READ_BYTES: usize = 256 * 1024;

/// The field by which a client asks for an algorithm, and is told which the socket has.
pub const ALGORITHM_FIELD: &str = "Lab-Congestion-Control";
/// The field in which the server's kernel says how many TCP segments it sent again.
pub const RETRANSMITS_FIELD: &str = "Lab-Retransmits";
/// Where it is told.
pub const TOLD_AT: &str = "/lab/tcp";

/// Where samples are taken.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// An address of the client's prefix.
    pub client: SocketAddr,
    /// The edge.
    pub server: SocketAddr,
}

/// Asks for the content once, on a thread of the clients' side. `range_start` is where a range begins.
///
/// # Errors
/// If the server cannot be reached, or answers something else, or has another algorithm than was asked for.
pub fn take(way: Way, ask: Ask, range_start: u64, algorithm: &str) -> io::Result<Sample> {
    let begun = Instant::now();
    let mut socket = connect(way)?;
    let connect = begun.elapsed();
    let target = target(ask);
    let range = match ask.is_range {
        true => format!("Range: bytes={range_start}-{}\r\n", range_start + ask.bytes - 1),
        false => String::new(),
    };
    send(&mut socket, &target, &format!("{ALGORITHM_FIELD}: {algorithm}\r\n{range}"))?;
    let mut response = Response::begin(&mut socket)?;
    let ttfb = begun.elapsed() - connect;
    let status = if ask.is_range { 206 } else { 200 };
    if response.status != status || response.content_bytes != ask.bytes {
        let (status, bytes) = (response.status, response.content_bytes);
        return Err(io::Error::other(format!("{target}: status {status} with {bytes} bytes of content")));
    }
    let progress = response.read(&mut socket, begun)?;
    let total = begun.elapsed();
    send(&mut socket, TOLD_AT, "")?;
    let told = Response::begin(&mut socket)?;
    if told.algorithm != algorithm {
        let has = &told.algorithm;
        return Err(io::Error::other(format!(
            "{algorithm} was asked for and the socket has {has:?}: does the kernel have it?"
        )));
    }
    Ok(Sample { total, connect, ttfb, retransmits: told.retransmits, progress })
}

/// The URL of content of that size.
pub fn target(ask: Ask) -> String {
    let bytes = if ask.is_range { super::plan::RANGED_BYTES } else { ask.bytes };
    format!("/lab/content?bytes={bytes}")
}

fn connect(way: Way) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(way.server), Type::STREAM, None)?;
    socket.bind(&way.client.into())?;
    socket.connect_timeout(&way.server.into(), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

fn send(socket: &mut Socket, target: &str, fields: &str) -> io::Result<()> {
    socket.write_all(format!("GET {target} HTTP/1.1\r\nHost: lab\r\n{fields}\r\n").as_bytes())
}

/// A response whose head has come.
struct Response {
    status: u16,
    content_bytes: u64,
    algorithm: String,
    retransmits: u64,
    /// Content that came with the head.
    came_bytes: u64,
}

impl Response {
    fn begin(socket: &mut Socket) -> io::Result<Self> {
        let mut head = vec![0; HEAD_BYTES_MAX];
        let mut length = 0;
        loop {
            let read = socket.read(&mut head[length..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            length += read;
            if let Some(response) = Self::parse(&head[..length])? {
                return Ok(response);
            }
            if length == head.len() {
                return Err(io::Error::other("the head of the response is too long"));
            }
        }
    }

    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let field = |name: &str| {
            let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(field.value).ok()
        };
        let number = |name| field(name).and_then(|text| text.parse().ok());
        Ok(Some(Self {
            status: head.code.unwrap_or_default(),
            content_bytes: number("content-length").unwrap_or_default(),
            algorithm: field(ALGORITHM_FIELD).unwrap_or_default().to_owned(),
            retransmits: number(RETRANSMITS_FIELD).unwrap_or_default(),
            came_bytes: (bytes.len() - head_bytes) as u64,
        }))
    }

    /// Reads the content to its end, and notes how much had come after each slice of time since `begun`.
    fn read(&mut self, socket: &mut Socket, begun: Instant) -> io::Result<Vec<u64>> {
        let mut buffer = vec![0; READ_BYTES];
        let mut progress = Vec::new();
        let mut came = self.came_bytes;
        while came < self.content_bytes {
            let read = socket.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let slices = (begun.elapsed().as_nanos() / SLICE.as_nanos()) as usize;
            progress.resize(progress.len().max(slices), came);
            came += read as u64;
        }
        progress.push(came);
        Ok(progress)
    }
}
