//! A track of a channel: its header, the segment that is being filled, those that are whole.

use super::ChunkIn;
use bytes::Bytes;
use std::collections::VecDeque;
use thalweg_media::track::TrackInfo;

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
        self.header = header;
        self.info = info;
        self.header_changed = self.epoch.is_some();
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
