//! A client's connection: one request after the other, each answered whole before the next is looked at.
//!
//! Bytes after a request's head are the next request's (pipelining) and stay in the buffer. After anything that
//! leaves their meaning in doubt the connection is closed.
//!
//! **Invariant:** a response that ends with the connection and is cut, by whatever, ends with a reset.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_cache::{Failure, TooMany};
use thalweg_http::cache_status::{CacheStatus, Forward};
use thalweg_http::chunked::LAST_CHUNK;
use thalweg_http::{Fields, Framing, Method, RequestHead, Version, date, framing, range, status, trailer};
use thalweg_record::{CacheResult, Cut};
use thalweg_tcp::congestion;
use tokio::net::TcpStream;

use crate::answer::{Found, Refusal, answer};
use crate::content::Content;
use crate::interim::Asker;
use crate::multipart::Multipart;
use crate::now_ms;
use crate::purge::{self, Order};
use crate::reply::{Delimited, Part, ReplyHead, part};
use crate::request::{Read, RequestLine, Requests, write_key};
use crate::send::{CHUNK_BYTES_MAX, SENDFILE_BYTES_MIN, Sender};
use crate::sent::Sent;
use crate::worker::Worker;

/// Ranges of one request that are answered from slices; what begins in one may have to be fetched for it.
const SLICED_RANGES_MAX: usize = 4;
/// How often one request looks for its answer, where what it finds cannot be read.
const LOOKS_MAX: usize = 4;
mod change;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    Close,
}

/// Serves one client until either side has had enough.
pub(crate) async fn serve(worker: Arc<Worker>, stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    if let Some(name) = worker.config().congestion_control
        && let Err(error) = congestion::set(stream.as_fd(), name)
    {
        tracing::warn!(%client, %error, "congestion control not set");
    }
    let client = SocketAddr::new(client.ip().to_canonical(), client.port());
    let mut connection = Connection {
        worker,
        stream,
        client,
        requests: Requests::default(),
        request: RequestHead::default(),
        key: String::new(),
        out: Vec::new(),
    };
    while let Ok(Next::Request) = connection.exchange().await {}
}

/// A response that the edge makes itself.
struct Own {
    status: u16,
    content_type: &'static str,
    content: String,
}

struct Connection {
    worker: Arc<Worker>,
    stream: TcpStream,
    client: SocketAddr,
    requests: Requests,
    // Kept from request to request for their allocations.
    request: RequestHead,
    key: String,
    out: Vec<u8>,
}

impl Connection {
    /// One request and its response.
    async fn exchange(&mut self) -> io::Result<Next> {
        let limits = &self.worker.config().head;
        match self.requests.read(&mut self.stream, &mut self.request, limits, self.worker.timeouts()).await? {
            Read::Request => {}
            Read::End => return Ok(Next::Close),
            Read::Malformed(refusal, line) => {
                let begun = Instant::now();
                self.request = RequestHead::default();
                let sent = self.refuse(&refusal, Next::Close, &mut Vec::new()).await;
                self.record(begun, &sent, Some(line));
                self.requests.linger(&mut self.stream).await;
                return Ok(Next::Close);
            }
        }
        let begun = Instant::now();
        let _busy = self.worker.busy();
        self.request.fields.remove_nominated();
        let checked = self.check_request().await;
        let mut out = std::mem::take(&mut self.out);
        let sent = match checked {
            Ok(Framing::None) if is_read(self.request.method) => {
                self.write_key();
                let after = self.after();
                match self.answered().await {
                    Ok((found, part)) => self.reply(found, part, after, &mut out).await,
                    Err(refusal) => self.refuse(&refusal, after, &mut out).await,
                }
            }
            Ok(_) if self.request.method == Method::Purge => {
                self.write_key();
                self.purge(&mut out).await
            }
            // Boxed: what is rare is not to make every connection larger.
            Ok(framing) => Box::pin(self.change(framing, &mut out)).await,
            Err((refusal, after)) => self.refuse(&refusal, after, &mut out).await,
        };
        self.out = out;
        self.record(begun, &sent, None);
        // A shutdown would turn the reset of what was cut into a clean end.
        if sent.next == Next::Close && sent.cut.is_none() {
            self.requests.linger(&mut self.stream).await;
        }
        Ok(sent.next)
    }

    /// Whether the client, and the process, want another request on this connection.
    fn after(&self) -> Next {
        let keep = framing::keep_alive(self.request.version, &self.request.fields);
        if keep && !self.worker.is_stopping() { Next::Request } else { Next::Close }
    }

    fn asker(&self) -> Asker<'_> {
        Asker { ip: self.client.ip(), stream: &self.stream }
    }

    /// What can be said of a request without looking for its answer; else what delimits its content. That of GET and
    /// HEAD is read and ignored.
    async fn check_request(&mut self) -> Result<Framing, (Refusal, Next)> {
        let framing = framing::request_framing(&self.request).map_err(|error| {
            (Refusal::own(error.status(), "the length of the request is in doubt"), Next::Close)
        })?;
        let (method, after) = (self.request.method, self.after());
        let next = if framing == Framing::None { after } else { Next::Close };
        if matches!(method, Method::Options | Method::Trace) {
            return Err((Refusal::own(405, "the method is not allowed here"), next));
        }
        if self.worker.node().has_seen(&self.request.fields) {
            tracing::warn!(host = self.request.authority.as_str(), target = %self.request.target, "request loop");
            return Err((Refusal::own(508, "the request has come through this node before"), next));
        }
        let is_read = is_read(method) || method == Method::Purge;
        if is_read {
            let time_max = self.worker.timeouts().head;
            let expects = self.request.fields.contains("expect");
            let discarded = self.requests.discard_content(&mut self.stream, framing, expects, time_max).await;
            discarded.map_err(|refusal| (refusal, Next::Close))?;
        }
        if !self.worker.serves(self.request.authority.host()) {
            let next = if is_read { after } else { next };
            return Err((Refusal::own(421, "this host is not served here"), next));
        }
        if self.request.method == Method::Purge && !self.may_purge() {
            return Err((Refusal::own(403, "this address may not purge"), after));
        }
        Ok(if is_read { Framing::None } else { framing })
    }

    fn may_purge(&self) -> bool {
        self.worker.config().purge_from.iter().any(|prefix| prefix.contains(self.client.ip()))
    }

    fn write_key(&mut self) {
        write_key(&self.request.authority, self.request.target.as_str(), &mut self.key);
    }

    /// Does what a `PURGE` asks for, and says so.
    async fn purge(&self, out: &mut Vec<u8>) -> Sent {
        let next = self.after();
        let order = Order::from_request(&self.request.fields, &self.key);
        match order.carry_out(self.worker.cache()).await {
            Ok(count) => {
                let own = Own { status: 200, content_type: "application/json", content: purge::done(count) };
                let sent = self.send_own(own, Fields::new(), CacheStatus::default(), next, out).await;
                Sent { cache: CacheResult::Purge, ..sent }
            }
            Err(TooMany) => self.refuse(&Refusal::own(503, "too many purges are in force"), next, out).await,
        }
    }

    /// What answers the request, and which part of it. What turns out to be unreadable before a byte was sent has left
    /// the cache: another look finds, or fetches, something else.
    async fn answered(&self) -> Result<(Found, Part), Refusal> {
        let mut looks = 0;
        loop {
            looks += 1;
            let mut found = answer(&self.worker, &self.key, &self.request, self.asker()).await?;
            let chosen = match self.choose(&mut found).await {
                Ok(part) => self.ready(&mut found, &part).await.map(|()| part),
                Err(failure) => Err(failure),
            };
            match chosen {
                Ok(part) => return Ok((found, part)),
                Err(Failure::Unreadable) if looks < LOOKS_MAX => {}
                Err(failure) => return Err(Refusal::failed(&failure, Forward::UriMiss)),
            }
        }
    }

    /// Waits until the first content can be sent, if that has to be read from a disk.
    async fn ready(&self, found: &mut Found, part: &Part) -> Result<(), Failure> {
        let first = match part {
            _ if self.request.method == Method::Head => return Ok(()),
            Part::Whole | Part::After(_) => &(0..u64::MAX),
            Part::Range(range) => range,
            Part::Ranges(ranges) => &ranges[0],
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => return Ok(()),
        };
        found.content.seek(first);
        found.content.ready().await
    }

    async fn reply(&self, mut found: Found, chosen: Part, after: Next, out: &mut Vec<u8>) -> Sent {
        let now_ms = now_ms();
        let length = found.length();
        let parts = match &chosen {
            Part::Ranges(ranges) => Some(Multipart::new(ranges, length, &found.head.fields)),
            _ => None,
        };
        let told = match (&chosen, &parts) {
            (Part::PreconditionFailed | Part::Unsatisfiable(_), _) => fields_of_error(&found.head.fields),
            (_, Some(parts)) => parts.fields(&found.head.fields),
            _ => Fields::new(),
        };
        let is_whole = matches!(chosen, Part::Whole | Part::After(_));
        let (status, fields, content, content_range) = match chosen {
            Part::Whole | Part::After(_) => {
                (found.head.status, &found.head.fields, 0..length.unwrap_or(u64::MAX), None)
            }
            Part::Range(part) => {
                let field = range::content_range(&part, length);
                (206, &found.head.fields, part, Some(field))
            }
            Part::Ranges(_) => (206, &told, 0..parts.as_ref().map_or(0, Multipart::length), None),
            Part::NotModified => (304, &found.head.fields, 0..0, None),
            Part::PreconditionFailed => (412, &told, 0..0, None),
            Part::Unsatisfiable(length) => (416, &told, 0..0, Some(range::unsatisfied_range(length))),
        };
        let trailers =
            is_whole && self.request.method != Method::Head && trailer::are_accepted(&self.request.fields);
        let ends = content.end < u64::MAX;
        let bodyless = status::is_bodyless(status);
        let (delimited, next) = match self.delimited(&content, trailers && found.content.trailer().is_some())
        {
            _ if bodyless => (Delimited::None, after),
            Delimited::Close => (Delimited::Close, Next::Close),
            delimited => (delimited, after),
        };
        let head = ReplyHead {
            status,
            fields,
            own: found.own.then_some(&found.head.withheld),
            age_s: found.age_s(now_ms),
            delimited,
            content_range,
            cache_status: found.status(now_ms),
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(out);
        let mut sent = Sent { status, cache: found.cache, bytes: 0, first_byte: None, cut: None, next };
        if delimited == Delimited::Close {
            self.set_reset_on_close(true);
        }
        let mut sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let headless = self.request.method == Method::Head
            || bodyless
            || content.is_empty() && delimited != Delimited::Chunked;
        let result = if headless {
            sender.head(out, false).await.map_err(cut_of)
        } else if let Some(parts) = parts {
            send_parts(&mut sender, out, &mut found, &parts, &mut sent).await
        } else {
            found.content.seek(&content);
            let left = ends.then(|| content.end - content.start);
            let content = (left, delimited, trailers);
            send_content(&mut sender, out, &mut found, content, &mut sent).await
        };
        sent.first_byte = sender.first_byte();
        if let Content::Sliced(sliced) = &found.content
            && sent.cache == CacheResult::Hit
            && !sliced.all_stored()
        {
            // Known only now.
            sent.cache = CacheResult::Miss;
        }
        match result {
            Ok(()) if delimited == Delimited::Close => self.set_reset_on_close(false),
            Ok(()) => {}
            Err(cut) => {
                sent.cut = Some(cut);
                sent.next = Next::Close;
            }
        }
        sent
    }

    /// How content of which `content` goes out is delimited. Only the chunked coding can carry a `trailer` that is stored.
    fn delimited(&self, content: &Range<u64>, trailer: bool) -> Delimited {
        match self.request.version {
            Version::Http11 if trailer => Delimited::Chunked,
            _ if content.end < u64::MAX => Delimited::Length(content.end - content.start),
            _ if self.request.method == Method::Head => Delimited::None,
            Version::Http11 => Delimited::Chunked,
            Version::Http10 => Delimited::Close,
        }
    }

    /// Without a length a clean close would make a part look whole. Set before the first byte, it holds also
    /// where the process stops and this task is dropped in the middle.
    fn set_reset_on_close(&self, reset: bool) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(reset.then_some(Duration::ZERO));
    }

    /// Which part of what was found answers the request; waits where that cannot be known yet.
    async fn choose(&self, found: &mut Found) -> Result<Part, Failure> {
        if found.verbatim {
            return Ok(Part::Whole);
        }
        loop {
            match part(&self.request, &found.head, found.content.progress()) {
                // What is passed cannot be read twice: all of it is an answer as well (RFC 9110 §14.2).
                Part::After(_) | Part::Ranges(_) if found.head.private.is_some() => return Ok(Part::Whole),
                // Each may need slices of its own: the first of them are an answer as well (RFC 9110 §15.3.7).
                Part::Ranges(mut ranges) if matches!(found.content, Content::Sliced(_)) => {
                    ranges.truncate(SLICED_RANGES_MAX);
                    return Ok(if ranges.len() == 1 {
                        Part::Range(ranges.swap_remove(0))
                    } else {
                        Part::Ranges(ranges)
                    });
                }
                Part::After(offset) => found.content.arrived(offset).await?,
                part => return Ok(part),
            }
        }
    }

    /// A response of our own.
    async fn refuse(&self, refusal: &Refusal, next: Next, out: &mut Vec<u8>) -> Sent {
        let mut fields = Fields::new();
        // Players come from other origins. An error says nothing that any client could not be told, and a player
        // that cannot read the status cannot tell a bad range from a dead edge.
        fields.push("Access-Control-Allow-Origin", "*");
        if refusal.status == 405 {
            fields.push("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH");
        }
        let content = format!("{} {}: {}\n", refusal.status, status::reason(refusal.status), refusal.reason);
        let cache_status =
            CacheStatus { forward: refusal.forward, detail: Some(refusal.reason), ..CacheStatus::default() };
        let own = Own { status: refusal.status, content_type: "text/plain; charset=utf-8", content };
        self.send_own(own, fields, cache_status, next, out).await
    }

    async fn send_own(
        &self,
        own: Own,
        mut fields: Fields,
        cache_status: CacheStatus<'static>,
        next: Next,
        out: &mut Vec<u8>,
    ) -> Sent {
        let Own { status, content_type, content } = own;
        fields.push("Date", date::format(now_ms() / 1000));
        fields.push("Content-Type", content_type);
        fields.push("Cache-Control", "no-store");
        let head = ReplyHead {
            status,
            fields: &fields,
            own: None,
            age_s: None,
            delimited: Delimited::Length(content.len() as u64),
            content_range: None,
            cache_status,
            version: self.request.version,
            keep_alive: next == Next::Request,
        };
        head.write(out);
        let has_content = self.request.method != Method::Head;
        if has_content {
            out.extend_from_slice(content.as_bytes());
        }
        let mut sender = Sender::new(&self.stream, self.worker.timeouts().send_stall);
        let result = sender.bytes(out, false).await;
        let cut = result.err().map(cut_of);
        Sent {
            status,
            cache: CacheResult::Error,
            bytes: if has_content && cut.is_none() { content.len() as u64 } else { 0 },
            first_byte: sender.first_byte(),
            cut,
            next: if cut.is_none() { next } else { Next::Close },
        }
    }

    /// `malformed` is what could be read of a request that is none.
    fn record(&self, begun: Instant, sent: &Sent, malformed: Option<RequestLine>) {
        if !self.worker.log().is_followed() {
            return;
        }
        let mut record = sent.record(&self.request, self.client, &self.stream, begun);
        if let Some(line) = malformed {
            (record.method, record.path) = (line.method.into(), line.target);
        }
        self.worker.log().put(record);
    }
}

/// Methods that are answered from the cache.
fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

/// What an error of ours keeps of the stored head it is about: when, for whom it was chosen, and who may read it.
fn fields_of_error(stored: &Fields) -> Fields {
    const KEPT: [&str; 3] = ["date", "vary", "timing-allow-origin"];
    const KEPT_START: &[u8] = b"access-control-";
    let mut fields = Fields::new();
    for (name, value) in stored.iter() {
        let starts = name.as_bytes().get(..KEPT_START.len());
        if starts.is_some_and(|start| start.eq_ignore_ascii_case(KEPT_START))
            || KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
        {
            fields.push(name, value);
        }
    }
    fields
}

/// Head and several stretches of content, each with what stands before it.
async fn send_parts(
    sender: &mut Sender<'_>,
    head: &[u8],
    found: &mut Found,
    multipart: &Multipart,
    sent: &mut Sent,
) -> Result<(), Cut> {
    sender.head(head, true).await.map_err(cut_of)?;
    for (part_head, range) in &multipart.parts {
        found.content.seek(range);
        let left = range.end - range.start;
        let content = (Some(left), Delimited::Length(left), false);
        send_content(sender, part_head, found, content, sent).await?;
    }
    sender.bytes(&multipart.end(), false).await.map_err(cut_of)
}

/// Head and content, as it arrives. `left` is how much there will be, if known; `trailers` whether the client takes them.
async fn send_content(
    sender: &mut Sender<'_>,
    head: &[u8],
    found: &mut Found,
    (mut left, delimited, trailers): (Option<u64>, Delimited, bool),
    sent: &mut Sent,
) -> Result<(), Cut> {
    let most = |left: Option<u64>| match left {
        Some(left) => usize::try_from(left).unwrap_or(usize::MAX),
        None => CHUNK_BYTES_MAX,
    };
    let chunked = delimited == Delimited::Chunked;
    // The end goes with the last content if that is known, as the head goes with the first.
    let mut ended = false;
    match found.content.try_next(most(left)) {
        Some(Ok(Some(piece))) => {
            if chunked {
                ended = !trailers && found.content.is_at_end();
                sender.chunk(head, &piece, ended).await.map_err(cut_of)?;
            } else {
                sender.head_and_piece(head, &piece).await.map_err(cut_of)?;
            }
            sent.count(&piece, &mut left);
        }
        other => {
            sender.head(head, false).await.map_err(cut_of)?;
            other.transpose().map_err(|failure| cut_of_fill(&failure))?;
        }
    }
    while left != Some(0) && !ended {
        let next = match found.content.try_next(most(left)) {
            Some(next) => next,
            None => {
                sender.flush();
                found.content.next(most(left)).await
            }
        };
        let piece = match next {
            Ok(Some(piece)) => piece,
            Ok(None) if left.is_none() => break,
            Ok(None) => return Err(Cut::BackendFailed),
            Err(failure) => return Err(cut_of_fill(&failure)),
        };
        if chunked {
            ended = !trailers && found.content.is_at_end();
            sender.chunk(&[], &piece, ended).await.map_err(cut_of)?;
        } else {
            sender.piece(&piece).await.map_err(cut_of)?;
        }
        sent.count(&piece, &mut left);
    }
    if chunked && !ended {
        match found.content.trailer().filter(|_| trailers) {
            Some(trailer) => sender.trailer(trailer.fields()).await,
            None => sender.bytes(LAST_CHUNK, false).await,
        }
        .map_err(cut_of)?;
    }
    sender.flush();
    Ok(())
}

fn cut_of(error: io::Error) -> Cut {
    match error.kind() {
        io::ErrorKind::TimedOut => Cut::ClientStalled,
        io::ErrorKind::UnexpectedEof => Cut::StorageFailed,
        _ => Cut::ClientClosed,
    }
}

fn cut_of_fill(failure: &Failure) -> Cut {
    if *failure == Failure::Unreadable { Cut::StorageFailed } else { Cut::BackendFailed }
}

const _: () = assert!(SENDFILE_BYTES_MIN <= CHUNK_BYTES_MAX);
