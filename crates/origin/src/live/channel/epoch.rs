//! Epoch: a stretch of continuous media time, with its tracks.

use super::chunk::IncomingChunk;
use super::outcome::Cause;
use super::timeline::Timeline;
use bytes::Bytes;
use thalweg_media::presentation::{Bitrate, micros};
use thalweg_media::prft::Prft;
use thalweg_media::track::TrackInfo;

/// Lower bound of the tolerance within which a chunk counts as on time; see [`Epoch::fits`].
const FIT_US_MIN: i64 = 2_000_000;

/// A stretch of continuous media time.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) id: u64,
    pub(super) cause: Cause,
    pub(super) follow: Follow,
    /// When the epoch's first chunk arrived.
    pub(super) begun_us: i64,
    /// When the epoch became ready to publish, apart from tracks still expected.
    pub(super) ready_us: Option<i64>,
    /// The epoch's grid; `None` until the epoch is published.
    pub(super) timeline: Option<Timeline>,
    /// Wall-clock time of the epoch's end, once the next epoch is published.
    pub(super) end_us: Option<i64>,
    /// Tracks in the epoch.
    pub(super) members: Vec<Member>,
    /// Tracks of the previous epoch that are expected to enter this epoch but have not done so yet.
    pub(super) expected: Vec<usize>,
}

/// How other tracks enter an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// At their own timestamp jump, because media time restarted.
    ByJump,
    /// At this media time, in microseconds, because media time continues.
    ByTime { from_us: u64 },
}

/// A track in an epoch, with its manifest attributes.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) track: usize,
    pub(super) header: Bytes,
    pub(super) info: TrackInfo,
    pub(super) frame_rate: Option<(u32, u32)>,
    /// Bitrate, measured when the epoch was published or the track entered it.
    pub(super) bitrate: Bitrate,
    /// The track's first prft in this epoch.
    pub(super) prft: Option<Prft>,
}

impl Epoch {
    /// Returns whether a chunk arrives about when the epoch's clock expects its media time. Before
    /// publication the epoch has no clock, so any chunk fits.
    pub(super) fn fits(&self, chunk: &IncomingChunk, timescale: u32, now: i64) -> bool {
        let Some(timeline) = &self.timeline else { return true };
        let late_us = now - timeline.wall_us(chunk.end(), timescale);
        late_us.abs() <= timeline.segment_us().max(FIT_US_MIN)
    }

    pub(super) fn member(&self, track: usize) -> Option<&Member> {
        self.members.iter().find(|m| m.track == track)
    }
}

/// Returns frames per second as a reduced fraction.
pub(super) fn frame_rate(timescale: u32, sample_duration: u32) -> (u32, u32) {
    let divisor = gcd(timescale, sample_duration).max(1);
    (timescale / divisor, sample_duration / divisor)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the duration of a chunk in microseconds.
pub(super) fn chunk_us(chunk: &IncomingChunk, timescale: u32) -> u64 {
    micros(chunk.duration, timescale)
}
