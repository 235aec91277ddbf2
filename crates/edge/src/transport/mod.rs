//! Transports: parse requests from the wire and write responses.
//!
//! A transport reads a request's head and runs a [session](crate::session) for it. The session
//! reads the request content through [`Incoming`] and writes the response through [`Outgoing`].
//! These traits hide all differences between HTTP versions: framing, connection persistence, flow
//! control and socket writes. A transport never decides what to send.
//!
//! - [`client`]: the client connection; common to all transports.
//! - [`socket`]: a client's TCP socket, with the client's acknowledgements.
//! - [`http1`]: HTTP/1 in clear text (RFC 9112). Content is sent by `sendfile` or a joined write.
//!
//! Content is passed as [`Piece`]s, which are in memory or in a file. A transport that cannot use
//! `sendfile` borrows a piece's bytes; it never copies content into a buffer that outlives the
//! call.

use std::time::{Duration, Instant};

use thalweg_cache::Piece;
use thalweg_cache::fill::Trailer;
use thalweg_http::Fields;
use thalweg_http::ResponseHead;
use thalweg_http::cache_status::CacheStatus;
use thalweg_record::Cut;
use tokio::net::TcpStream;

use crate::fetch::upload::{NotWanted, Source};
use crate::refusal::Refusal;
use socket::{Socket, Span};

pub(crate) mod client;
pub(crate) mod http1;
pub(crate) mod socket;

/// A response head, independent of its wire format.
#[derive(Debug)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) status: u16,
    /// Reason phrase, if it differs from the standard phrase for the status.
    pub(crate) reason: Option<&'a str>,
    /// Fields to send, without `Content-Length`.
    pub(crate) fields: &'a Fields,
    /// Whether the fields come from a policy. A 304 then sends all of them, as in Varnish.
    pub(crate) by_policy: bool,
    /// Fields sent only to the client that caused the fetch.
    pub(crate) withheld: Option<&'a Fields>,
    pub(crate) age_s: Option<u64>,
    /// Content length in bytes, if known.
    pub(crate) length: Option<u64>,
    /// Whether a trailer section follows, if the transport [can carry
    /// one](Outgoing::carries_trailers).
    pub(crate) has_trailer: bool,
    pub(crate) content_range: Option<&'a str>,
    /// `Cache-Status` to add; `None` if the fields already contain it.
    pub(crate) cache_status: Option<CacheStatus<'a>>,
    /// Whether the connection closes after this response.
    pub(crate) closes: bool,
}

/// The response side of one exchange.
///
/// [`begin`](Self::begin) and [`buffer`](Self::buffer) only collect bytes. The collected bytes are
/// sent with the first piece, on [`flush`](Self::flush), or at the [end](Self::finish). A response
/// dropped before [`finish`](Self::finish) is cut in a way that the client can detect.
pub(crate) trait Outgoing: Send {
    /// Returns the connection's socket.
    fn socket(&self) -> &Socket;

    /// Returns whether a trailer section can follow the content.
    fn carries_trailers(&self) -> bool;

    /// Sends 100 Continue. If that fails, the next write reports an error.
    fn proceed(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends an interim response if the client's HTTP version supports them. If only part of it can
    /// be sent, the connection closes, because later bytes would be read as its continuation.
    fn interim(&mut self, head: &ResponseHead) -> impl Future<Output = ()> + Send;

    /// Starts the response.
    fn begin(&mut self, head: &ReplyHead<'_>);

    /// Appends generated content to a response of known length.
    fn buffer(&mut self, bytes: &[u8]);

    /// Sends a piece of content. If `is_last`, no further piece may follow.
    fn piece(&mut self, piece: &Piece, is_last: bool) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Sends everything collected so far. Must be called before waiting for content.
    fn flush(&mut self) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Ends the response, with `trailer` if given.
    fn finish(&mut self, trailer: Option<&Trailer>) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Returns whether the connection closes after this response.
    fn closes(&self) -> bool;

    /// Returns how many content bytes of the pieces the kernel has accepted.
    fn content_bytes(&self) -> u64;

    /// Returns when the kernel accepted the first byte of the response.
    fn first_byte(&self) -> Option<Instant>;

    /// Returns the response's bytes on the wire, if their delivery is measured.
    fn span(&self) -> Option<Span>;
}

/// The request side of one exchange.
pub(crate) trait Incoming: Send {
    /// Reads and discards the content. Returns `false` if it is longer than `bytes_max`.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is malformed or late; the connection cannot be used for
    /// further requests.
    fn discard(
        &mut self,
        bytes_max: u64,
        time_max: Duration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// Returns whether some content has arrived, which means that the client does not wait for 100
    /// Continue.
    fn has_arrived(&self) -> bool;

    /// Passes content to the fetch as it arrives, at the rate at which the fetch accepts it. The
    /// client may pause for at most `stall`.
    fn upload(
        &mut self,
        source: Source,
        stall: Duration,
    ) -> impl Future<Output = Result<(), UploadError>> + Send;

    /// Connects the client to `backend`: sends `head`, then copies bytes in both directions until
    /// both sides have ended, one fails, or the pipe is idle for too long.
    fn pipe(&mut self, backend: &mut TcpStream, head: Vec<u8>) -> impl Future<Output = Piped> + Send;
}

/// Reasons why an upload of request content ended early.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// The client is at fault.
    Refused(Refusal),
    /// The fetch accepts no more content.
    NotWanted,
}

impl From<NotWanted> for UploadError {
    fn from(_: NotWanted) -> Self {
        Self::NotWanted
    }
}

/// Outcome of a pipe.
#[derive(Debug)]
pub(crate) struct Piped {
    /// Number of bytes written to the client.
    pub(crate) bytes: u64,
    pub(crate) cut: Option<Cut>,
}
