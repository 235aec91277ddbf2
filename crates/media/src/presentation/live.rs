//! Manifest model of a live channel at one instant.
//!
//! An *epoch* is a stretch of continuous media time: one DASH Period, one HLS discontinuity
//! sequence number. All tracks of an epoch share one media time base, in which `media_start`
//! corresponds to the wall clock `availability_start + start_us`; the shared base keeps the tracks
//! in sync.
//!
//! **Invariant:** `availability_start` and the start of an epoch never change once published.

use super::utc::Utc;
use super::{Bitrate, Rendition, Role, micros};
use crate::track::TrackInfo;

/// Current state of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Wall clock of the first epoch's start; fixed for the life of the channel.
    pub availability_start: Utc,
    /// When this state was published.
    pub published: Utc,
    /// DVR window, in milliseconds.
    pub window_ms: u64,
    /// HLS target duration, in seconds. It changes only if a later epoch has longer segments.
    pub target_duration_s: u64,
    /// Epochs, oldest first; never empty.
    pub epochs: Vec<Epoch>,
}

impl Live {
    /// Returns the state as of `now`. The window of a young channel reaches back only to the
    /// channel's start. It therefore grows every second, and each increase counts as a publication.
    /// If a window reached back beyond `availability_start`, ffmpeg's DASH demuxer would read one
    /// segment repeatedly.
    #[must_use]
    pub fn at(mut self, now: Utc) -> Live {
        let lived_s = (now.0 - self.availability_start.0).max(0) / 1000;
        // Once the window is full, the publication time stays at its last increase.
        self.window_ms = self.window_ms.min(lived_s.cast_unsigned() * 1000);
        let grown = Utc(self.availability_start.0 + self.window_ms.cast_signed());
        self.published = self.published.max(grown);
        self
    }
}

/// A stretch of continuous media time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Number of the epoch, counted from 0 at the channel's start.
    pub id: u64,
    /// Start, in microseconds after `availability_start`.
    pub start_us: u64,
    /// End, in microseconds after `availability_start`, once the epoch has ended: the start of the
    /// next epoch or, if the source was away in between, slightly before its last frames.
    pub end_us: Option<u64>,
    /// Timescale of the reference track: units per second of `media_start`, `segment_duration`,
    /// `chunk_duration` and `produced`.
    pub timescale: u32,
    /// Media time at `start_us`.
    pub media_start: u64,
    /// Duration of a segment.
    pub segment_duration: u64,
    /// Duration of the longest chunk.
    pub chunk_duration: u64,
    /// Wall clock at which a media time was encoded, if the ingest source reports it (prft).
    pub produced: Option<Produced>,
    /// Number of the first segment. It also names the epoch's CMAF headers (`init-NUMBER.mp4`),
    /// because no other epoch of the channel starts with this number, even after a restart.
    pub start_number: u64,
    /// Tracks, each with its complete segments within the window.
    pub tracks: Vec<LiveTrack>,
}

/// A pair of times from a prft box (ISO/IEC 14496-12 §8.16.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// Wall clock at `media_time`.
    pub wall: Utc,
    /// Media time, in the epoch's timescale.
    pub media_time: u64,
}

/// One track of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveTrack {
    /// Path segment of URLs and `Representation@id`.
    pub name: String,
    /// Contents of the CMAF header in this epoch.
    pub info: TrackInfo,
    /// Frames per second as (numerator, denominator).
    pub frame_rate: Option<(u32, u32)>,
    /// Bitrates measured when the epoch was published, and constant since.
    pub bitrate: Bitrate,
    /// Whether the track's chunks have plausible prft boxes.
    pub inband_prft: bool,
    /// Complete segments, oldest first.
    pub segments: Vec<LiveSegment>,
}

/// A complete segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveSegment {
    /// HLS media sequence number: increases by one per segment.
    pub sequence: u64,
    /// Segment number in URLs. It is derived from the time, so it has gaps where the source had
    /// gaps.
    pub number: u64,
    /// Earliest presentation time in the track's timescale.
    pub time: u64,
    /// Duration in the track's timescale.
    pub duration: u64,
    /// Whether decoding can start with this segment.
    pub sync: bool,
}

impl Live {
    /// Returns the newest epoch.
    pub fn current(&self) -> Option<&Epoch> {
        self.epochs.last()
    }
}

impl Epoch {
    /// Describes all tracks.
    pub fn renditions(&self) -> Vec<Rendition<'_>> {
        self.tracks.iter().map(LiveTrack::rendition).collect()
    }

    /// Returns the track called `name`.
    pub fn track(&self, name: &str) -> Option<&LiveTrack> {
        self.tracks.iter().find(|t| t.name == name)
    }

    /// Returns the wall clock of a media time, in microseconds after `availability_start`; negative
    /// if earlier.
    pub fn wall_us(&self, time: u64, timescale: u32) -> i64 {
        let since = signed(micros(time, timescale)) - signed(micros(self.media_start, self.timescale));
        signed(self.start_us) + since
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

impl LiveTrack {
    /// Returns the track's description for manifests.
    fn rendition(&self) -> Rendition<'_> {
        Rendition {
            name: &self.name,
            role: Role::Main,
            info: &self.info,
            frame_rate: self.frame_rate,
            bitrate: self.bitrate,
            key_frames: None,
        }
    }
}
