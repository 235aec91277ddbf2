//! One segment on its way: its chunks, and how long the network took. Pure.
//!
//! At the live edge a segment takes as long to come as it takes to be made, whatever the network carries. So the time from the
//! read that brought a chunk's first byte to the one that brought its last counts, with the bytes that came after the first of
//! these reads, and none between chunks.

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
    /// Bytes that came in a time that could be told, and that time.
    timed: (u64, Duration),
    /// First byte of the chunk that is coming: when, and how many bytes had come then.
    chunk_began: Option<(Instant, u64)>,
    /// Last byte of the last chunk.
    chunk_ended: Option<Instant>,
    last: Option<Instant>,
}

/// What came of it.
#[derive(Debug)]
pub struct End {
    /// The whole segment, if it had no chunks that were told of.
    pub piece: Option<Piece>,
    /// Bytes in all.
    pub bytes: u64,
    /// Those that came in a time that could be told, at least half of all, and that time.
    pub timed: Option<(u64, Duration)>,
    /// It was not what its header promised.
    pub is_faulty: bool,
}

impl Transfer {
    /// Of this segment, of a track with this CMAF header, if it is one.
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

    /// Bytes have come at `now`. Tells of each chunk, and how long after the last one.
    pub fn push(&mut self, bytes: &[u8], now: Instant, mut tell: impl FnMut(Piece, Option<Duration>)) {
        self.bytes += bytes.len() as u64;
        self.last = Some(now);
        let Self { chunks, bytes: come, timed, chunk_began, chunk_ended, .. } = self;
        chunks.push(bytes, |event| match event {
            Event::Begins => *chunk_began = Some((now, *come)),
            Event::Complete(piece) => {
                add(timed, chunk_began.take(), now, *come);
                let gap = chunk_ended.replace(now).map(|ended| now - ended);
                tell(piece, gap);
            }
        });
    }

    /// The response is complete.
    pub fn finish(mut self) -> End {
        if let Some(last) = self.last {
            add(&mut self.timed, self.chunk_began, last, self.bytes);
        }
        let (bytes, busy) = self.timed;
        let timed = (bytes >= self.bytes.div_ceil(2) && !busy.is_zero()).then_some(self.timed);
        End { piece: self.chunks.finish(), bytes: self.bytes, timed, is_faulty: self.chunks.is_faulty() }
    }
}

fn add(timed: &mut (u64, Duration), began: Option<(Instant, u64)>, now: Instant, come: u64) {
    if let Some((began, had)) = began {
        timed.0 += come - had;
        timed.1 += now - began;
    }
}
