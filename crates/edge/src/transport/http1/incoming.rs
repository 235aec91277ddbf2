//! HTTP/1 requests: heads, content, and lingering close.
//!
//! **Invariant:** bytes after a request's head and content remain in the buffer, because they
//! belong to the next request (pipelining).

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::{io, mem};

use bytes::{Buf, Bytes, BytesMut};
use thalweg_http::chunked::{ChunkedError, Decoder, Step};
use thalweg_http::head::METHOD_BYTES_MAX;
use thalweg_http::token::is_token;
use thalweg_http::{Framing, Limits, RequestHead, head};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::pipe;
use crate::fetch::upload::Source;
use crate::refusal::Refusal;
use crate::sent::MalformedLine;
use crate::transport::socket::Socket;
use crate::transport::{Incoming, Piped, UploadError};

/// Maximum number of bytes per read from a client.
const READ_BYTES: usize = 4096;
/// Maximum number of bytes per read of request content.
const CONTENT_READ_BYTES: usize = 32 * 1024;
/// How long a refused client may continue to send. Closing the connection with unread bytes would
/// reset it, and the client might never see the refusal.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of bytes to read and discard from a refused client.
const LINGER_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Read buffer for the worker's next connection that has data.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// Outcome of reading a request head.
pub(super) enum Read {
    Request,
    /// The client closed the connection.
    End,
    Malformed(Refusal, MalformedLine),
}

/// Returns the readable part of a malformed request line, for the log: complete words with valid
/// characters only.
fn malformed_line(input: &[u8], limits: &Limits) -> MalformedLine {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let line = input.split(is_end).find(|line| !line.is_empty()).unwrap_or_default();
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut request = MalformedLine::default();
    let Some((method, rest)) = split_at_space(line) else { return request };
    if method.len() > METHOD_BYTES_MAX || !is_token(method) {
        return request;
    }
    request.method = text(method);
    if let Some((target, _)) = split_at_space(rest)
        && target.len() <= limits.target_bytes_max
        && target.iter().all(u8::is_ascii_graphic)
    {
        request.target = text(target);
    }
    request
}

fn split_at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..space], &line[space + 1..]))
}

const TOO_LONG: Refusal = Refusal::by_edge(408, "the request took too long");
const ENDED_EARLY: Refusal = Refusal::by_edge(400, "the request ended early");

/// Bytes read from a client and not yet parsed.
#[derive(Debug, Default)]
pub(super) struct Requests {
    input: BytesMut,
}

impl Requests {
    /// Reads available bytes. A waiting connection holds no buffer, so that idle connections use
    /// little memory.
    async fn fill(&mut self, socket: &Socket) -> io::Result<usize> {
        poll_fn(|context| {
            if self.input.capacity() == 0 {
                self.input = SPARE.take();
            }
            self.input.reserve(READ_BYTES);
            let read = socket.poll_read(context, &mut self.input);
            if self.input.is_empty() {
                SPARE.set(mem::take(&mut self.input));
            }
            read
        })
        .await
    }

    /// Waits for the first byte of the next request; returns `false` if the client closes.
    ///
    /// # Errors
    ///
    /// Returns an error if no byte arrives before the deadline.
    pub(super) async fn begin(&mut self, socket: &Socket, deadline: Instant) -> Result<bool, Elapsed> {
        loop {
            // Some clients send an empty line after a POST (RFC 9112 §2.2); it starts no request.
            match &*self.input {
                b"" | b"\r" | b"\r\n" => {
                    if self.input.ends_with(b"\n") {
                        self.input.clear();
                    }
                    if !matches!(timeout_at(deadline, self.fill(socket)).await?, Ok(1..)) {
                        return Ok(false);
                    }
                }
                _ => return Ok(true),
            }
        }
    }

    /// Reads the rest of the head into `request`, within the time `limit`.
    pub(super) async fn read(
        &mut self,
        socket: &Socket,
        request: &mut RequestHead,
        limits: &Limits,
        limit: Duration,
    ) -> io::Result<Read> {
        let mut seen = 0;
        let deadline = Instant::now() + limit;
        loop {
            if head::is_worth_parsing(&self.input, seen, limits) {
                match head::parse_request(&self.input, request, limits) {
                    Ok(Some(consumed)) => {
                        self.input.advance(consumed);
                        return Ok(Read::Request);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "malformed request");
                        let refusal = Refusal::by_edge(error.status(), "the request is malformed");
                        return Ok(Read::Malformed(refusal, malformed_line(&self.input, limits)));
                    }
                }
            }
            seen = self.input.len();
            match timeout_at(deadline, self.fill(socket)).await {
                Ok(Ok(0)) => return Ok(Read::End),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(Read::Malformed(TOO_LONG, malformed_line(&self.input, limits))),
            }
        }
    }

    /// Closes the connection after giving the client time to read the refusal (lingering close).
    pub(super) async fn linger(&mut self, socket: &Socket) {
        let shut_down = |fd: BorrowedFd<'_>| socket2::SockRef::from(&fd).shutdown(std::net::Shutdown::Write);
        if socket.with_fd(shut_down).is_err() {
            return;
        }
        let drain = async {
            let mut left = LINGER_BYTES_MAX;
            while left > 0 {
                self.input.clear();
                match self.fill(socket).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER_TIME_MAX, drain).await;
    }
}

/// Content of one request.
pub(super) struct RequestContent<'c> {
    socket: &'c Socket,
    requests: &'c mut Requests,
    framing: Framing,
    /// Whether the content was read to its end, so that the next byte starts a new request.
    is_read: bool,
}

impl<'c> RequestContent<'c> {
    /// Creates the content, delimited by `framing`, of the request whose head was just read.
    pub(super) fn new(socket: &'c Socket, requests: &'c mut Requests, framing: Framing) -> Self {
        let is_read = matches!(framing, Framing::None | Framing::Length(0));
        Self { socket, requests, framing, is_read }
    }

    /// Returns whether the content was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Reads once. The response may be written concurrently.
    async fn read(&mut self) -> io::Result<usize> {
        let Requests { input } = &mut *self.requests;
        input.reserve(CONTENT_READ_BYTES);
        poll_fn(|context| self.socket.poll_read(context, input)).await
    }

    /// Marks the content as read. Releases the buffer, which is too large to keep while the
    /// connection is idle, unless it contains the start of the next request.
    fn end(&mut self) {
        self.is_read = true;
        if self.requests.input.is_empty() {
            self.requests.input = BytesMut::new();
        }
    }
}

impl Incoming for RequestContent<'_> {
    async fn discard(&mut self, bytes_max: u64, time_max: Duration) -> Result<bool, Refusal> {
        if self.is_read {
            return Ok(true);
        }
        let mut content = Content::of(self.framing);
        let mut left = bytes_max;
        let deadline = Instant::now() + time_max;
        loop {
            let before = self.requests.input.len() as u64;
            let decoded = content.decode(&mut self.requests.input)?;
            match left.checked_sub(before - self.requests.input.len() as u64) {
                Some(less) => left = less,
                None => return Ok(false),
            }
            match decoded {
                Decoded::Piece(_) => continue,
                Decoded::More => {}
                Decoded::End => {
                    self.end();
                    return Ok(true);
                }
            }
            match timeout_at(deadline, self.read()).await {
                Ok(Ok(n)) if n > 0 => {}
                Ok(_) => return Err(ENDED_EARLY),
                Err(_) => return Err(TOO_LONG),
            }
        }
    }

    fn has_arrived(&self) -> bool {
        !self.requests.input.is_empty()
    }

    async fn upload(&mut self, source: Source, stall: Duration) -> Result<(), UploadError> {
        let mut content = Content::of(self.framing);
        loop {
            match content.decode(&mut self.requests.input).map_err(UploadError::Refused)? {
                Decoded::Piece(piece) => source.put(piece).await?,
                Decoded::End => {
                    source.end().await?;
                    self.end();
                    return Ok(());
                }
                Decoded::More => tokio::select! {
                    read = timeout(stall, self.read()) => match read {
                        Ok(Ok(bytes)) if bytes > 0 => {}
                        Ok(_) => return Err(UploadError::Refused(ENDED_EARLY)),
                        Err(_) => return Err(UploadError::Refused(TOO_LONG)),
                    },
                    () = source.refused() => return Err(UploadError::NotWanted),
                },
            }
        }
    }

    async fn pipe(&mut self, backend: &mut TcpStream, mut head: Vec<u8>) -> Piped {
        // No further request can follow on this connection.
        self.is_read = false;
        head.extend_from_slice(&mem::take(&mut self.requests.input));
        pipe::run(self.socket, backend, &head).await
    }
}

/// Request content still to be decoded.
enum Content {
    Length(u64),
    Chunked(Box<Decoder>),
}

/// Outcome of decoding buffered content.
enum Decoded {
    Piece(Bytes),
    /// More bytes must be read first.
    More,
    End,
}

impl Content {
    fn of(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked | Framing::UntilClose => Self::Chunked(Box::default()),
        }
    }

    /// Removes the next piece of content from `input`.
    fn decode(&mut self, input: &mut BytesMut) -> Result<Decoded, Refusal> {
        match self {
            Self::Length(0) => Ok(Decoded::End),
            Self::Length(_) if input.is_empty() => Ok(Decoded::More),
            Self::Length(left) => {
                let piece = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece as u64;
                Ok(Decoded::Piece(input.split_to(piece).freeze()))
            }
            Self::Chunked(decoder) => match decoder.decode(input).map_err(|error: ChunkedError| {
                Refusal::by_edge(error.status(), "the request content is malformed")
            })? {
                Step::Data { data, consumed } => {
                    Ok(Decoded::Piece(input.split_to(consumed).freeze().slice(data)))
                }
                Step::More => {
                    input.clear();
                    Ok(Decoded::More)
                }
                Step::Done { consumed } => {
                    input.advance(consumed);
                    Ok(Decoded::End)
                }
            },
        }
    }
}
