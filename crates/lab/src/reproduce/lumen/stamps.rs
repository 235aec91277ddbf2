//! Reader of chunks that start with their send time.

use std::time::Instant;

use thalweg_load::Failure;
use thalweg_load::response::Sink;

/// Size of a timestamp.
const STAMP_BYTES: usize = 8;

/// Reads stamped chunks from content that arrives in pieces of any size.
#[derive(Debug)]
pub(super) struct Stamps {
    chunk_bytes: u64,
    /// Content bytes read so far.
    bytes: u64,
    /// The current chunk's stamp, of which the last bytes may not have arrived yet.
    stamp: [u8; STAMP_BYTES],
    at: Instant,
    /// For each complete chunk, its send time as Unix time in microseconds, and the arrival time of
    /// its last byte.
    pub(super) arrivals: Vec<(u64, Instant)>,
}

impl Stamps {
    /// Creates a reader for chunks of `chunk_bytes` bytes.
    pub(super) fn new(chunk_bytes: u64) -> Self {
        Self { chunk_bytes, bytes: 0, stamp: [0; STAMP_BYTES], at: Instant::now(), arrivals: Vec::new() }
    }
}

impl Sink for Stamps {
    fn is_reading(&self) -> bool {
        true
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let within = self.bytes % self.chunk_bytes;
            let left = usize::try_from(self.chunk_bytes - within).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(left.min(bytes.len()));
            let missing = usize::try_from(within).ok().and_then(|within| self.stamp.get_mut(within..));
            for (byte, arrived) in missing.into_iter().flatten().zip(piece) {
                *byte = *arrived;
            }
            self.bytes += piece.len() as u64;
            if piece.len() == left {
                self.arrivals.push((u64::from_be_bytes(self.stamp), self.at));
            }
            bytes = rest;
        }
        Ok(())
    }

    fn arrived(&mut self, at: Instant, _: u64) {
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stamps_are_read_from_pieces_of_any_size() {
        let content: Vec<u8> =
            (1..=3u64).flat_map(|n| [&(n << 40 | n).to_be_bytes()[..], &[7; 5]].concat()).collect();
        for piece_bytes in 1..=content.len() {
            let mut stamps = Stamps::new(13);
            let started = Instant::now();
            for (number, piece) in content.chunks(piece_bytes).enumerate() {
                stamps.arrived(started + Duration::from_secs(number as u64), piece.len() as u64);
                stamps.read(piece).unwrap();
            }
            let sent: Vec<u64> = stamps.arrivals.iter().map(|(sent, _)| *sent).collect();
            assert_eq!(sent, [1, 2, 3].map(|n| n << 40 | n), "pieces of {piece_bytes}");
            let last = started + Duration::from_secs(((content.len() - 1) / piece_bytes) as u64);
            assert_eq!(stamps.arrivals[2].1, last, "a chunk counts as arrived with its last byte");
        }
    }
}
