//! Epoch decision: determines the epoch to which an arriving chunk belongs.
//!
//! | a chunk arrives | decision |
//! |---|---|
//! | where the previous chunk ended | stays in the track's epoch |
//! | less than two segments behind | dropped as a duplicate (1) |
//! | further behind, or far ahead and not on time | new epoch; others enter at their own jump |
//! | in order, after another track jumped | enters the new epoch at its next segment (2) |
//! | over half a segment ahead, on time by the clock | new epoch; others enter at that media time |
//! | after a changed header | new epoch; others enter at that media time |
//! | repeatedly a segment late | new epoch; others enter at that media time |
//!
//! (1) If the chunk starts a new upload and repeats no known chunk, it begins a new epoch instead.
//! (2) The chunk's times are shifted to match the chunks now arriving on the other tracks.

use super::epoch::Follow;
use super::track::Track;
use super::{Cause, Channel, IncomingChunk, Outcome};
use thalweg_media::presentation::{micros, rescale};

impl Channel {
    /// Decides which epoch a chunk enters, or whether it is dropped.
    pub(super) fn decide(&self, index: usize, chunk: &IncomingChunk, now: i64) -> Decision {
        let track = &self.tracks[index];
        let Some(newest) = self.epochs.back() else {
            return Decision::Begin(Cause::First, Follow::ByJump);
        };
        let fits = newest.fits(chunk, track.info.timescale, now);
        let Some(id) = track.epoch.filter(|&id| self.epoch(id).is_some()) else {
            return match track.epoch {
                _ if fits => Decision::Join,
                Some(_) => Decision::Begin(Cause::Jump, Follow::ByJump),
                None => Decision::Drop(Outcome::Misfit),
            };
        };
        let continuity = self.continuity(track, chunk);
        if id == newest.id {
            return self.decide_in_newest(index, chunk, continuity, fits);
        }
        match newest.follow {
            Follow::ByTime { from_us } => {
                let end_us = micros(chunk.time + chunk.half(), track.info.timescale);
                match continuity {
                    Continuity::Duplicate => Decision::Drop(Outcome::Duplicate),
                    Continuity::Behind => Decision::Begin(Cause::Jump, Follow::ByJump),
                    _ if chunk.sync && end_us >= from_us => Decision::Join,
                    _ => Decision::Stay,
                }
            }
            Follow::ByJump => match continuity {
                Continuity::InOrder if !track.header_changed && self.at_border(index, chunk, now) => {
                    Decision::Follow
                }
                Continuity::InOrder if !track.header_changed => Decision::Stay,
                _ if fits => Decision::Join,
                Continuity::Duplicate if !track.header_changed => Decision::Drop(Outcome::Duplicate),
                _ => Decision::Begin(Cause::Jump, Follow::ByJump),
            },
        }
    }

    /// Makes the decision for a chunk whose track is already in the newest epoch.
    fn decide_in_newest(
        &self,
        index: usize,
        chunk: &IncomingChunk,
        continuity: Continuity,
        fits: bool,
    ) -> Decision {
        let track = &self.tracks[index];
        let from_us = micros(chunk.time, track.info.timescale).saturating_sub(1);
        let by_time = Follow::ByTime { from_us };
        match continuity {
            Continuity::InOrder if track.header_changed => Decision::Begin(Cause::Header, by_time),
            Continuity::InOrder if self.is_late(index, chunk) => Decision::Begin(Cause::Late, by_time),
            Continuity::InOrder => Decision::Stay,
            Continuity::Duplicate if !track.header_changed => Decision::Drop(Outcome::Duplicate),
            Continuity::Ahead if fits => Decision::Begin(Cause::Gap, by_time),
            _ => Decision::Begin(Cause::Jump, Follow::ByJump),
        }
    }

    /// Compares a chunk with the end of its track's last chunk.
    pub(super) fn continuity(&self, track: &Track, chunk: &IncomingChunk) -> Continuity {
        let segment = rescale(self.segment_us(track).cast_unsigned(), 1_000_000, track.info.timescale);
        let (time, edge) = (chunk.time, track.edge);
        if time + chunk.half() < edge {
            let repeated = !track.fresh || track.seen.contains(&chunk.fingerprint());
            return if repeated && edge - time < 2 * segment {
                Continuity::Duplicate
            } else {
                Continuity::Behind
            };
        }
        if time > edge + segment / 2 { Continuity::Ahead } else { Continuity::InOrder }
    }
}

/// A chunk's position relative to the end of its track's last chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Continuity {
    InOrder,
    Duplicate,
    Behind,
    Ahead,
}

/// What to do with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Accept the chunk into its track's epoch.
    Stay,
    /// Accept the chunk into the newest epoch, which its track enters now.
    Join,
    /// Begin a new epoch with the chunk; other tracks enter later.
    Begin(Cause, Follow),
    /// Shift the chunk's times into the newest epoch, because other tracks restarted while this
    /// track continued.
    Follow,
    /// Drop the chunk.
    Drop(Outcome),
}
