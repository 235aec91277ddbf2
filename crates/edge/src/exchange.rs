//! One request and its response on a backend's connection (RFC 9112): head out, head in, content in pieces.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::{Fields, Framing, Limits, Method, ResponseHead, framing, head, status, trailer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, BackendId, Connection, FetchTimeouts};
use crate::config::Config;
use crate::hops::via;
use crate::interim::INTERIM_MAX;
use crate::upload::{Broken, Upload};

/// Bytes read from a backend at a time.
const READ_BYTES: usize = 128 * 1024;

/// Why an exchange came to nothing. The backend's side, but for what the client breaks off.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    pub(crate) timeout: bool,
    pub(crate) reason: String,
    /// Nothing of a response had come: on a connection that was used before, worth another try.
    pub(crate) before_response: bool,
}

/// What is sent to a backend.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    /// The whole head.
    pub(crate) head: &'a [u8],
    /// The content; taken once the head has gone out.
    pub(crate) content: &'a mut Option<Upload>,
    /// Who hears of interim responses.
    pub(crate) interim: Option<&'a mpsc::Sender<ResponseHead>>,
}

impl Outgoing<'_> {
    /// The same, for another try.
    pub(crate) fn again(&mut self) -> Outgoing<'_> {
        Outgoing { content: self.content, ..*self }
    }
}

/// A response whose content is still to be read.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: ResponseHead,
    connection: Connection,
    input: BytesMut,
    content: Content,
    keep_alive: bool,
    /// Fields after the content, once that has ended.
    trailer: Fields,
    /// Content of the request that has not gone out.
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

/// Why nothing was read.
enum ReadError {
    Lost(io::Error),
    Timeout,
    /// The client broke off the content of its request.
    Client,
}

impl Exchange {
    /// Sends a request and reads the head of its response, which may come before all of its content has gone out.
    pub(crate) async fn start(
        connection: Connection,
        outgoing: Outgoing<'_>,
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
            // The backend's time counts from the request's last byte.
            deadline = None;
        }
        exchange.read_head(&config.head, outgoing.interim, &mut deadline, first_byte).await?;
        exchange.connection.answered();
        // Kept with it: what is stored goes on in another version than it came in (RFC 9110 §7.6.3).
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

    /// Reads up to the end of the final head. Interim ones go to who wants them.
    async fn read_head(
        &mut self,
        limits: &Limits,
        told: Option<&mpsc::Sender<ResponseHead>>,
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
                    if let Some(told) = told.filter(|_| self.head.status != 100) {
                        // The queue has room for as many as there may be; who has left needs none.
                        let _ = told.try_send(self.head.clone());
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

    /// That an idle connection was closed meanwhile says nothing against the backend; all else but the client's own
    /// doing does.
    fn no_head(&self, error: ReadError, before_response: bool) -> ExchangeError {
        let error = match error {
            ReadError::Lost(error) => lost(&error, before_response),
            ReadError::Timeout => {
                let reason = String::from("the backend took too long to answer");
                ExchangeError { timeout: true, reason, before_response: false }
            }
            ReadError::Client => return broken_off(),
        };
        if !(self.connection.reused && before_response && !error.timeout) {
            self.connection.failed(&error.reason);
        }
        error
    }

    /// Reads once. Until there is something to read, content of the request goes out; only then `time_max` counts, or
    /// what is left of it until `deadline`.
    async fn read(&mut self, deadline: &mut Option<Instant>, time_max: Duration) -> Result<usize, ReadError> {
        self.input.reserve(READ_BYTES);
        let (mut reader, mut writer) = self.connection.stream.split();
        while let Some(upload) = &mut self.upload {
            tokio::select! {
                read = reader.read_buf(&mut self.input) => return read.map_err(ReadError::Lost),
                sent = upload.send(&mut writer, self.between_bytes) => match sent {
                    Ok(false) => {}
                    Ok(true) => self.upload = None,
                    Err(Broken::Client) => return Err(ReadError::Client),
                    Err(Broken::Backend) => {
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

    /// The next content, or `None` at its end.
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

    /// Content that has been read already.
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
            Err(ReadError::Client) => Err(broken_off()),
        }
    }

    /// The backend itself.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        self.connection.backend()
    }

    /// Where it takes place.
    pub(crate) fn backend_id(&self) -> BackendId {
        self.connection.backend_id()
    }

    /// What came after the content and may be told (RFC 9110 §6.5.1).
    pub(crate) fn take_trailer(&mut self) -> Fields {
        let mut trailer = std::mem::take(&mut self.trailer);
        if !trailer.is_empty() {
            trailer::remove_forbidden(&mut trailer, &self.head.fields);
        }
        trailer
    }

    /// Waits for `other` while content of the request goes out: a client may read nothing before it has sent all.
    pub(crate) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
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

    /// Sends what is left of the request's content after its response, unless the backend wants no more.
    pub(crate) async fn send_rest(&mut self) {
        let (_, mut writer) = self.connection.stream.split();
        while let Some(upload) = self.upload.as_mut().filter(|_| self.keep_alive) {
            let sent = upload.send(&mut writer, self.between_bytes).await;
            self.keep_alive &= sent.is_ok();
            self.upload.take_if(|_| !matches!(sent, Ok(false)));
        }
    }

    /// The connection, if it can carry another exchange.
    pub(crate) fn finish(self) -> Option<Connection> {
        let done = matches!(self.content, Content::Done) && self.upload.is_none();
        let clean = self.keep_alive && done && self.input.is_empty();
        clean.then_some(self.connection)
    }
}

fn broken_off() -> ExchangeError {
    let reason = "the client broke off its request".into();
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
