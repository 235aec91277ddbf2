//! Incremental parser of one response: head, framing, content and chunks. It does no I/O:
//! [`Response::want`] returns the next step for the connection.
//!
//! **Invariant:** only the framing determines when a response is complete. Bytes after its end are
//! an error.

use std::time::Instant;

use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::framing::{keep_alive, response_framing};
use thalweg_http::head::{HEAD_BYTES_MAX, parse_response};
use thalweg_http::range::{ContentRange, parse_content_range};
use thalweg_http::{Framing, Limits, Method, ResponseHead, status};

use super::{ErrorKind, Failure};

/// Maximum informational responses before the final one.
pub const INFORMATIONAL_MAX: u32 = 8;
/// Minimum bytes left in a chunk for which a separate system call to discard them pays off.
const DISCARD_BYTES_MIN: u64 = 16 * 1024;

/// Receiver of a response; the default methods ignore everything.
pub trait Sink {
    /// Receives the head, from which the sink can decide whether it needs the content. An error
    /// aborts the exchange.
    ///
    /// # Errors
    ///
    /// Returns an error if the sink rejects the head.
    fn head(&mut self, _head: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns whether [`read`](Self::read) needs the content; otherwise the kernel discards most
    /// of it.
    fn is_reading(&self) -> bool {
        false
    }

    /// Receives more content, in order; not called for discarded content.
    ///
    /// # Errors
    ///
    /// Returns an error if the sink rejects the content.
    fn read(&mut self, _bytes: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    /// Called when content bytes have arrived, whether read or discarded.
    fn arrived(&mut self, _at: Instant, _bytes: u64) {}

    /// Called when a chunk of the chunked coding is complete.
    fn chunk(&mut self, _at: Instant) {}
}

/// A sink that ignores everything.
#[derive(Debug)]
pub struct Unread;

impl Sink for Unread {}

/// Next step that the connection must take for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Read bytes and pass them to [`Response::receive`].
    Bytes,
    /// Discard at most this many bytes and report them to [`Response::discarded`].
    Discard(u64),
    /// Nothing: the response is complete.
    Nothing,
}

/// Checks that a response contains the requested bytes, `first` to `last`. Returns the complete
/// length, if the response states it.
///
/// # Errors
///
/// Returns a failure of kind [`ErrorKind::Range`] if the response contains other bytes or no range.
pub fn check_range(head: &ResponseHead, first: u64, last: u64) -> Result<Option<u64>, Failure> {
    let got = match (head.status, head.fields.get("content-range").and_then(parse_content_range)) {
        (206, Some(ContentRange { range: Some(range), length })) => {
            let end = length.map_or(last + 1, |length| length.min(last + 1));
            if (range.start, range.end) == (first, end) {
                return Ok(length);
            }
            format!("{} to {}", range.start, range.end - 1)
        }
        (status, _) => format!("{status} without a range"),
    };
    Err(Failure::new(ErrorKind::Range, format!("requested bytes {first} to {last}, got {got}")))
}

/// A response being received.
#[derive(Debug, Default)]
pub struct Response {
    method: Method,
    state: State,
    status: u16,
    is_kept_alive: bool,
    content_bytes: u64,
    informational: u32,
    /// Bytes of an incomplete head.
    partial: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length(u64),
    Chunked(Box<Decoder>),
    UntilClose,
    Done,
}

impl Response {
    /// Creates the response to a request with this method; a response to `HEAD` has no content.
    pub fn to(method: Method) -> Self {
        Self { method, ..Self::default() }
    }

    /// Returns the status, or 0 before the head has arrived.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the number of content bytes so far.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns whether the head has arrived.
    pub fn has_head(&self) -> bool {
        self.status != 0
    }

    /// Returns whether any byte has arrived.
    pub fn has_begun(&self) -> bool {
        self.has_head() || self.informational > 0 || !self.partial.is_empty()
    }

    /// Returns whether the connection can be reused once the response is complete.
    pub fn is_kept_alive(&self) -> bool {
        self.is_kept_alive
    }

    /// Returns the next step.
    pub fn want(&self, is_reading: bool) -> Want {
        match &self.state {
            State::Done => Want::Nothing,
            State::Length(left) if !is_reading => Want::Discard(*left),
            State::UntilClose if !is_reading => Want::Discard(u64::MAX),
            State::Chunked(decoder) if !is_reading && decoder.data_left() >= DISCARD_BYTES_MIN => {
                Want::Discard(decoder.data_left())
            }
            _ => Want::Bytes,
        }
    }

    /// Processes bytes that arrived at `at`. Heads are parsed into `scratch`.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are invalid; the connection must not be used again.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        at: Instant,
        scratch: &mut ResponseHead,
        sink: &mut impl Sink,
    ) -> Result<(), Failure> {
        if !matches!(self.state, State::Head) {
            return self.content(bytes, at, sink);
        }
        if self.partial.is_empty() {
            let taken = self.head(bytes, scratch, sink)?;
            if matches!(self.state, State::Head) {
                self.partial.extend_from_slice(&bytes[taken..]);
                return Ok(());
            }
            return self.content(&bytes[taken..], at, sink);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let taken = self.head(&all, scratch, sink)?;
        if matches!(self.state, State::Head) {
            all.drain(..taken);
            self.partial = all;
            return Ok(());
        }
        self.content(&all[taken..], at, sink)
    }

    /// Records that the kernel discarded bytes, as requested by [`Want::Discard`].
    pub fn discarded(&mut self, bytes: u64, at: Instant, sink: &mut impl Sink) {
        self.count(bytes, at, sink);
        match &mut self.state {
            State::Length(left) => {
                *left -= bytes;
                if *left == 0 {
                    self.state = State::Done;
                }
            }
            State::Chunked(decoder) => {
                decoder.skip_data(bytes);
                if decoder.data_left() == 0 {
                    sink.chunk(at);
                }
            }
            State::Head | State::UntilClose | State::Done => {}
        }
    }

    /// Handles the server closing the connection, which completes or truncates the response,
    /// depending on its framing.
    ///
    /// # Errors
    ///
    /// Returns an error if the response is incomplete.
    pub fn closed(&mut self) -> Result<(), Failure> {
        match &self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Head => {
                Err(Failure::new(ErrorKind::NoHead, "the server closed before the head was complete"))
            }
            State::Length(left) => Err(Failure::new(
                ErrorKind::Cut,
                format!(
                    "the server closed after {} of {} bytes",
                    self.content_bytes,
                    self.content_bytes + left
                ),
            )),
            State::Chunked(_) => Err(Failure::new(
                ErrorKind::Cut,
                format!("the server closed after {} bytes, before the last chunk", self.content_bytes),
            )),
        }
    }

    /// Parses informational heads and the final head. Returns the number of bytes parsed.
    fn head(
        &mut self,
        bytes: &[u8],
        head: &mut ResponseHead,
        sink: &mut impl Sink,
    ) -> Result<usize, Failure> {
        let malformed = |error: &dyn std::fmt::Display| Failure::new(ErrorKind::Malformed, error.to_string());
        let mut taken = 0;
        while let Some(head_bytes) =
            parse_response(&bytes[taken..], head, &Limits::default()).map_err(|error| malformed(&error))?
        {
            taken += head_bytes;
            if status::is_informational(head.status) {
                self.informational += 1;
                if self.informational > INFORMATIONAL_MAX {
                    return Err(malformed(&"too many informational responses"));
                }
                continue;
            }
            let framing = response_framing(self.method, head).map_err(|error| malformed(&error))?;
            self.status = head.status;
            self.is_kept_alive = framing != Framing::UntilClose && keep_alive(head.version, &head.fields);
            self.state = match framing {
                Framing::None | Framing::Length(0) => State::Done,
                Framing::Length(length) => State::Length(length),
                Framing::Chunked => State::Chunked(Box::default()),
                Framing::UntilClose => State::UntilClose,
            };
            sink.head(head)?;
            return Ok(taken);
        }
        Ok(taken)
    }

    fn content(&mut self, mut bytes: &[u8], at: Instant, sink: &mut impl Sink) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let (data, rest, is_whole_chunk) = self.next_piece(bytes)?;
            if !data.is_empty() {
                self.count(data.len() as u64, at, sink);
                if sink.is_reading() {
                    sink.read(data)?;
                }
            }
            if is_whole_chunk {
                sink.chunk(at);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the next content in `bytes`, the bytes after it, and whether a chunk is complete.
    fn next_piece<'a>(&mut self, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8], bool), Failure> {
        match &mut self.state {
            State::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, rest) = bytes.split_at(length);
                *left -= length as u64;
                if *left == 0 {
                    self.state = State::Done;
                }
                Ok((data, rest, false))
            }
            State::Chunked(decoder) => {
                let step = decoder
                    .decode(bytes)
                    .map_err(|error| Failure::new(ErrorKind::Malformed, error.to_string()))?;
                match step {
                    Step::Data { data, consumed } => {
                        let is_whole = decoder.data_left() == 0;
                        Ok((&bytes[data], &bytes[consumed..], is_whole))
                    }
                    Step::More => Ok((&[], &[], false)),
                    Step::Done { consumed } => {
                        self.state = State::Done;
                        Ok((&[], &bytes[consumed..], false))
                    }
                }
            }
            State::UntilClose => Ok((bytes, &[], false)),
            State::Done | State::Head => Err(Failure::new(
                ErrorKind::Malformed,
                format!("{} bytes after the end of the content", bytes.len()),
            )),
        }
    }

    fn count(&mut self, bytes: u64, at: Instant, sink: &mut impl Sink) {
        self.content_bytes += bytes;
        sink.arrived(at, bytes);
    }
}

/// The buffer for a partial head is bounded, because the parser rejects longer heads.
const _: () = assert!(HEAD_BYTES_MAX <= 64 * 1024);

#[cfg(test)]
mod tests;
