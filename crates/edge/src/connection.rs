//! A client's connection: one request after the other, each answered whole before the next is looked at.
//!
//! Bytes after a request's head are the next request's (pipelining) and stay in the buffer. After anything that
//! leaves their meaning in doubt the connection is closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use thalweg_cache::{Failure, Piece};
use thalweg_http::cache_status::CacheStatus;
use thalweg_http::chunked::{self, Decoder, LAST_CHUNK, Step};
use thalweg_http::{Fields, Framing, Method, RequestHead, Version, framing, head, range, status, target};
use thalweg_record::{CacheResult, Cut, Protocol, ResponseRecord, TcpState};
use thalweg_tcp::congestion;
use thalweg_tcp::info::TcpInfo;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use crate::answer::{Found, Refusal, answer};
use crate::now_ms;
use crate::reply::{Delimited, Part, ReplyHead, part};
use crate::send::{CHUNK_BYTES_MAX, SENDFILE_BYTES_MIN, Sender};
use crate::worker::Worker;

/// Bytes read from a client at a time.
const READ_BYTES: usize = 4096;
/// Content of a GET or HEAD request that is read and ignored; with more the connection is not worth keeping.
const REQUEST_CONTENT_BYTES_MAX: u64 = 64 * 1024;
/// How long, and how much, a client may go on sending after a refusal, so that it gets to read it: closing with
/// unread bytes would reset the connection and could destroy the refusal on its way.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// Serves one client until either side has had enough.
pub(crate) async fn serve(worker: Arc<Worker>, stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    if let Some(name) = worker.config().congestion_control
        && let Err(error) = congestion::set(std::os::fd::AsFd::as_fd(&stream), name)
    {
        tracing::warn!(%client, %error, "congestion control not set");
    }
    let client = SocketAddr::new(client.ip().to_canonical(), client.port());
    let mut connection = Connection {
        worker,
        stream,
        client,
        input: BytesMut::new(),
        request: RequestHead::default(),
        key: String::new(),
        out: Vec::new(),
    };
    while let Ok(Next::Request) = connection.exchange().await {}
}

struct Connection {
    worker: Arc<Worker>,
    stream: TcpStream,
    client: SocketAddr,
    input: BytesMut,
    // Kept from request to request for their allocations.
    request: RequestHead,
    key: String,
    out: Vec<u8>,
}

/// How a response went, for its record.
#[derive(Debug)]
struct Sent {
    status: u16,
    cache: CacheResult,
    bytes: u64,
    first_byte: Option<Instant>,
    cut: Option<Cut>,
    next: Next,
}

impl Connection {
    /// One request and its response.
    async fn exchange(&mut self) -> io::Result<Next> {
        match self.read_head().await? {
            Read::Request => {}
            Read::End => return Ok(Next::Close),
            Read::Malformed(refusal) => {
                let begun = Instant::now();
                self.request = RequestHead::default();
                let sent = self.refuse(&refusal, Next::Close).await;
                self.record(begun, &sent);
                self.linger().await;
                return Ok(Next::Close);
            }
        }
        let begun = Instant::now();
        let _busy = self.worker.busy();
        let (refusal, after) = match self.check_request().await {
            Ok(()) => (None, self.after()),
            Err((refusal, after)) => (Some(refusal), after),
        };
        let answered = match refusal {
            Some(refusal) => Err(refusal),
            None => {
                self.write_key();
                answer(&self.worker.clone(), &self.key, &self.request, self.client.ip()).await
            }
        };
        let sent = match answered {
            Ok(found) => self.reply(found, after).await,
            Err(refusal) => self.refuse(&refusal, after).await,
        };
        self.record(begun, &sent);
        if sent.next == Next::Close && after == Next::Close {
            self.linger().await;
        }
        Ok(sent.next)
    }

    /// Whether the client, and the process, want another request on this connection.
    fn after(&self) -> Next {
        let keep = framing::keep_alive(self.request.version, &self.request.fields);
        if keep && !self.worker.is_stopping() { Next::Request } else { Next::Close }
    }

    async fn read_head(&mut self) -> io::Result<Read> {
        let limits = &self.worker.config().head;
        let timeouts = *self.worker.timeouts();
        let mut seen = 0;
        let mut deadline = tokio::time::Instant::now() + timeouts.idle;
        loop {
            if !self.input.is_empty() {
                if seen == 0 {
                    deadline = tokio::time::Instant::now() + timeouts.head;
                }
                if head::is_worth_parsing(&self.input, seen, limits) {
                    match head::parse_request(&self.input, &mut self.request, limits) {
                        Ok(Some(consumed)) => {
                            self.input.advance(consumed);
                            return Ok(Read::Request);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(client = %self.client, %error, "malformed request");
                            return Ok(Read::Malformed(Refusal::own(
                                error.status(),
                                "the request is malformed",
                            )));
                        }
                    }
                }
                seen = self.input.len();
            }
            self.input.reserve(READ_BYTES);
            match timeout_at(deadline, self.stream.read_buf(&mut self.input)).await {
                Ok(Ok(0)) => return Ok(Read::End),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) if self.input.is_empty() => return Ok(Read::End),
                Err(_) => return Ok(Read::Malformed(Refusal::own(408, "the request took too long"))),
            }
        }
    }

    /// What can be said of a request without looking for its answer. Reads and ignores its content.
    async fn check_request(&mut self) -> Result<(), (Refusal, Next)> {
        let framing = framing::request_framing(&self.request).map_err(|error| {
            (Refusal::own(error.status(), "the length of the request is in doubt"), Next::Close)
        })?;
        if !matches!(self.request.method, Method::Get | Method::Head) {
            let next = if framing == Framing::None { self.after() } else { Next::Close };
            return Err((Refusal::own(405, "only GET and HEAD are served here"), next));
        }
        self.discard_content(framing).await.map_err(|refusal| (refusal, Next::Close))?;
        if !self.worker.serves(self.request.authority.host()) {
            return Err((Refusal::own(421, "this host is not served here"), self.after()));
        }
        Ok(())
    }

    /// Content of GET and HEAD has no meaning (RFC 9110 §9.3.1), but it stands before the next request.
    async fn discard_content(&mut self, framing: Framing) -> Result<(), Refusal> {
        let mut decoder = match framing {
            Framing::None | Framing::Length(0) => return Ok(()),
            Framing::Length(length) if length > REQUEST_CONTENT_BYTES_MAX => return Err(TOO_LARGE),
            // Who waits for a 100 will not send anything before.
            _ if self.request.fields.contains("expect") => return Err(TOO_LARGE),
            Framing::Length(length) => Ignored::Length(length),
            Framing::Chunked | Framing::UntilClose => Ignored::Chunked(Box::default()),
        };
        let mut left = REQUEST_CONTENT_BYTES_MAX;
        let deadline = tokio::time::Instant::now() + self.worker.timeouts().head;
        loop {
            let before = self.input.len() as u64;
            if decoder.take(&mut self.input)? {
                return Ok(());
            }
            left = left.checked_sub(before - self.input.len() as u64).ok_or(TOO_LARGE)?;
            self.input.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(n) if n > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = timeout_at(deadline, self.stream.readable()).await;
                    ready
                        .map_err(|_| Refusal::own(408, "the request took too long"))?
                        .map_err(|_| TOO_LARGE)?;
                }
                _ => return Err(Refusal::own(400, "the request ended early")),
            }
        }
    }

    /// The cache key: host, and path and query in their normal form.
    fn write_key(&mut self) {
        self.key.clear();
        self.key.push_str(self.request.authority.as_str());
        self.key.push_str(&target::normalise(self.request.target.as_str()));
    }

    async fn reply(&mut self, mut found: Found, after: Next) -> Sent {
        let chosen = match self.choose(&mut found).await {
            Ok(part) => part,
            Err(failure) => {
                let forward = thalweg_http::cache_status::Forward::UriMiss;
                return self.refuse(&Refusal::failed(&failure, forward), after).await;
            }
        };
        let now_ms = now_ms();
        let length = found.length();
        let empty = Fields::new();
        let (status, fields, content, content_range) = match chosen {
            Part::Whole | Part::After(_) => {
                (found.head.status, &found.head.fields, 0..length.unwrap_or(u64::MAX), None)
            }
            Part::Range(part) => {
                let field = range::content_range(&part, length);
                (206, &found.head.fields, part, Some(field))
            }
            Part::NotModified => (304, &found.head.fields, 0..0, None),
            Part::PreconditionFailed => (412, &empty, 0..0, None),
            Part::Unsatisfiable(length) => (416, &empty, 0..0, Some(range::unsatisfied_range(length))),
        };
        let ends = content.end < u64::MAX;
        let bodyless = status::is_bodyless(status);
        let (delimited, next) = match self.request.version {
            _ if bodyless => (Delimited::None, after),
            _ if ends => (Delimited::Length(content.end - content.start), after),
            _ if self.request.method == Method::Head => (Delimited::None, after),
            Version::Http11 => (Delimited::Chunked, after),
            Version::Http10 => (Delimited::Close, Next::Close),
        };
        let head = ReplyHead {
            status,
            fields,
            age_s: found.age_s(now_ms),
            delimited,
            content_range,
            cache_status: found.status(now_ms),
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(&mut self.out);
        let mut sent = Sent { status, cache: found.cache, bytes: 0, first_byte: None, cut: None, next };
        let sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let headless = self.request.method == Method::Head || bodyless || content.is_empty();
        let result = if headless {
            sender
                .head(&self.out, false)
                .await
                .map(|()| sent.first_byte = Some(Instant::now()))
                .map_err(cut_of)
        } else {
            found.content.seek(content.start);
            let left = ends.then(|| content.end - content.start);
            send_content(&sender, &self.out, &mut found, left, delimited, &mut sent).await
        };
        if let Err(cut) = result {
            sent.cut = Some(cut);
            sent.next = Next::Close;
            if delimited == Delimited::Close && cut == Cut::BackendFailed {
                // Without a length a clean close would make the rest look whole.
                let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
            }
        }
        sent
    }

    /// Which part of what was found answers the request; waits where that cannot be known yet.
    async fn choose(&self, found: &mut Found) -> Result<Part, Failure> {
        if found.verbatim {
            return Ok(Part::Whole);
        }
        loop {
            match part(&self.request, &found.head, found.content.progress()) {
                // What is passed cannot be read twice: all of it is an answer as well (RFC 9110 §14.2).
                Part::After(_) if found.head.private.is_some() => return Ok(Part::Whole),
                Part::After(offset) => found.arrived(offset).await?,
                part => return Ok(part),
            }
        }
    }

    /// A response of our own.
    async fn refuse(&mut self, refusal: &Refusal, next: Next) -> Sent {
        let mut fields = Fields::new();
        let date = thalweg_http::date::format(now_ms() / 1000);
        fields.push("Date", date);
        fields.push("Content-Type", "text/plain; charset=utf-8");
        fields.push("Cache-Control", "no-store");
        if refusal.status == 405 {
            fields.push("Allow", "GET, HEAD");
        }
        let content = format!("{} {}: {}\n", refusal.status, status::reason(refusal.status), refusal.reason);
        let head = ReplyHead {
            status: refusal.status,
            fields: &fields,
            age_s: None,
            delimited: Delimited::Length(content.len() as u64),
            content_range: None,
            cache_status: CacheStatus {
                forward: refusal.forward,
                detail: Some(refusal.reason),
                ..CacheStatus::default()
            },
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(&mut self.out);
        let has_content = self.request.method != Method::Head;
        if has_content {
            self.out.extend_from_slice(content.as_bytes());
        }
        let sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let result = sender.bytes(&self.out, false).await;
        let cut = result.err().map(cut_of);
        Sent {
            status: refusal.status,
            cache: CacheResult::Error,
            bytes: if has_content && cut.is_none() { content.len() as u64 } else { 0 },
            first_byte: Some(Instant::now()),
            cut,
            next: if cut.is_none() { next } else { Next::Close },
        }
    }

    /// Lets the client read a refusal before the connection is gone.
    async fn linger(&mut self) {
        if socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        let drain = async {
            let mut left = LINGER_BYTES_MAX;
            while left > 0 {
                self.input.clear();
                self.input.reserve(READ_BYTES);
                match self.stream.read_buf(&mut self.input).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER_TIME_MAX, drain).await;
    }

    /// Tells how the response went, if anybody listens.
    fn record(&self, begun: Instant, sent: &Sent) {
        let log = self.worker.log();
        if !log.is_followed() {
            return;
        }
        let duration = begun.elapsed();
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        log.put(ResponseRecord {
            time_unix_us: micros(since_epoch.saturating_sub(duration)),
            client: self.client,
            method: self.request.method_str().to_owned().into(),
            host: self.request.authority.as_str().to_owned(),
            path: self.request.target.as_str().to_owned(),
            status: sent.status,
            bytes: sent.bytes,
            ttfb_us: sent.first_byte.map(|at| micros(at.saturating_duration_since(begun))),
            duration_us: micros(duration),
            cache: sent.cache,
            protocol: match self.request.version {
                Version::Http10 => Protocol::Http10,
                Version::Http11 => Protocol::Http11,
            },
            cut: sent.cut,
            tcp: tcp_state(&self.stream),
        });
    }
}

/// Head and content, as it arrives. `left` is how much there will be, if known.
async fn send_content(
    sender: &Sender<'_>,
    head: &[u8],
    found: &mut Found,
    mut left: Option<u64>,
    delimited: Delimited,
    sent: &mut Sent,
) -> Result<(), Cut> {
    let most = |left: Option<u64>| match left {
        Some(left) => usize::try_from(left).unwrap_or(usize::MAX),
        None => CHUNK_BYTES_MAX,
    };
    let chunked = delimited == Delimited::Chunked;
    // The head goes with the first content if that is there, else alone and at once.
    match found.content.try_next(most(left)) {
        Some(Ok(Some(piece))) if !chunked => {
            sender.head_and_piece(head, &piece).await.map_err(cut_of)?;
            sent.count(&piece, &mut left);
        }
        Some(Ok(Some(piece))) => {
            sender.chunk(head, &piece).await.map_err(cut_of)?;
            sent.count(&piece, &mut left);
        }
        other => {
            sender.head(head, false).await.map_err(cut_of)?;
            sent.first_byte = Some(Instant::now());
            other.transpose().map_err(|_| Cut::BackendFailed)?;
        }
    }
    while left != Some(0) {
        let piece = match found.content.next(most(left)).await {
            Ok(Some(piece)) => piece,
            Ok(None) if left.is_none() => break,
            Ok(None) | Err(_) => return Err(Cut::BackendFailed),
        };
        let done = if chunked { sender.chunk(&[], &piece).await } else { sender.piece(&piece).await };
        done.map_err(cut_of)?;
        sent.count(&piece, &mut left);
    }
    if chunked {
        sender.bytes(LAST_CHUNK, false).await.map_err(cut_of)?;
    }
    Ok(())
}

impl Sent {
    fn count(&mut self, piece: &Piece, left: &mut Option<u64>) {
        self.first_byte.get_or_insert_with(Instant::now);
        self.bytes += piece.len() as u64;
        *left = left.map(|left| left - piece.len() as u64);
    }
}

/// What came of waiting for a request.
enum Read {
    Request,
    /// The client is done.
    End,
    Malformed(Refusal),
}

const TOO_LARGE: Refusal = Refusal { status: 413, reason: "a request here has no content", forward: None };

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
                match decoder.decode(input).map_err(|error: chunked::ChunkedError| {
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

fn cut_of(error: io::Error) -> Cut {
    if error.kind() == io::ErrorKind::TimedOut { Cut::ClientStalled } else { Cut::ClientClosed }
}

/// What the kernel says of the connection now.
fn tcp_state(stream: &TcpStream) -> Option<TcpState> {
    let fd = std::os::fd::AsFd::as_fd(stream);
    let info = TcpInfo::read(fd).ok()?;
    Some(TcpState {
        congestion_control: congestion::get(fd).ok()?.to_string(),
        rtt_us: info.rtt_us,
        min_rtt_us: info.min_rtt_us,
        snd_cwnd: info.snd_cwnd,
        delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s,
        retransmits: info.total_retrans,
        lost: info.lost,
        pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
    })
}

const _: () = assert!(SENDFILE_BYTES_MIN <= CHUNK_BYTES_MAX);
