//! Requests as they come on a client's connection: heads, content that is handed on or read over, and the end.
//!
//! **Invariant:** bytes after a request's head, and its content, stay in the buffer: they are the next request's.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;
use std::{io, mem};

use bytes::{Buf, Bytes, BytesMut};
use thalweg_http::chunked::{ChunkedError, Decoder, Step};
use thalweg_http::head::METHOD_BYTES_MAX;
use thalweg_http::token::is_token;
use thalweg_http::{Authority, Framing, Limits, RequestHead, head, target};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::Refusal;
use crate::config::Timeouts;
use crate::upload::{NotWanted, Source};

/// Bytes read from a client at a time.
const READ_BYTES: usize = 4096;
/// Bytes of content read from a client at a time.
const CONTENT_READ_BYTES: usize = 32 * 1024;
/// Content of a GET or HEAD request that is read and ignored; with more the connection is not worth keeping.
const REQUEST_CONTENT_BYTES_MAX: u64 = 64 * 1024;
/// How long, and how much, a client may go on sending after a refusal, so that it gets to read it: closing with
/// unread bytes would reset the connection and could destroy the refusal on its way.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// A buffer for the next connection of this worker that has something to read.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// What came of waiting for a request.
pub(crate) enum Read {
    Request,
    /// The client is done.
    End,
    Malformed(Refusal, RequestLine),
}

/// What can be read of the line of a request that is refused unparsed: for the log, as it stands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestLine {
    /// Empty if there was none.
    pub(crate) method: String,
    /// Empty if there was none.
    pub(crate) target: String,
}

impl RequestLine {
    /// Only words that have ended, of characters that such a word may have: nothing is guessed.
    fn of(input: &[u8], limits: &Limits) -> Self {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let line = input.split(is_end).find(|line| !line.is_empty()).unwrap_or_default();
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let mut request = Self::default();
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
}

fn split_at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..space], &line[space + 1..]))
}

const TOO_LONG: Refusal = Refusal::own(408, "the request took too long");
const ENDED_EARLY: Refusal = Refusal::own(400, "the request ended early");
const TOO_LARGE: Refusal = Refusal::own(413, "a request here has no content");

/// A client's bytes that have been read and not yet been understood.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    input: BytesMut,
}

impl Requests {
    /// Reads what has come. While nothing has, a connection holds no buffer: an idle one costs little memory.
    async fn fill(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        poll_fn(|context| {
            if self.input.capacity() == 0 {
                self.input = SPARE.take();
            }
            self.input.reserve(READ_BYTES);
            let read = pin!(stream.read_buf(&mut self.input)).poll(context);
            if self.input.is_empty() {
                SPARE.set(mem::take(&mut self.input));
            }
            read
        })
        .await
    }

    /// What has been read and not understood.
    pub(crate) fn take(&mut self) -> BytesMut {
        mem::take(&mut self.input)
    }

    /// The head of the next request, into `request`.
    pub(crate) async fn read(
        &mut self,
        stream: &mut TcpStream,
        request: &mut RequestHead,
        limits: &Limits,
        timeouts: &Timeouts,
    ) -> io::Result<Read> {
        let mut seen = 0;
        let mut deadline = Instant::now() + timeouts.idle;
        loop {
            if !self.input.is_empty() {
                if seen == 0 {
                    deadline = Instant::now() + timeouts.head;
                }
                if head::is_worth_parsing(&self.input, seen, limits) {
                    match head::parse_request(&self.input, request, limits) {
                        Ok(Some(consumed)) => {
                            self.input.advance(consumed);
                            return Ok(Read::Request);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(%error, "malformed request");
                            let refusal = Refusal::own(error.status(), "the request is malformed");
                            return Ok(Read::Malformed(refusal, RequestLine::of(&self.input, limits)));
                        }
                    }
                }
                seen = self.input.len();
            }
            match timeout_at(deadline, self.fill(stream)).await {
                Ok(Ok(0)) => return Ok(Read::End),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) if self.input.is_empty() => return Ok(Read::End),
                Err(_) => return Ok(Read::Malformed(TOO_LONG, RequestLine::of(&self.input, limits))),
            }
        }
    }

    /// Content of GET and HEAD has no meaning (RFC 9110 §9.3.1), but it stands before the next request.
    pub(crate) async fn discard_content(
        &mut self,
        stream: &mut TcpStream,
        framing: Framing,
        expects: bool,
        time_max: Duration,
    ) -> Result<(), Refusal> {
        let mut content = match framing {
            Framing::None | Framing::Length(0) => return Ok(()),
            Framing::Length(length) if length > REQUEST_CONTENT_BYTES_MAX => return Err(TOO_LARGE),
            // Who waits for a 100 will not send anything before.
            _ if expects => return Err(TOO_LARGE),
            framing => Content::of(framing),
        };
        let mut left = REQUEST_CONTENT_BYTES_MAX;
        let deadline = Instant::now() + time_max;
        loop {
            let before = self.input.len() as u64;
            let taken = content.take(&mut self.input)?;
            left = left.checked_sub(before - self.input.len() as u64).ok_or(TOO_LARGE)?;
            match taken {
                Taken::Piece(_) => continue,
                Taken::More => {}
                Taken::End => return Ok(()),
            }
            match timeout_at(deadline, self.fill(stream)).await {
                Ok(Ok(n)) if n > 0 => {}
                Ok(_) => return Err(ENDED_EARLY),
                Err(_) => return Err(TOO_LONG),
            }
        }
    }

    /// Hands on the content of a request as it comes, as fast as its fetch takes it. A client may not pause for longer
    /// than `stall`.
    pub(crate) async fn upload(
        &mut self,
        stream: &TcpStream,
        source: Source,
        stall: Duration,
    ) -> Result<(), Unsent> {
        let mut content = Content::of(source.framing);
        loop {
            match content.take(&mut self.input).map_err(Unsent::Refused)? {
                Taken::Piece(piece) => source.put(piece).await?,
                Taken::End => {
                    source.end().await?;
                    if self.input.is_empty() {
                        // Far larger than a connection needs while it waits for the next request.
                        self.input = BytesMut::new();
                    }
                    return Ok(());
                }
                Taken::More => {
                    self.input.reserve(CONTENT_READ_BYTES);
                    tokio::select! {
                        read = timeout(stall, read(stream, &mut self.input)) => match read {
                            Ok(Ok(bytes)) if bytes > 0 => {}
                            Ok(_) => return Err(Unsent::Refused(ENDED_EARLY)),
                            Err(_) => return Err(Unsent::Refused(TOO_LONG)),
                        },
                        () = source.refused() => return Err(Unsent::NotWanted),
                    }
                }
            }
        }
    }

    /// Whether anything is there beyond what was understood.
    pub(crate) fn has_more(&self) -> bool {
        !self.input.is_empty()
    }

    /// Lets the client read a refusal before the connection is gone.
    pub(crate) async fn linger(&mut self, stream: &mut TcpStream) {
        if socket2::SockRef::from(&*stream).shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        let drain = async {
            let mut left = LINGER_BYTES_MAX;
            while left > 0 {
                self.input.clear();
                match self.fill(stream).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER_TIME_MAX, drain).await;
    }
}

/// Reads once, beside who writes.
async fn read(stream: &TcpStream, input: &mut BytesMut) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read_buf(input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Why the content of a request was not handed on to its end.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The client's fault.
    Refused(Refusal),
    /// Its fetch takes no more.
    NotWanted,
}

impl From<NotWanted> for Unsent {
    fn from(_: NotWanted) -> Self {
        Self::NotWanted
    }
}

/// Content of a request.
enum Content {
    Length(u64),
    Chunked(Box<Decoder>),
}

/// What was taken of it.
enum Taken {
    Piece(Bytes),
    /// Nothing before more is read.
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

    /// Takes what belongs to it out of `input`.
    fn take(&mut self, input: &mut BytesMut) -> Result<Taken, Refusal> {
        match self {
            Self::Length(0) => Ok(Taken::End),
            Self::Length(_) if input.is_empty() => Ok(Taken::More),
            Self::Length(left) => {
                let piece = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece as u64;
                Ok(Taken::Piece(input.split_to(piece).freeze()))
            }
            Self::Chunked(decoder) => match decoder.decode(input).map_err(|error: ChunkedError| {
                Refusal::own(error.status(), "the content of the request is malformed")
            })? {
                Step::Data { data, consumed } => {
                    Ok(Taken::Piece(input.split_to(consumed).freeze().slice(data)))
                }
                Step::More => {
                    input.clear();
                    Ok(Taken::More)
                }
                Step::Done { consumed } => {
                    input.advance(consumed);
                    Ok(Taken::End)
                }
            },
        }
    }
}

/// The cache key: host, and path and query in their normal form.
pub(crate) fn write_key(authority: &Authority, target: &str, key: &mut String) {
    key.clear();
    // The port that `http` has anyway is none (RFC 9110 §4.2.3).
    let authority = authority.as_str();
    key.push_str(authority.strip_suffix(":80").unwrap_or(authority));
    key.push_str(&target::normalise(target));
}
