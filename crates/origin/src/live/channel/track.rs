//! Track of a live channel: its header, the segment being filled, and its complete segments.

use super::chunk::IncomingChunk;
use bytes::Bytes;
use std::collections::VecDeque;
use thalweg_media::presentation::rescale;
use thalweg_media::track::TrackInfo;

/// Maximum chunk fingerprints stored to detect repetitions. It covers two 6 s segments of
/// single-frame chunks at 60 Hz.
const SEEN_MAX: usize = 720;

#[derive(Debug)]
pub(super) struct Track {
    pub(super) name: String,
    /// Newest header, as received and parsed.
    pub(super) header: Bytes,
    pub(super) info: TrackInfo,
    /// Whether the header differs from the one in the track's current epoch.
    pub(super) header_changed: bool,
    /// Epoch of the track's last chunk.
    pub(super) epoch: Option<u64>,
    /// Decode time at which the next chunk should begin.
    pub(super) edge: u64,
    /// Arrival time of the last chunk.
    pub(super) arrived_us: i64,
    /// Offset added to the decode times of the track's chunks.
    pub(super) shift: i64,
    /// Fingerprints of recent chunks, oldest first, to distinguish a repetition from a source
    /// restart.
    pub(super) seen: VecDeque<(u64, u64)>,
    /// Number of open uploads that sent a header.
    pub(super) uploads: usize,
    /// Whether a header arrived in a new upload while no other upload was open, and no new chunk
    /// has arrived since.
    pub(super) fresh: bool,
    pub(super) current: Option<OpenSegment>,
    /// Complete segments, oldest first.
    pub(super) segments: VecDeque<CompleteSegment>,
    /// Lowest number that the next segment may have.
    pub(super) next_number: u64,
    /// HLS media sequence number of the next segment. The first segment's equals its segment
    /// number.
    pub(super) next_sequence: Option<u64>,
    /// Chunks held until their epoch is published, with their arrival times.
    pub(super) pending: Vec<(IncomingChunk, i64)>,
    /// Whether the track has started a segment in this epoch.
    pub(super) begun: bool,
    /// How late the latest segment's first and last chunks arrived, in microseconds.
    pub(super) lag_us: Option<(i64, i64)>,
    /// Whether the last segment was completed at the grid point, before the next sync sample
    /// arrived.
    pub(super) completed_early: bool,
    /// Whether sync samples were missing at grid points, so that segments are cut at sync samples.
    pub(super) irregular: bool,
}

/// The segment being filled.
#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) number: u64,
    /// Decode time of the segment's first chunk, and decode time at the end of its last.
    pub(super) time: u64,
    pub(super) end: u64,
    /// Arrival time of the last chunk.
    pub(super) touched_us: i64,
    /// Whether the segment begins with a sync sample.
    pub(super) sync: bool,
}

/// A complete segment.
#[derive(Debug)]
pub(super) struct CompleteSegment {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) number: u64,
    pub(super) time: u64,
    pub(super) duration: u64,
    pub(super) duration_us: i64,
    /// Whether the segment begins with a sync sample.
    pub(super) sync: bool,
    /// Wall-clock time of the segment's end, according to the epoch's clock.
    pub(super) end_wall_us: i64,
}

impl Track {
    pub(super) fn new(name: &str, header: Bytes, info: TrackInfo) -> Track {
        Track {
            name: name.to_owned(),
            header,
            info,
            header_changed: false,
            epoch: None,
            edge: 0,
            arrived_us: 0,
            shift: 0,
            seen: VecDeque::new(),
            uploads: 0,
            fresh: false,
            current: None,
            segments: VecDeque::new(),
            next_number: 0,
            next_sequence: None,
            pending: Vec::new(),
            begun: false,
            lag_us: None,
            completed_early: false,
            irregular: false,
        }
    }

    /// Replaces the header; does nothing if the new header is identical.
    pub(super) fn set_header(&mut self, header: Bytes, info: TrackInfo) {
        if self.header == header {
            return;
        }
        if self.info.timescale != info.timescale {
            self.edge = rescale(self.edge, self.info.timescale, info.timescale);
            self.shift = 0;
            self.seen.clear();
            self.pending.clear();
        }
        self.header = header;
        self.info = info;
        self.header_changed = self.epoch.is_some();
    }

    /// Records an accepted chunk.
    pub(super) fn record_chunk(&mut self, chunk: &IncomingChunk, now: i64) {
        self.edge = chunk.end();
        self.arrived_us = now;
        self.seen.push_back(chunk.fingerprint());
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
    }

    /// Enters an epoch and resets the per-epoch state.
    pub(super) fn enter(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        self.header_changed = false;
        self.begun = false;
        self.lag_us = None;
        self.irregular = false;
        self.completed_early = false;
    }
}
