//! Response content: bytes in memory, a segment being filled, or a file range.
//!
//! **Invariant:** content is streamed in pieces; no response holds a whole file segment in memory.
//! If parts of a file must be replaced ([`Patch`]), only the replacement bytes stay in memory.

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::fmt;
use std::ops::Range;
use thalweg_cache::{Failure, Reader};

use crate::storage::{Pieces, StorageError};

/// Maximum bytes of an in-memory segment sent as one body frame. The bytes are not copied.
const FILL_PIECE_BYTES: usize = 1 << 20;

/// Content of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Reasons why content ends early. The connection is then closed, so that the client notices.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// A live segment was abandoned.
    Fill(Failure),
    /// Reading a file failed.
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

/// Returns content held in memory.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns empty content.
pub(crate) fn empty() -> Body {
    full(Bytes::new())
}

/// Streams a segment from the position of `reader`, up to `limit` bytes if given. Each piece is
/// sent as soon as it arrives.
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
                let bytes = piece.into_bytes().expect("live segments are in memory");
                Some((Ok(Frame::data(bytes)), Some((reader, left))))
            }
            Ok(None) => None,
            Err(failure) => Some((Err(BodyError::Fill(failure)), None)),
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// Bytes that replace part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Offset from the start of the file.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl Patch {
    /// Returns the file range that this patch replaces.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }
}

/// Streams a range of a file that starts at `start`, with `patches` applied.
pub(crate) fn file(pieces: Pieces, start: u64, patches: Vec<Patch>) -> Body {
    let pieces = stream::unfold(Some((pieces, start, patches)), |state| async {
        let (mut pieces, offset, patches) = state?;
        match pieces.next().await {
            Ok(Some(bytes)) => {
                let end = offset + bytes.len() as u64;
                let bytes = patched(bytes, offset, &patches);
                Some((Ok(Frame::data(bytes)), Some((pieces, end, patches))))
            }
            Ok(None) => None,
            Err(error) => Some((Err(BodyError::Storage(error)), None)),
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// Returns `bytes`, read from the file at `offset`, with the overlapping parts of `patches`
/// applied.
fn patched(bytes: Bytes, offset: u64, patches: &[Patch]) -> Bytes {
    let end = offset + bytes.len() as u64;
    let touches = |p: &&Patch| p.range().start < end && p.range().end > offset;
    let mut touching = patches.iter().filter(touches).peekable();
    if touching.peek().is_none() {
        return bytes;
    }
    let mut bytes = BytesMut::from(bytes);
    for patch in touching {
        let range = patch.range();
        let (from, to) = (range.start.max(offset), range.end.min(end));
        let within = |start: u64| {
            let at = |n: u64| usize::try_from(n - start).expect("offsets in an in-memory piece fit in usize");
            at(from)..at(to)
        };
        bytes[within(offset)].copy_from_slice(&patch.bytes[within(range.start)]);
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Patched content is independent of how the file is cut into pieces.
        #[test]
        fn patches_apply_at_their_offsets_across_pieces(
            at in 0u64..20, len in 0usize..12, second in 0u64..20, cut in 0usize..=32,
        ) {
            let file = Bytes::from_static(&[0; 32]);
            let patches = [(at, len, 1), (at + len as u64 + second, 3, 2)]
                .map(|(offset, len, byte)| Patch { offset, bytes: vec![byte; len].into() });
            let mut expected = [0; 64];
            for patch in &patches {
                let start = patch.offset as usize;
                expected[start..start + patch.bytes.len()].copy_from_slice(&patch.bytes);
            }
            let front = patched(file.slice(..cut), 0, &patches);
            let back = patched(file.slice(cut..), cut as u64, &patches);
            prop_assert_eq!(&[front, back].concat(), &expected[..32]);
        }
    }
}
