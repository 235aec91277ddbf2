//! One segment on its way: its chunks, and how long the network took. Pure.
//!
//! At the live edge a segment takes as long to come as it takes to be made, whatever the network carries. So the time from a
//! chunk's first byte to its last counts, and none between chunks.

use std::rc::Rc;
use std::time::{Duration, Instant};

use thalweg_media::track::TrackInfo;

use super::chunks::{Chunks, Event};
use super::manifest::Segment;
use super::playhead::Piece;

/// One segment on its way.
#[derive(Debug)]
pub struct Transfer {
    chunks: Chunks,
    bytes: u64,
    busy: Duration,
    /// First byte of the chunk that is coming.
    chunk_began: Option<Instant>,
    /// Last byte of the last chunk.
    chunk_ended: Option<Instant>,
    last: Option<Instant>,
}

/// What came of it.
#[derive(Debug)]
pub struct End {
    /// The whole segment, if it had no chunks that were told of.
    pub piece: Option<Piece>,
    /// Bytes.
    pub bytes: u64,
    /// Time in which they came.
    pub busy: Duration,
    /// It was not what its header promised.
    pub is_faulty: bool,
}

impl Transfer {
    /// Of this segment, of a track with this CMAF header, if it is one.
    #[must_use]
    pub fn new(segment: &Segment, info: Option<Rc<TrackInfo>>) -> Self {
        let chunks = Chunks::new(segment, info);
        Self { chunks, bytes: 0, busy: Duration::ZERO, chunk_began: None, chunk_ended: None, last: None }
    }

    /// Bytes have come at `now`. Tells of each chunk, and how long after the last one.
    pub fn push(&mut self, bytes: &[u8], now: Instant, mut tell: impl FnMut(Piece, Option<Duration>)) {
        self.bytes += bytes.len() as u64;
        self.last = Some(now);
        let Self { chunks, busy, chunk_began, chunk_ended, .. } = self;
        chunks.push(bytes, |event| match event {
            Event::Begins => *chunk_began = Some(now),
            Event::Complete(piece) => {
                *busy += chunk_began.take().map_or(Duration::ZERO, |began| now - began);
                let gap = chunk_ended.replace(now).map(|ended| now - ended);
                tell(piece, gap);
            }
        });
    }

    /// The response is complete.
    pub fn finish(mut self) -> End {
        let open = self.chunk_began.zip(self.last).map_or(Duration::ZERO, |(began, last)| last - began);
        End {
            piece: self.chunks.finish(),
            bytes: self.bytes,
            // A burst that came in one read took no time that could be told.
            busy: (self.busy + open).max(Duration::from_millis(1)),
            is_faulty: self.chunks.is_faulty(),
        }
    }
}
