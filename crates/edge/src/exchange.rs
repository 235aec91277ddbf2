//! One request and its response on a backend's connection (RFC 9112): head out, head in, content in pieces.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::{Framing, Limits, Method, ResponseHead, framing, head, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::backend::Connection;
use crate::config::Config;

/// Bytes read from a backend at a time.
const READ_BYTES: usize = 128 * 1024;
/// Interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 8;

/// Why an exchange came to nothing. Always the backend's side.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    pub(crate) timeout: bool,
    pub(crate) reason: String,
    /// Nothing of a response had come: on a connection that was used before, worth another try.
    pub(crate) before_response: bool,
}

/// A response whose content is still to be read.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: ResponseHead,
    connection: Connection,
    input: BytesMut,
    content: Content,
    keep_alive: bool,
    between_bytes: Duration,
}

#[derive(Debug)]
enum Content {
    Length(u64),
    Chunked(Box<Decoder>),
    UntilClose,
    Done,
}

impl Exchange {
    /// Sends `request`, a whole head, and reads the head of its response.
    pub(crate) async fn start(
        mut connection: Connection,
        method: Method,
        request: &[u8],
        config: &Config,
    ) -> Result<Self, ExchangeError> {
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let response = async {
            let written = connection.stream.write_all(request).await;
            written.map_err(|error| lost_before_head(&connection, &error, true))?;
            read_head(&mut connection, &mut input, &config.head).await
        };
        let head = match timeout(config.timeouts.first_byte, response).await {
            Ok(head) => head?,
            Err(_) => {
                let reason = String::from("the backend took too long to answer");
                connection.failed(&reason);
                return Err(ExchangeError { timeout: true, reason, before_response: false });
            }
        };
        connection.answered();
        let framing = framing::response_framing(method, &head).map_err(|error| malformed(&error))?;
        let keep_alive = framing::keep_alive(head.version, &head.fields);
        let content = match framing {
            Framing::None | Framing::Length(0) => Content::Done,
            Framing::Length(length) => Content::Length(length),
            Framing::Chunked => Content::Chunked(Box::default()),
            Framing::UntilClose => Content::UntilClose,
        };
        Ok(Self {
            head,
            connection,
            input,
            content,
            keep_alive,
            between_bytes: config.timeouts.between_bytes,
        })
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
            self.read().await?;
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
                    self.content = Content::Done;
                    Ok(None)
                }
            },
            _ => Ok(None),
        }
    }

    async fn read(&mut self) -> Result<(), ExchangeError> {
        self.input.reserve(READ_BYTES);
        let read = self.connection.stream.read_buf(&mut self.input);
        match timeout(self.between_bytes, read).await {
            Ok(Ok(0)) if matches!(self.content, Content::UntilClose) => {
                self.content = Content::Done;
                self.keep_alive = false;
                Ok(())
            }
            Ok(Ok(0)) => Err(lost(&io::ErrorKind::UnexpectedEof.into(), false)),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(lost(&error, false)),
            Err(_) => {
                let reason = "the backend stopped sending".into();
                Err(ExchangeError { timeout: true, reason, before_response: false })
            }
        }
    }

    /// The connection, if it can carry another exchange.
    pub(crate) fn finish(self) -> Option<Connection> {
        let clean = self.keep_alive && matches!(self.content, Content::Done) && self.input.is_empty();
        clean.then_some(self.connection)
    }
}

async fn read_head(
    connection: &mut Connection,
    input: &mut BytesMut,
    limits: &Limits,
) -> Result<ResponseHead, ExchangeError> {
    let mut response = ResponseHead::default();
    let mut interim = 0;
    loop {
        match head::parse_response(input, &mut response, limits).map_err(|error| malformed(&error))? {
            Some(consumed) => {
                let _ = input.split_to(consumed);
                if !status::is_informational(response.status) {
                    return Ok(response);
                }
                interim += 1;
                if interim > INTERIM_MAX || response.status == 101 {
                    return Err(malformed(&"unexpected interim response"));
                }
            }
            None => {
                let before_response = input.is_empty() && interim == 0;
                match connection.stream.read_buf(input).await {
                    Ok(0) => {
                        let error = io::ErrorKind::UnexpectedEof.into();
                        return Err(lost_before_head(connection, &error, before_response));
                    }
                    Ok(_) => {}
                    Err(error) => return Err(lost_before_head(connection, &error, before_response)),
                }
            }
        }
    }
}

/// That an idle connection was closed meanwhile says nothing against the backend; all else does.
fn lost_before_head(connection: &Connection, error: &io::Error, before_response: bool) -> ExchangeError {
    let error = lost(error, before_response);
    if !(connection.reused && before_response) {
        connection.failed(&error.reason);
    }
    error
}

fn lost(error: &io::Error, before_response: bool) -> ExchangeError {
    let reason = format!("lost the connection to the backend: {error}");
    ExchangeError { timeout: false, reason, before_response }
}

fn malformed(error: &dyn std::fmt::Display) -> ExchangeError {
    let reason = format!("the backend's response is malformed: {error}");
    ExchangeError { timeout: false, reason, before_response: false }
}
