//! Transports: parse requests from the wire and write their responses.
//!
//! A transport reads a request's head, runs a [session](crate::session) for it, and gives the
//! session two ends: [`Incoming`] for the request content and [`Outgoing`] for the response. These
//! two traits hide all differences between HTTP/1 and other versions: framing, connection
//! persistence, flow control, and how bytes reach the socket. A transport never decides what to
//! send.
//!
//! - [`client`]: the client connection, common to all transports.
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

pub(crate) mod client;
pub(crate) mod http1;

/// A response head, not yet in its wire form.
#[derive(Debug)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) status: u16,
    /// Reason phrase, if it differs from the status's standard one.
    pub(crate) reason: Option<&'a str>,
    /// Fields to send, without `Content-Length`.
    pub(crate) fields: &'a Fields,
    /// Whether the fields come from a policy: a 304 then sends all of them, as in Varnish.
    pub(crate) by_policy: bool,
    /// Fields sent only to this client and not stored.
    pub(crate) withheld: Option<&'a Fields>,
    pub(crate) age_s: Option<u64>,
    /// Content length in bytes, if known.
    pub(crate) length: Option<u64>,
    /// Whether a trailer section follows, if the transport [can carry
    /// one](Outgoing::carries_trailers).
    pub(crate) has_trailer: bool,
    pub(crate) content_range: Option<&'a str>,
    /// The `Cache-Status` to add; `None` if the fields already contain one.
    pub(crate) cache_status: Option<CacheStatus<'a>>,
    /// Whether the connection ends with this response.
    pub(crate) closes: bool,
}

/// The response end of one exchange.
///
/// [`begin`](Self::begin) and [`buffer`](Self::buffer) only collect bytes. The collected bytes are
/// sent with the first piece, on [`flush`](Self::flush), or at the [end](Self::finish). An
/// unfinished response is cut so that the client notices.
pub(crate) trait Outgoing: Send {
    /// Returns the connection's socket.
    fn socket(&self) -> &TcpStream;

    /// Whether a trailer section can follow the content.
    fn carries_trailers(&self) -> bool;

    /// Sends 100 Continue. A failure surfaces at the next write.
    fn proceed(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends an interim response, if the client's HTTP version has them. If only part of it can be
    /// sent, the connection ends, because later bytes would be read as its continuation.
    fn interim(&mut self, head: &ResponseHead) -> impl Future<Output = ()> + Send;

    /// Starts the response.
    fn begin(&mut self, head: &ReplyHead<'_>);

    /// Appends generated content to a response of known length.
    fn buffer(&mut self, bytes: &[u8]);

    /// Sends a piece of content. `is_last` promises that nothing follows.
    fn piece(&mut self, piece: &Piece, is_last: bool) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Sends everything collected so far. Must be called before waiting for content.
    fn flush(&mut self) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Ends the response.
    fn finish(&mut self, trailer: Option<&Trailer>) -> impl Future<Output = Result<(), Cut>> + Send;

    /// Whether the connection ends with this response.
    fn closes(&self) -> bool;

    /// Returns when the kernel accepted the first byte of the response.
    fn first_byte(&self) -> Option<Instant>;
}

/// The request end of one exchange.
pub(crate) trait Incoming: Send {
    /// Reads and discards the content; returns `false` if it is longer than `bytes_max`.
    ///
    /// # Errors
    /// If the content is malformed or late. The connection is then out of sync.
    fn discard(
        &mut self,
        bytes_max: u64,
        time_max: Duration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// Whether some content has arrived. Such a client does not wait for 100 Continue.
    fn has_arrived(&self) -> bool;

    /// Passes arriving content to the fetch, as fast as the fetch accepts it. The client may pause
    /// for at most `stall`.
    fn upload(
        &mut self,
        source: Source,
        stall: Duration,
    ) -> impl Future<Output = Result<(), UploadError>> + Send;

    /// Connects the client to `backend`: sends `head`, then copies bytes both ways until both sides
    /// have ended or one fails.
    fn pipe(&mut self, backend: &mut TcpStream, head: Vec<u8>) -> impl Future<Output = Piped> + Send;
}

/// Reasons why request content did not reach its fetch completely.
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
    /// Bytes written to the client.
    pub(crate) bytes: u64,
    pub(crate) cut: Option<Cut>,
}
