//! The client of a viewer: one connection, one request at a time, content handed on as it comes and kept nowhere.
//!
//! All connections of a thread read into one buffer. A connection that the server has closed between two requests is made
//! anew without a word.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::head::{HEAD_BYTES_MAX, Limits, parse_response};
use thalweg_http::{Authority, Framing, Method, ResponseHead, framing};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// What one read takes at most, in bytes.
const READ_BYTES_MAX: usize = 64 << 10;
/// A connection that takes longer to be made counts as none.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a response's first byte, or for more of it. Live origins let a request for the next segment wait.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MAX]);
    static HEAD: RefCell<ResponseHead> = RefCell::new(ResponseHead::default());
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct Server {
    /// As it is named in requests.
    pub authority: Authority,
    /// Where it is.
    pub address: SocketAddr,
}

/// Why there is no complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// Nothing came for [`READ_TIMEOUT`], or no connection for [`CONNECT_TIMEOUT`].
    Timeout,
    /// The connection broke or ended before the response did.
    Closed,
    /// What came is no HTTP/1.1 response.
    Malformed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Connect => "no connection",
            Failure::Timeout => "timeout",
            Failure::Closed => "closed before the end",
            Failure::Malformed => "malformed response",
        })
    }
}

/// What has come.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Bytes of content.
    pub bytes: u64,
    /// From the end of the request to the first byte of the response.
    pub ttfb: Duration,
    /// Length of the whole representation, where the response is a part of it.
    pub complete_length: Option<u64>,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Connection {
    stream: Option<TcpStream>,
    source: Option<IpAddr>,
}

impl Connection {
    /// One that is made with the first request, from this address if there is one.
    #[must_use]
    pub fn new(source: Option<IpAddr>) -> Self {
        Self { stream: None, source }
    }

    /// Asks for `target` with `fields`, whole lines, and hands content to `take` as it comes, with the response's status.
    ///
    /// # Errors
    /// Why the response is not complete; some content may have come.
    pub async fn get(
        &mut self,
        server: &Server,
        target: &str,
        fields: &str,
        mut take: impl FnMut(u16, &[u8]),
    ) -> Result<Answer, Failure> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", server.authority.as_str());
        if let Some(stream) = self.stream.take() {
            let mut exchange = Exchange::new(stream);
            match exchange.run(&request, &mut take).await {
                // Between two requests a server may close: nothing of a response has come.
                Err(Failure::Closed) if exchange.first_byte.is_none() => {}
                done => return self.done(exchange, done),
            }
        }
        let mut exchange = Exchange::new(self.connect(server).await?);
        let done = exchange.run(&request, &mut take).await;
        self.done(exchange, done)
    }

    fn done(&mut self, exchange: Exchange, done: Result<Answer, Failure>) -> Result<Answer, Failure> {
        if done.is_ok() && exchange.keep_alive {
            self.stream = Some(exchange.stream);
        }
        done
    }

    async fn connect(&self, server: &Server) -> Result<TcpStream, Failure> {
        let socket = if server.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(|_| Failure::Connect)?;
        if let Some(source) = self.source {
            socket.bind(SocketAddr::new(source, 0)).map_err(|_| Failure::Connect)?;
        }
        match timeout(CONNECT_TIMEOUT, socket.connect(server.address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                Ok(stream)
            }
            Ok(Err(_)) => Err(Failure::Connect),
            Err(_) => Err(Failure::Timeout),
        }
    }
}

/// One request and its response.
struct Exchange {
    stream: TcpStream,
    sent: Instant,
    first_byte: Option<Instant>,
    keep_alive: bool,
}

/// How far a response has come.
enum Progress {
    /// The beginning of its head.
    Head(Vec<u8>),
    /// Content: status, complete length, bytes so far, and how it goes on.
    Content { status: u16, complete_length: Option<u64>, bytes: u64, rest: Rest },
}

/// What is left of the content.
enum Rest {
    Length(u64),
    Chunked(Box<Decoder>),
    UntilClose,
}

impl Exchange {
    fn new(stream: TcpStream) -> Self {
        Self { stream, sent: Instant::now(), first_byte: None, keep_alive: false }
    }

    async fn run(&mut self, request: &str, take: &mut impl FnMut(u16, &[u8])) -> Result<Answer, Failure> {
        self.write(request.as_bytes()).await?;
        self.sent = Instant::now();
        let mut progress = Progress::Head(Vec::new());
        loop {
            match timeout(READ_TIMEOUT, self.stream.readable()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::Closed),
                Err(_) => return Err(Failure::Timeout),
            }
            let done = BUFFER.with_borrow_mut(|buffer| match self.stream.try_read(buffer) {
                Ok(0) => self.end_of_stream(&progress),
                Ok(read) => self.receive(&buffer[..read], &mut progress, take),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(_) => Err(Failure::Closed),
            })?;
            if let Some(answer) = done {
                return Ok(answer);
            }
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(READ_TIMEOUT, self.stream.writable())
                        .await
                        .map_err(|_| Failure::Timeout)?
                        .map_err(|_| Failure::Closed)?;
                }
                Err(_) => return Err(Failure::Closed),
            }
        }
        Ok(())
    }

    fn end_of_stream(&mut self, progress: &Progress) -> Result<Option<Answer>, Failure> {
        match progress {
            Progress::Content { rest: Rest::UntilClose, status, complete_length, bytes } => {
                self.keep_alive = false;
                Ok(Some(self.answer(*status, *bytes, *complete_length)))
            }
            _ => Err(Failure::Closed),
        }
    }

    /// Takes what was read; the answer if that is its end.
    fn receive(
        &mut self,
        mut input: &[u8],
        progress: &mut Progress,
        take: &mut impl FnMut(u16, &[u8]),
    ) -> Result<Option<Answer>, Failure> {
        self.first_byte.get_or_insert_with(Instant::now);
        if let Progress::Head(partial) = progress {
            // A head is nearly always whole in one read: nothing is kept.
            let mut gathered = std::mem::take(partial);
            let had = gathered.len();
            let parsed = if had == 0 {
                self.head(input)?
            } else {
                gathered.extend_from_slice(input);
                self.head(&gathered)?
            };
            let Some((head_bytes, content)) = parsed else {
                if had == 0 {
                    gathered.extend_from_slice(input);
                }
                *partial = gathered;
                return Ok(None);
            };
            input = &input[head_bytes - had..];
            *progress = content;
        }
        let Progress::Content { status, complete_length, bytes, rest } = progress else { return Ok(None) };
        let is_done = rest.read(input, |content| {
            *bytes += content.len() as u64;
            take(*status, content);
        })?;
        Ok(is_done.then(|| self.answer(*status, *bytes, *complete_length)))
    }

    /// The head, and those of informational responses before it: its length in all, and what follows.
    fn head(&mut self, input: &[u8]) -> Result<Option<(usize, Progress)>, Failure> {
        HEAD.with_borrow_mut(|head| {
            let mut at = 0;
            loop {
                let parsed = parse_response(&input[at..], head, &Limits::default());
                let Some(head_bytes) = parsed.map_err(|_| Failure::Malformed)? else {
                    let is_too_long = input.len() - at > HEAD_BYTES_MAX;
                    return if is_too_long { Err(Failure::Malformed) } else { Ok(None) };
                };
                at += head_bytes;
                if head.status >= 200 {
                    break;
                }
            }
            let framing = framing::response_framing(Method::Get, head).map_err(|_| Failure::Malformed)?;
            self.keep_alive =
                framing != Framing::UntilClose && framing::keep_alive(head.version, &head.fields);
            let complete_length =
                head.fields.get_str("content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok());
            let rest = match framing {
                Framing::None => Rest::Length(0),
                Framing::Length(length) => Rest::Length(length),
                Framing::Chunked => Rest::Chunked(Box::default()),
                Framing::UntilClose => Rest::UntilClose,
            };
            Ok(Some((at, Progress::Content { status: head.status, complete_length, bytes: 0, rest })))
        })
    }

    fn answer(&self, status: u16, bytes: u64, complete_length: Option<u64>) -> Answer {
        let ttfb = self.first_byte.map_or(Duration::ZERO, |first| first - self.sent);
        Answer { status, bytes, ttfb, complete_length }
    }
}

impl Rest {
    /// Takes the next bytes of the message; whether they were the last. What comes after is nobody's: nothing was asked.
    fn read(&mut self, mut input: &[u8], mut take: impl FnMut(&[u8])) -> Result<bool, Failure> {
        match self {
            Rest::UntilClose => {
                if !input.is_empty() {
                    take(input);
                }
                Ok(false)
            }
            Rest::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX);
                if input.len() > taken {
                    return Err(Failure::Malformed);
                }
                *left -= input.len() as u64;
                if !input.is_empty() {
                    take(input);
                }
                Ok(*left == 0)
            }
            Rest::Chunked(decoder) => loop {
                match decoder.decode(input).map_err(|_| Failure::Malformed)? {
                    Step::Data { data, consumed } => {
                        take(&input[data]);
                        input = &input[consumed..];
                    }
                    Step::More => return Ok(false),
                    Step::Done { consumed } if consumed == input.len() => return Ok(true),
                    Step::Done { .. } => return Err(Failure::Malformed),
                }
            },
        }
    }
}
