//! Transfer of one segment: its chunks, and the time taken by the network.
//!
//! At the live edge, a segment arrives as slowly as it is produced, whatever the network's
//! capacity. Therefore only time within chunks counts, from the read that returns a chunk's first
//! byte to the read that returns its last byte. The bytes of the first read and the time between
//! chunks are excluded.

use std::rc::Rc;
use std::time::{Duration, Instant};

use thalweg_media::track::TrackInfo;

use super::chunks::{Chunks, Event};
use super::manifest::Segment;
use super::playhead::Piece;

/// A segment being transferred.
#[derive(Debug)]
pub struct Transfer {
    chunks: Chunks,
    bytes: u64,
    /// Number of bytes with a measurable transfer time, and their transfer time.
    timed: (u64, Duration),
    /// Arrival time of the current chunk's first byte, and the number of bytes received by then.
    chunk_began: Option<(Instant, u64)>,
    /// Time at which the last chunk was complete.
    chunk_ended: Option<Instant>,
    last: Option<Instant>,
}

/// Result of a transfer.
#[derive(Debug)]
pub struct End {
    /// The segment as one piece, if no chunks were reported.
    pub piece: Option<Piece>,
    /// Total bytes.
    pub bytes: u64,
    /// Number of bytes with a measurable transfer time, and their transfer time. `None` if fewer
    /// than half of all bytes are measurable, or if their transfer time is zero.
    pub timed: Option<(u64, Duration)>,
    /// Whether the segment contradicts its CMAF header.
    pub is_faulty: bool,
}

impl Transfer {
    /// Starts a transfer. `info` is the track's CMAF header, or `None` if the segment is not CMAF.
    #[must_use]
    pub fn new(segment: &Segment, info: Option<Rc<TrackInfo>>) -> Self {
        let chunks = Chunks::new(segment, info);
        Self {
            chunks,
            bytes: 0,
            timed: (0, Duration::ZERO),
            chunk_began: None,
            chunk_ended: None,
            last: None,
        }
    }

    /// Processes bytes that arrived at `now`. Reports each chunk with the time since the previous
    /// one.
    pub fn push(&mut self, bytes: &[u8], now: Instant, mut report: impl FnMut(Piece, Option<Duration>)) {
        self.bytes += bytes.len() as u64;
        self.last = Some(now);
        let Self { chunks, bytes: received, timed, chunk_began, chunk_ended, .. } = self;
        chunks.push(bytes, |event| match event {
            Event::Begins => *chunk_began = Some((now, *received)),
            Event::Complete(piece) => {
                add(timed, chunk_began.take(), now, *received);
                let gap = chunk_ended.replace(now).map(|ended| now - ended);
                report(piece, gap);
            }
        });
    }

    /// Ends the transfer and returns its result.
    pub fn finish(mut self) -> End {
        if let Some(last) = self.last {
            add(&mut self.timed, self.chunk_began, last, self.bytes);
        }
        let (bytes, busy) = self.timed;
        let timed = (bytes >= self.bytes.div_ceil(2) && !busy.is_zero()).then_some(self.timed);
        End { piece: self.chunks.finish(), bytes: self.bytes, timed, is_faulty: self.chunks.is_faulty() }
    }
}

fn add(timed: &mut (u64, Duration), began: Option<(Instant, u64)>, now: Instant, received: u64) {
    if let Some((began, had)) = began {
        timed.0 += received - had;
        timed.1 += now - began;
    }
}
