//! HTTP/1 responses (RFC 9112): writes heads, delimits content, and decides whether the connection
//! closes.
//!
//! **Invariant:** cutting a response that is delimited by the end of the connection resets the
//! connection.

use std::io;
use std::time::{Duration, Instant};

use thalweg_cache::Piece;
use thalweg_cache::fill::Trailer;
use thalweg_http::chunked::{LAST_CHUNK, SIZE_LINE_BYTES, encode_size};
use thalweg_http::{Fields, ResponseHead, Version, number, status, write};
use thalweg_record::Cut;

use super::send::Sender;
use crate::CACHE_NAME;
use crate::transport::socket::{Socket, Span};
use crate::transport::{Outgoing, ReplyHead};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How response content is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimited {
    /// No content, and no `Content-Length`.
    None,
    /// By `Content-Length`; for HEAD, the length of the GET response.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection (HTTP/1.0).
    Close,
}

/// Properties of a request that determine the form of its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestForm {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// Whether the client wants the connection to stay open.
    pub(super) keeps_alive: bool,
}

/// The response of one exchange.
#[derive(Debug)]
pub(super) struct Response<'c> {
    socket: &'c Socket,
    stall: Duration,
    sender: Sender<'c>,
    /// Bytes held back, to be sent together with the next ones.
    pending: &'c mut Vec<u8>,
    request: RequestForm,
    delimited: Delimited,
    closes: bool,
    /// Whether the last chunk was sent with the last piece.
    has_ended: bool,
    is_finished: bool,
    /// Number of content bytes that the kernel has accepted.
    content_bytes: u64,
    measure: Measure,
}

/// Whether and how a response's delivery is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// Minimum size of measured responses, in bytes; `None` if responses are not measured.
    pub(super) bytes_min: Option<u64>,
    /// Whether the path's state at the start must be read.
    pub(super) needs_state: bool,
}

impl<'c> Response<'c> {
    /// Creates a response to be written to `socket`. The response is cut if the client accepts no
    /// byte for `stall`. `pending` is a scratch buffer.
    pub(super) fn new(
        socket: &'c Socket,
        stall: Duration,
        pending: &'c mut Vec<u8>,
        request: RequestForm,
        measure: Measure,
    ) -> Self {
        pending.clear();
        Self {
            socket,
            stall,
            sender: Sender::new(socket, stall),
            pending,
            request,
            delimited: Delimited::None,
            closes: !request.keeps_alive,
            has_ended: false,
            is_finished: false,
            content_bytes: 0,
            measure,
        }
    }

    /// Selects how to delimit the content. A trailer section requires the chunked coding.
    fn delimit(&self, head: &ReplyHead<'_>) -> Delimited {
        match self.request.version {
            _ if status::is_bodyless(head.status) => Delimited::None,
            Version::Http11 if head.has_trailer => Delimited::Chunked,
            _ if let Some(length) = head.length => Delimited::Length(length),
            _ if self.request.is_head => Delimited::None,
            Version::Http11 => Delimited::Chunked,
            Version::Http10 => Delimited::Close,
        }
    }

    /// Sets whether closing resets the connection. Without a length, a clean close would make a
    /// partial response look complete. Must be set before the first byte, to also cover a stopped
    /// process or a dropped task.
    fn set_reset_on_close(&self, reset: bool) {
        let _ =
            self.socket.with_fd(|fd| socket2::SockRef::from(&fd).set_linger(reset.then_some(Duration::ZERO)));
    }

    async fn send_pending(&mut self, is_last: bool) -> Result<(), Cut> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let sent = self.sender.bytes(self.pending, false, is_last).await;
        self.pending.clear();
        sent.map_err(|error| cut_of(&error))
    }
}

impl Outgoing for Response<'_> {
    fn socket(&self) -> &Socket {
        self.socket
    }

    fn carries_trailers(&self) -> bool {
        self.request.version == Version::Http11
    }

    async fn proceed(&mut self) {
        send_interim(self.socket, self.stall, CONTINUE).await;
    }

    async fn interim(&mut self, head: &ResponseHead) {
        if self.request.version == Version::Http11 {
            let mut out = Vec::new();
            write::write_response_head(&mut out, head.status, &head.fields);
            send_interim(self.socket, self.stall, &out).await;
        }
    }

    fn begin(&mut self, head: &ReplyHead<'_>) {
        self.delimited = self.delimit(head);
        self.closes |= head.closes || self.delimited == Delimited::Close;
        write_head(self.pending, head, self.delimited, self.request.version, self.closes);
        if self.delimited == Delimited::Close {
            self.set_reset_on_close(true);
        }
        let is_large = |bytes_min| match self.delimited {
            Delimited::Length(length) => length >= bytes_min,
            Delimited::Chunked => true,
            // The last byte is not known before the connection ends.
            Delimited::None | Delimited::Close => false,
        };
        if !self.request.is_head && self.measure.bytes_min.is_some_and(is_large) {
            self.sender.measure(self.measure.needs_state);
        }
    }

    fn buffer(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    async fn piece(&mut self, piece: &Piece, is_last: bool) -> Result<(), Cut> {
        let size_line_bytes = match self.delimited {
            Delimited::Chunked => encode_size(piece.len() as u64, &mut [0; SIZE_LINE_BYTES]).len(),
            Delimited::None | Delimited::Length(_) | Delimited::Close => 0,
        };
        let content_start = self.socket.written() + (self.pending.len() + size_line_bytes) as u64;
        let sent = match self.delimited {
            Delimited::Chunked => {
                self.has_ended = is_last;
                self.sender.chunk(self.pending, piece, is_last).await
            }
            _ if self.pending.is_empty() => self.sender.piece(piece, is_last).await,
            _ => self.sender.head_and_piece(self.pending, piece, is_last).await,
        };
        // If the client has disconnected, the kernel may have accepted only a part of the piece.
        let accepted = self.socket.written().saturating_sub(content_start);
        self.content_bytes += accepted.min(piece.len() as u64);
        self.pending.clear();
        sent.map_err(|error| cut_of(&error))
    }

    async fn flush(&mut self) -> Result<(), Cut> {
        self.send_pending(false).await?;
        self.sender.flush();
        self.sender.wait_for_content();
        Ok(())
    }

    async fn finish(&mut self, trailer: Option<&Trailer>) -> Result<(), Cut> {
        let is_open = self.delimited == Delimited::Chunked && !self.has_ended && !self.request.is_head;
        match trailer.filter(|_| is_open) {
            Some(trailer) => {
                self.send_pending(false).await?;
                self.sender.trailer(trailer.fields()).await.map_err(|error| cut_of(&error))?;
            }
            None if is_open => self.pending.extend_from_slice(LAST_CHUNK),
            None => {}
        }
        self.send_pending(true).await?;
        self.sender.flush();
        if self.delimited == Delimited::Close {
            self.set_reset_on_close(false);
        }
        self.is_finished = true;
        Ok(())
    }

    fn closes(&self) -> bool {
        self.closes || !self.is_finished
    }

    fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    fn first_byte(&self) -> Option<Instant> {
        self.sender.first_byte()
    }

    fn span(&self) -> Option<Span> {
        let bytes_min = self.measure.bytes_min?;
        // Without a requested timestamp, the delivery of a complete response is unknown.
        if self.is_finished && !self.sender.has_stamped() {
            return None;
        }
        self.sender.span().filter(|span| span.end - span.start >= bytes_min)
    }
}

/// Sends an interim response through a separate sender, so that its first byte does not count as
/// that of the final response.
async fn send_interim(socket: &Socket, stall: Duration, interim: &[u8]) {
    if Sender::new(socket, stall).bytes(interim, false, false).await.is_err() {
        let _ = socket.with_fd(|fd| socket2::SockRef::from(&fd).shutdown(std::net::Shutdown::Both));
    }
}

fn cut_of(error: &io::Error) -> Cut {
    match error.kind() {
        io::ErrorKind::TimedOut => Cut::ClientStalled,
        io::ErrorKind::UnexpectedEof => Cut::StorageFailed,
        _ => Cut::ClientClosed,
    }
}

/// Writes `head` to `out`.
fn write_head(out: &mut Vec<u8>, head: &ReplyHead<'_>, delimited: Delimited, version: Version, closes: bool) {
    out.extend_from_slice(b"HTTP/1.1 ");
    number::write(out, u64::from(head.status));
    out.push(b' ');
    // A stored reason phrase contains no control characters, so it cannot end the line.
    out.extend_from_slice(status::phrase(head.status, head.reason).as_bytes());
    out.extend_from_slice(b"\r\n");
    if head.status == 304 && !head.by_policy {
        write_fields_of_304(out, head.fields);
    } else {
        out.extend_from_slice(head.fields.text());
        out.extend_from_slice(head.withheld.map_or(&[], Fields::text));
    }
    if let Some(age_s) = head.age_s {
        line(out, b"Age: ", |out| number::write(out, age_s));
    }
    match delimited {
        Delimited::Length(length) => line(out, b"Content-Length: ", |out| number::write(out, length)),
        Delimited::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Delimited::None | Delimited::Close => {}
    }
    if let Some(content_range) = head.content_range {
        line(out, b"Content-Range: ", |out| out.extend_from_slice(content_range.as_bytes()));
    }
    if let Some(cache_status) = &head.cache_status {
        line(out, b"Cache-Status: ", |out| cache_status.write(CACHE_NAME, out));
    }
    match (closes, version) {
        (true, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (false, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, Version::Http11) => {}
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes `Via` and the fields that update a stored response (RFC 9110 §15.4.5).
fn write_fields_of_304(out: &mut Vec<u8>, fields: &Fields) {
    const KEPT: [&str; 8] =
        ["cache-control", "content-location", "date", "etag", "expires", "last-modified", "vary", "via"];
    // Without the CORS fields, a page from another web origin could not read the other fields.
    const FOR_PAGES: &str = "access-control-";
    for (name, value) in fields.iter() {
        let for_pages =
            name.get(..FOR_PAGES.len()).is_some_and(|start| start.eq_ignore_ascii_case(FOR_PAGES));
        if for_pages || KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name)) {
            out.extend_from_slice(name.as_bytes());
            line(out, b": ", |out| out.extend_from_slice(value));
        }
    }
}

fn line(out: &mut Vec<u8>, start: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(start);
    value(out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
