//! One response as its bytes arrive: head, framing, content, chunks. Pure: it says what it wants next and is given it.
//!
//! **Invariant:** a response is complete only where its framing says so; bytes beyond that are an error.

use std::time::Instant;

use thalweg_http::chunked::{Decoder, Step};
use thalweg_http::framing::{keep_alive, response_framing};
use thalweg_http::head::{HEAD_BYTES_MAX, parse_response};
use thalweg_http::range::{ContentRange, parse_content_range};
use thalweg_http::{Framing, Limits, Method, ResponseHead, status};

use super::{ErrorKind, Failure};

/// Informational responses before the one that counts.
pub const INFORMATIONAL_MAX: u32 = 8;
/// Less of a chunk than this is not worth a system call of its own to discard it.
const DISCARD_BYTES_MIN: u64 = 16 * 1024;

/// What takes a response.
pub trait Sink {
    /// The head has come, and whether its content may be discarded unread is decided. An error ends the exchange.
    ///
    /// # Errors
    /// What is wrong with the head, in the sink's eyes.
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure>;

    /// Whether [`read`](Self::read) has to see the content; else the kernel discards most of it.
    fn is_reading(&self) -> bool;

    /// More content, in order; not called for what was discarded.
    ///
    /// # Errors
    /// What is wrong with it, in the sink's eyes.
    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// So many bytes of content have arrived, read or discarded.
    fn arrived(&mut self, at: Instant, bytes: u64);

    /// A chunk of the chunked coding has arrived whole.
    fn chunk(&mut self, at: Instant);
}

/// Takes a response and keeps nothing of it.
#[derive(Debug)]
pub struct Unread;

impl Sink for Unread {
    fn head(&mut self, _head: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn is_reading(&self) -> bool {
        false
    }

    fn read(&mut self, _bytes: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn arrived(&mut self, _at: Instant, _bytes: u64) {}

    fn chunk(&mut self, _at: Instant) {}
}

/// What a response wants next of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Bytes, by [`Response::receive`].
    Bytes,
    /// At most so many bytes unread, by [`Response::discarded`].
    Discard(u64),
    /// Nothing: it is complete.
    Nothing,
}

/// Whether a response has the bytes that were asked for, from the first to the last one; what there is in all, if that is told.
///
/// # Errors
/// [`ErrorKind::Range`] if it has others, or says nothing of a range.
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
    Err(Failure::new(ErrorKind::Range, format!("asked for bytes {first} to {last} and got {got}")))
}

/// A response that arrives.
#[derive(Debug, Default)]
pub struct Response {
    method: Method,
    state: State,
    status: u16,
    is_kept_alive: bool,
    content_bytes: u64,
    informational: u32,
    /// A head that has come in part.
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
    /// The response to a request of that method; without content to one of `HEAD`.
    pub fn to(method: Method) -> Self {
        Self { method, ..Self::default() }
    }

    /// The status; 0 before the head.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of content so far.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Whether the head is there.
    pub fn has_head(&self) -> bool {
        self.status != 0
    }

    /// Whether anything of it is there.
    pub fn has_begun(&self) -> bool {
        self.has_head() || self.informational > 0 || !self.partial.is_empty()
    }

    /// Whether the connection may be used again, once the response is complete.
    pub fn is_kept_alive(&self) -> bool {
        self.is_kept_alive
    }

    /// What it wants next.
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

    /// Takes bytes that have arrived at `at`; `scratch` is what a head is parsed into.
    ///
    /// # Errors
    /// What is wrong with them; the connection is of no more use.
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

    /// The kernel has discarded so many bytes of what [`Want::Discard`] named.
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

    /// The server has closed: the end of some responses, an error in most.
    ///
    /// # Errors
    /// The response is not complete.
    pub fn closed(&mut self) -> Result<(), Failure> {
        match &self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Head => Err(Failure::new(ErrorKind::NoHead, "the server closed before a whole head")),
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
                format!("the server closed after {} bytes and before the last chunk", self.content_bytes),
            )),
        }
    }

    /// Takes heads up to the one that counts; says how many bytes of them were whole.
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

    /// The next content of `bytes`, what is behind it, and whether a chunk ended with it.
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

/// No more of a head than this is kept: the parser refuses what is longer.
const _: () = assert!(HEAD_BYTES_MAX <= 64 * 1024);

#[cfg(test)]
mod tests;
