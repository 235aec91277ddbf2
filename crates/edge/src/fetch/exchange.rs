//! Backend exchange: one request and its response on a backend connection (RFC 9112). Sends the
//! request, then reads the response head and the content piece by piece.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_cache::Failure;
use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::{Fields, Framing, Limits, Method, ResponseHead, framing, head, status, trailer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::upload::{AbortedBy, Upload};
use crate::backend::{Backend, BackendId, Connection, FetchTimeouts};
use crate::config::Config;
use crate::hops::via;

/// Maximum number of interim responses per request. Further ones make the response malformed.
pub(crate) const INTERIM_MAX: usize = 8;
/// Maximum number of bytes per read from a backend.
const READ_BYTES: usize = 128 * 1024;

/// Reason why an exchange failed. The backend is at fault, unless the client aborted its request
/// content.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    pub(crate) timeout: bool,
    pub(crate) reason: String,
    /// Whether the exchange failed before any response byte. On a reused connection, a retry may
    /// then succeed.
    pub(crate) before_response: bool,
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        if error.timeout { Self::BackendTimeout(error.reason) } else { Self::Backend(error.reason) }
    }
}

/// A request to a backend.
#[derive(Debug)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: Method,
    /// The complete request head.
    pub(crate) head: &'a [u8],
    /// Request content; taken once the request head has been sent.
    pub(crate) content: &'a mut Option<Upload>,
    /// Receives interim responses.
    pub(crate) interim: Option<&'a mpsc::Sender<ResponseHead>>,
}

impl OutgoingRequest<'_> {
    /// Reborrows the request for one attempt, so that it can be sent again.
    pub(crate) fn for_retry(&mut self) -> OutgoingRequest<'_> {
        OutgoingRequest { content: self.content, ..*self }
    }
}

/// A response with its content still unread.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: ResponseHead,
    connection: Connection,
    input: BytesMut,
    content: Content,
    keep_alive: bool,
    /// Trailer fields, once the content has ended.
    trailer: Fields,
    /// Request content not yet sent completely.
    upload: Option<Upload>,
    between_bytes: Duration,
}

#[derive(Debug)]
enum Content {
    Length(u64),
    Chunked(Box<Decoder>),
    UntilClose,
    Done,
}

/// Reasons why a read failed.
enum ReadError {
    Lost(io::Error),
    Timeout,
    /// The client aborted its request content.
    Client,
}

impl Exchange {
    /// Sends a request and reads the response head, which may arrive before all request content is
    /// sent.
    pub(crate) async fn start(
        connection: Connection,
        outgoing: OutgoingRequest<'_>,
        config: &Config,
    ) -> Result<Self, ExchangeError> {
        let FetchTimeouts { first_byte, between_bytes, .. } = connection.timeouts;
        let mut exchange = Self {
            head: ResponseHead::default(),
            connection,
            input: BytesMut::new(),
            content: Content::Done,
            keep_alive: true,
            trailer: Fields::new(),
            upload: None,
            between_bytes,
        };
        let mut deadline = Some(Instant::now() + first_byte);
        exchange.send_head(outgoing.head, deadline).await?;
        exchange.upload = outgoing.content.take();
        if exchange.upload.is_some() {
            // The first-byte timeout starts after the request's last byte.
            deadline = None;
        }
        exchange.read_head(&config.head, outgoing.interim, &mut deadline, first_byte).await?;
        exchange.connection.record_response();
        // Add `Via` before the head is stored: it names the received version, and the stored
        // response may later be sent in another one (RFC 9110 §7.6.3).
        exchange.head.fields.push("Via", via(exchange.head.version));
        let framing =
            framing::response_framing(outgoing.method, &exchange.head).map_err(|error| malformed(&error))?;
        exchange.keep_alive &= framing::keep_alive(exchange.head.version, &exchange.head.fields);
        exchange.content = match framing {
            Framing::None | Framing::Length(0) => Content::Done,
            Framing::Length(length) => Content::Length(length),
            Framing::Chunked => Content::Chunked(Box::default()),
            Framing::UntilClose => Content::UntilClose,
        };
        Ok(exchange)
    }

    async fn send_head(&mut self, head: &[u8], deadline: Option<Instant>) -> Result<(), ExchangeError> {
        let written = self.connection.stream.write_all(head);
        match timeout_at(deadline.unwrap_or_else(Instant::now), written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.no_head(ReadError::Lost(error), true)),
            Err(_) => Err(self.no_head(ReadError::Timeout, true)),
        }
    }

    /// Reads up to the end of the final head, and forwards interim heads.
    async fn read_head(
        &mut self,
        limits: &Limits,
        sender: Option<&mpsc::Sender<ResponseHead>>,
        deadline: &mut Option<Instant>,
        time_max: Duration,
    ) -> Result<(), ExchangeError> {
        let mut interim = 0;
        loop {
            let parsed = head::parse_response(&self.input, &mut self.head, limits);
            match parsed.map_err(|error| malformed(&error))? {
                Some(consumed) => {
                    let _ = self.input.split_to(consumed);
                    if !status::is_informational(self.head.status) {
                        return Ok(());
                    }
                    interim += 1;
                    if interim > INTERIM_MAX || self.head.status == 101 {
                        return Err(malformed(&"unexpected interim response"));
                    }
                    if let Some(sender) = sender.filter(|_| self.head.status != 100) {
                        // The queue has room for all permitted interim responses, so this fails
                        // only if the receiver is gone.
                        let _ = sender.try_send(self.head.clone());
                    }
                }
                None => {
                    let before_response = self.input.is_empty() && interim == 0;
                    match self.read(deadline, time_max).await {
                        Ok(0) => {
                            let error = ReadError::Lost(io::ErrorKind::UnexpectedEof.into());
                            return Err(self.no_head(error, before_response));
                        }
                        Ok(_) => {}
                        Err(error) => return Err(self.no_head(error, before_response)),
                    }
                }
            }
        }
    }

    /// Records a backend failure, unless a reused connection was closed while idle or the client
    /// aborted its request.
    fn no_head(&self, error: ReadError, before_response: bool) -> ExchangeError {
        let error = match error {
            ReadError::Lost(error) => lost(&error, before_response),
            ReadError::Timeout => {
                let reason = String::from("the backend took too long to respond");
                ExchangeError { timeout: true, reason, before_response: false }
            }
            ReadError::Client => return aborted_by_client(),
        };
        if !(self.connection.reused && before_response && !error.timeout) {
            self.connection.failed(&error.reason);
        }
        error
    }

    /// Reads once, sending request content until response bytes arrive. Once all content is sent,
    /// waits until `deadline`, which is set to `time_max` from now if it is unset.
    async fn read(&mut self, deadline: &mut Option<Instant>, time_max: Duration) -> Result<usize, ReadError> {
        self.input.reserve(READ_BYTES);
        let (mut reader, mut writer) = self.connection.stream.split();
        while let Some(upload) = &mut self.upload {
            tokio::select! {
                read = reader.read_buf(&mut self.input) => return read.map_err(ReadError::Lost),
                sent = upload.send(&mut writer, self.between_bytes) => match sent {
                    Ok(false) => {}
                    Ok(true) => self.upload = None,
                    Err(AbortedBy::Client) => return Err(ReadError::Client),
                    Err(AbortedBy::Backend) => {
                        self.upload = None;
                        self.keep_alive = false;
                    }
                },
            }
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + time_max);
        match timeout_at(deadline, reader.read_buf(&mut self.input)).await {
            Ok(read) => read.map_err(ReadError::Lost),
            Err(_) => Err(ReadError::Timeout),
        }
    }

    /// Returns the next piece of content, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        loop {
            if let Some(bytes) = self.buffered()? {
                return Ok(Some(bytes));
            }
            if matches!(self.content, Content::Done) {
                return Ok(None);
            }
            self.read_content().await?;
        }
    }

    /// Returns content already read from the connection, if any.
    fn buffered(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        match &mut self.content {
            Content::Length(left) if !self.input.is_empty() => {
                let piece = self.input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece as u64;
                if *left == 0 {
                    self.content = Content::Done;
                }
                Ok(Some(self.input.split_to(piece).freeze()))
            }
            Content::UntilClose if !self.input.is_empty() => Ok(Some(self.input.split().freeze())),
            Content::Chunked(decoder) => match decoder
                .decode(&self.input)
                .map_err(|error| malformed(&error))?
            {
                Step::Data { data, consumed } => Ok(Some(self.input.split_to(consumed).freeze().slice(data))),
                Step::More => {
                    self.input.clear();
                    Ok(None)
                }
                Step::Done { consumed } => {
                    let _ = self.input.split_to(consumed);
                    self.trailer = decoder.trailer().clone();
                    self.content = Content::Done;
                    Ok(None)
                }
            },
            _ => Ok(None),
        }
    }

    async fn read_content(&mut self) -> Result<(), ExchangeError> {
        match self.read(&mut None, self.between_bytes).await {
            Ok(0) if matches!(self.content, Content::UntilClose) => {
                self.content = Content::Done;
                self.keep_alive = false;
                Ok(())
            }
            Ok(0) => Err(lost(&io::ErrorKind::UnexpectedEof.into(), false)),
            Ok(_) => Ok(()),
            Err(ReadError::Lost(error)) => Err(lost(&error, false)),
            Err(ReadError::Timeout) => {
                let reason = "the backend stopped sending".into();
                Err(ExchangeError { timeout: true, reason, before_response: false })
            }
            Err(ReadError::Client) => Err(aborted_by_client()),
        }
    }

    /// Returns the backend in use.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        self.connection.backend()
    }

    /// Returns the id of the backend in use.
    pub(crate) fn backend_id(&self) -> BackendId {
        self.connection.backend_id()
    }

    /// Takes the trailer fields that may be merged or forwarded (RFC 9110 §6.5.1).
    pub(crate) fn take_trailer(&mut self) -> Fields {
        let mut trailer = std::mem::take(&mut self.trailer);
        if !trailer.is_empty() {
            trailer::remove_forbidden(&mut trailer, &self.head.fields);
        }
        trailer
    }

    /// Waits for `other` while sending request content, because some clients read no response until
    /// they have sent the whole request.
    pub(crate) async fn while_uploading<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        let (_, mut writer) = self.connection.stream.split();
        while let Some(upload) = &mut self.upload {
            tokio::select! {
                biased;
                done = &mut other => return done,
                sent = upload.send(&mut writer, self.between_bytes) => {
                    self.keep_alive &= sent.is_ok();
                    self.upload.take_if(|_| !matches!(sent, Ok(false)));
                }
            }
        }
        other.await
    }

    /// Sends the remaining request content after the response, unless the connection cannot be
    /// reused anyway.
    pub(crate) async fn send_rest(&mut self) {
        let (_, mut writer) = self.connection.stream.split();
        while let Some(upload) = self.upload.as_mut().filter(|_| self.keep_alive) {
            let sent = upload.send(&mut writer, self.between_bytes).await;
            self.keep_alive &= sent.is_ok();
            self.upload.take_if(|_| !matches!(sent, Ok(false)));
        }
    }

    /// Returns the connection if it can be reused.
    pub(crate) fn finish(self) -> Option<Connection> {
        let done = matches!(self.content, Content::Done) && self.upload.is_none();
        let clean = self.keep_alive && done && self.input.is_empty();
        clean.then_some(self.connection)
    }
}

fn aborted_by_client() -> ExchangeError {
    let reason = "the client aborted its request".into();
    ExchangeError { timeout: false, reason, before_response: false }
}

fn lost(error: &io::Error, before_response: bool) -> ExchangeError {
    let reason = format!("lost the connection to the backend: {error}");
    ExchangeError { timeout: false, reason, before_response }
}

fn malformed(error: &dyn std::fmt::Display) -> ExchangeError {
    let reason = format!("the backend's response is malformed: {error}");
    ExchangeError { timeout: false, reason, before_response: false }
}
