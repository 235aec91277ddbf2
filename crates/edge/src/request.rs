//! Requests as they come on a client's connection: heads, content that is read over, and the end.
//!
//! **Invariant:** bytes after a request's head, and its content, stay in the buffer: they are the next request's.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thalweg_http::chunked::{ChunkedError, Decoder, Step};
use thalweg_http::head::METHOD_BYTES_MAX;
use thalweg_http::token::is_token;
use thalweg_http::{Framing, Limits, RequestHead, head};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::Refusal;
use crate::config::Timeouts;

/// Bytes read from a client at a time.
const READ_BYTES: usize = 4096;
/// Content of a GET or HEAD request that is read and ignored; with more the connection is not worth keeping.
const REQUEST_CONTENT_BYTES_MAX: u64 = 64 * 1024;
/// How long, and how much, a client may go on sending after a refusal, so that it gets to read it: closing with
/// unread bytes would reset the connection and could destroy the refusal on its way.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

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

const TOO_LONG: Refusal = Refusal { status: 408, reason: "the request took too long", forward: None };
const TOO_LARGE: Refusal = Refusal { status: 413, reason: "a request here has no content", forward: None };

/// A client's bytes that have been read and not yet been understood.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    input: BytesMut,
}

impl Requests {
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
            self.input.reserve(READ_BYTES);
            match timeout_at(deadline, stream.read_buf(&mut self.input)).await {
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
        let mut decoder = match framing {
            Framing::None | Framing::Length(0) => return Ok(()),
            Framing::Length(length) if length > REQUEST_CONTENT_BYTES_MAX => return Err(TOO_LARGE),
            // Who waits for a 100 will not send anything before.
            _ if expects => return Err(TOO_LARGE),
            Framing::Length(length) => Ignored::Length(length),
            Framing::Chunked | Framing::UntilClose => Ignored::Chunked(Box::default()),
        };
        let mut left = REQUEST_CONTENT_BYTES_MAX;
        let deadline = Instant::now() + time_max;
        loop {
            let before = self.input.len() as u64;
            if decoder.take(&mut self.input)? {
                return Ok(());
            }
            left = left.checked_sub(before - self.input.len() as u64).ok_or(TOO_LARGE)?;
            self.input.reserve(READ_BYTES);
            match timeout_at(deadline, stream.read_buf(&mut self.input)).await {
                Ok(Ok(n)) if n > 0 => {}
                Ok(_) => return Err(Refusal::own(400, "the request ended early")),
                Err(_) => return Err(TOO_LONG),
            }
        }
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
                self.input.reserve(READ_BYTES);
                match stream.read_buf(&mut self.input).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER_TIME_MAX, drain).await;
    }
}

/// Content of a request that is read over.
enum Ignored {
    Length(u64),
    Chunked(Box<Decoder>),
}

impl Ignored {
    /// Takes what belongs to it out of `input`; true at its end.
    fn take(&mut self, input: &mut BytesMut) -> Result<bool, Refusal> {
        match self {
            Self::Length(left) => {
                let piece = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                input.advance(piece);
                *left -= piece as u64;
                Ok(*left == 0)
            }
            Self::Chunked(decoder) => loop {
                match decoder.decode(input).map_err(|error: ChunkedError| {
                    Refusal::own(error.status(), "the content of the request is malformed")
                })? {
                    Step::Data { consumed, .. } => input.advance(consumed),
                    Step::More => {
                        input.clear();
                        return Ok(false);
                    }
                    Step::Done { consumed } => {
                        input.advance(consumed);
                        return Ok(true);
                    }
                }
            },
        }
    }
}
