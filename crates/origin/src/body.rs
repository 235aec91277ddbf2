//! Content of answers: bytes at hand, a segment that is being filled, a range of a file.
//!
//! **Invariant:** content is streamed in pieces; no answer holds a whole segment of a file in memory.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::fmt;
use std::ops::Range;
use thalweg_cache::{Failure, Reader};

use crate::storage::{ObjectReader, StorageError};

/// Bytes of a file that are read at once.
const FILE_PIECE_BYTES: u64 = 256 << 10;
/// Bytes of a segment in memory that are handed to the socket at once; they are not copied.
const FILL_PIECE_BYTES: usize = 1 << 20;

/// Content of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why content ends before its end; the connection is closed so that the client knows.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// A live segment was given up.
    Fill(Failure),
    /// A file could not be read on.
    Storage(StorageError),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Fill(failure) => failure.fmt(f),
            BodyError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BodyError {}

/// Bytes at hand.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No bytes.
pub(crate) fn empty() -> Body {
    full(Bytes::new())
}

/// `limit` bytes of a segment from where `reader` stands, or all that come until it is whole: each piece
/// as soon as it is there.
pub(crate) fn fill(reader: Reader<()>, limit: Option<u64>) -> Body {
    let start = Some((reader, limit.unwrap_or(u64::MAX)));
    let pieces = stream::unfold(start, |state| async {
        let (mut reader, left) = state?;
        let max = FILL_PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        if max == 0 {
            return None;
        }
        match reader.next(max).await {
            Ok(Some(piece)) => {
                let left = left - piece.len() as u64;
                Some((Ok(Frame::data(piece.into_bytes())), Some((reader, left))))
            }
            Ok(None) => None,
            Err(failure) => Some((Err(BodyError::Fill(failure)), None)),
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// A range of a file.
pub(crate) fn file(object: ObjectReader, range: Range<u64>) -> Body {
    let pieces = stream::unfold(Some((object, range)), |state| async {
        let (object, range) = state?;
        let len = (range.end - range.start).min(FILE_PIECE_BYTES);
        if len == 0 {
            return None;
        }
        match object.read(range.start, len).await {
            Ok(bytes) => {
                let rest = range.start + bytes.len() as u64..range.end;
                Some((Ok(Frame::data(bytes)), Some((object, rest))))
            }
            Err(error) => Some((Err(BodyError::Storage(error)), None)),
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}
