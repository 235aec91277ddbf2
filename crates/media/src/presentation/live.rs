//! A live channel at one instant, as both manifests show it.
//!
//! An *epoch* is a stretch of continuous media time: one DASH Period, one HLS discontinuity
//! sequence number. All tracks of an epoch share one media time base, `media_start`, which stands
//! for the wall clock `availability_start + start_us`; that keeps them in sync.
//!
//! **Invariant:** `availability_start` and the start of an epoch never change once published.

use super::utc::Utc;
use super::{Bitrate, Rendition, micros};
use crate::track::TrackInfo;

/// A channel as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Wall clock of the first epoch's start, fixed for the life of the channel.
    pub availability_start: Utc,
    /// When this state was reached.
    pub published: Utc,
    /// How far back a viewer may go, in milliseconds.
    pub window_ms: u64,
    /// HLS target duration in seconds, fixed for the life of the channel.
    pub target_duration_s: u64,
    /// Oldest first, never empty.
    pub epochs: Vec<Epoch>,
}

impl Live {
    /// As of `now`: nobody can go back further than the channel has been there, so a young channel's window grows by
    /// the second, and each second is a publication. A window that reaches back before `availability_start` makes
    /// ffmpeg's DASH demuxer read one segment over and over.
    #[must_use]
    pub fn at(mut self, now: Utc) -> Live {
        let lived_s = (now.0 - self.availability_start.0).max(0) / 1000;
        // The last of these publications stays the latest once the window is full.
        self.window_ms = self.window_ms.min(lived_s.cast_unsigned() * 1000);
        let grown = Utc(self.availability_start.0 + self.window_ms.cast_signed());
        self.published = self.published.max(grown);
        self
    }
}

/// A stretch of continuous media time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Counted from 0 since the channel began.
    pub id: u64,
    /// Start, in microseconds after `availability_start`.
    pub start_us: u64,
    /// Where it ends, in microseconds after `availability_start`, once it is over: where the next one begins or, where
    /// the source was away between them, a moment before its last frames.
    pub end_us: Option<u64>,
    /// Units per second of the four fields below: the timescale of the reference track.
    pub timescale: u32,
    /// Media time at `start_us`.
    pub media_start: u64,
    /// Duration of a segment.
    pub segment_duration: u64,
    /// Duration of the longest chunk.
    pub chunk_duration: u64,
    /// Wall clock at which a media time was encoded, where the ingest source says so (prft).
    pub produced: Option<Produced>,
    /// Number of the first segment; it also names the epoch's CMAF headers, `init-NUMBER.mp4`, since
    /// no other run of a channel has the same.
    pub start_number: u64,
    /// Tracks, each with the segments that are complete and in the window.
    pub tracks: Vec<LiveTrack>,
}

/// A pair of times from a prft box (ISO/IEC 14496-12 §8.16.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// When.
    pub wall: Utc,
    /// What, in the epoch's timescale.
    pub media_time: u64,
}

/// One track of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveTrack {
    /// Path segment of URLs and `Representation@id`.
    pub name: String,
    /// What its CMAF header says in this epoch.
    pub info: TrackInfo,
    /// Frames per second as (numerator, denominator).
    pub frame_rate: Option<(u32, u32)>,
    /// As measured when the epoch was published; it does not change afterwards.
    pub bitrate: Bitrate,
    /// Whether its chunks carry prft boxes that can be believed.
    pub inband_prft: bool,
    /// Complete segments, oldest first.
    pub segments: Vec<LiveSegment>,
}

/// A complete segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveSegment {
    /// HLS media sequence number: rises by one from segment to segment.
    pub sequence: u64,
    /// Number in URLs: follows from time, so it may skip where the source did.
    pub number: u64,
    /// Earliest presentation time in the track's timescale.
    pub time: u64,
    /// In the track's timescale.
    pub duration: u64,
    /// Whether decoding can start with it.
    pub sync: bool,
}

impl Live {
    /// The newest epoch.
    pub fn current(&self) -> Option<&Epoch> {
        self.epochs.last()
    }
}

impl Epoch {
    /// What manifests say of each track.
    pub fn renditions(&self) -> Vec<Rendition<'_>> {
        self.tracks.iter().map(LiveTrack::rendition).collect()
    }

    /// The track of that name.
    pub fn track(&self, name: &str) -> Option<&LiveTrack> {
        self.tracks.iter().find(|t| t.name == name)
    }

    /// Wall clock of a media time, in microseconds after `availability_start`; before it, negative.
    pub fn wall_us(&self, time: u64, timescale: u32) -> i64 {
        let since = signed(micros(time, timescale)) - signed(micros(self.media_start, self.timescale));
        signed(self.start_us) + since
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

impl LiveTrack {
    /// What manifests say of this track.
    fn rendition(&self) -> Rendition<'_> {
        Rendition { name: &self.name, info: &self.info, frame_rate: self.frame_rate, bitrate: self.bitrate }
    }
}
