//! Chunks that begin with the time at which they were sent, as they come. Pure.

use std::time::Instant;

use thalweg_http::ResponseHead;

use crate::load::Failure;
use crate::load::response::Sink;

/// Bytes of a time.
const STAMP_BYTES: usize = 8;

/// Takes such content, however it arrives in pieces.
#[derive(Debug)]
pub(super) struct Stamps {
    chunk_bytes: u64,
    /// Content so far.
    bytes: u64,
    /// The stamp of the chunk that is coming, as far as it has come.
    stamp: [u8; STAMP_BYTES],
    at: Instant,
    /// Of each chunk that has come whole, when it was sent, in Unix time in microseconds, and when its last byte came.
    pub(super) came: Vec<(u64, Instant)>,
}

impl Stamps {
    /// Of chunks of that size.
    pub(super) fn new(chunk_bytes: u64) -> Self {
        Self { chunk_bytes, bytes: 0, stamp: [0; STAMP_BYTES], at: Instant::now(), came: Vec::new() }
    }
}

impl Sink for Stamps {
    fn head(&mut self, _: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn is_reading(&self) -> bool {
        true
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let within = self.bytes % self.chunk_bytes;
            let left = usize::try_from(self.chunk_bytes - within).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(left.min(bytes.len()));
            let missing = usize::try_from(within).ok().and_then(|within| self.stamp.get_mut(within..));
            for (byte, came) in missing.into_iter().flatten().zip(piece) {
                *byte = *came;
            }
            self.bytes += piece.len() as u64;
            if piece.len() == left {
                self.came.push((u64::from_be_bytes(self.stamp), self.at));
            }
            bytes = rest;
        }
        Ok(())
    }

    fn arrived(&mut self, at: Instant, _: u64) {
        self.at = at;
    }

    fn chunk(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stamps_are_read_whatever_the_pieces() {
        let content: Vec<u8> =
            (1..=3u64).flat_map(|n| [&(n << 40 | n).to_be_bytes()[..], &[7; 5]].concat()).collect();
        for piece_bytes in 1..=content.len() {
            let mut stamps = Stamps::new(13);
            let begun = Instant::now();
            for (number, piece) in content.chunks(piece_bytes).enumerate() {
                stamps.arrived(begun + Duration::from_secs(number as u64), piece.len() as u64);
                stamps.read(piece).unwrap();
            }
            let sent: Vec<u64> = stamps.came.iter().map(|(sent, _)| *sent).collect();
            assert_eq!(sent, [1, 2, 3].map(|n| n << 40 | n), "pieces of {piece_bytes}");
            let last = begun + Duration::from_secs(((content.len() - 1) / piece_bytes) as u64);
            assert_eq!(stamps.came[2].1, last, "with its last byte");
        }
    }
}
