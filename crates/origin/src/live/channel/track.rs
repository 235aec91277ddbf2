//! A track of a channel: its header, the segment that is being filled, those that are whole.

use super::ChunkIn;
use bytes::Bytes;
use std::collections::VecDeque;
use thalweg_media::presentation::rescale;
use thalweg_media::track::TrackInfo;

/// Chunks that a repetition is looked for among: two segments of 6 s in single frames at 60 Hz.
const SEEN_MAX: usize = 720;

#[derive(Debug)]
pub(super) struct Track {
    pub(super) name: String,
    /// The newest header and what it says.
    pub(super) header: Bytes,
    pub(super) info: TrackInfo,
    /// The header differs from that of the epoch the track is in.
    pub(super) header_changed: bool,
    /// The epoch that its last chunk went to.
    pub(super) epoch: Option<u64>,
    /// Decode time at which the next chunk is to begin.
    pub(super) edge: u64,
    /// When the last chunk came.
    pub(super) arrived_us: i64,
    /// How much later its chunks are said to be than they say.
    pub(super) shift: i64,
    /// Chunks that came lately, oldest first, to tell a repetition from another run of the source.
    pub(super) seen: VecDeque<(u64, u64)>,
    /// Uploads under way that brought a header.
    pub(super) uploads: usize,
    /// A header came in a new upload, with no other under way, and no chunk after it that had not come before.
    pub(super) fresh: bool,
    pub(super) current: Option<Current>,
    /// Oldest first.
    pub(super) segments: VecDeque<Whole>,
    /// Least number of the next segment.
    pub(super) next_number: u64,
    /// HLS media sequence number of the next segment; the first takes its number.
    pub(super) next_sequence: Option<u64>,
    /// Chunks that wait for their epoch to be published, with the time each came.
    pub(super) pending: Vec<(ChunkIn, i64)>,
    /// A segment has begun in this epoch.
    pub(super) begun: bool,
    /// How late the first and the last chunk of the last segment came.
    pub(super) lag_us: Option<(i64, i64)>,
    /// The last segment was completed because the next border was reached, not because of a sync sample.
    pub(super) completed_early: bool,
    /// Sync samples have been missing where they were expected: borders are where they come.
    pub(super) irregular: bool,
}

/// The segment that is being filled.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) number: u64,
    /// Decode time of its first chunk, and where its last one ended.
    pub(super) time: u64,
    pub(super) end: u64,
    /// When the last chunk came.
    pub(super) touched_us: i64,
    /// Decoding can start with it.
    pub(super) sync: bool,
}

/// A segment that is whole.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) number: u64,
    pub(super) time: u64,
    pub(super) duration: u64,
    pub(super) duration_us: i64,
    /// Decoding can start with it.
    pub(super) sync: bool,
    /// Wall clock of its end by the epoch's clock.
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

    /// Takes a header; the same one again changes nothing.
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

    /// A chunk of it was taken.
    pub(super) fn took(&mut self, chunk: &ChunkIn, now: i64) {
        self.edge = chunk.end();
        self.arrived_us = now;
        self.seen.push_back(chunk.fingerprint());
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
    }

    /// Enters an epoch, with nothing of it yet.
    pub(super) fn enter(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        self.header_changed = false;
        self.begun = false;
        self.lag_us = None;
        self.irregular = false;
        self.completed_early = false;
    }
}
