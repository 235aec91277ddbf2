//! Where a chunk belongs.
//!
//! | a chunk of a track comes | and so |
//! |---|---|
//! | where the last one ended | it goes on |
//! | behind, by less than two segments | it is a duplicate, dropped, unless a new upload begins with it that is no repetition |
//! | further behind, or far ahead and late or early by the clock | a new epoch, which the other tracks enter with their own jump |
//! | where the last one ended, while another track has jumped | at its next segment it enters that epoch, its times moved beside those that come now |
//! | ahead by more than half a segment, in time by the clock | a new epoch, which the others enter at that media time |
//! | after a changed header | the same |
//! | again and again a segment late | the same: the source has paused, its clock has not |

use super::epoch::Follow;
use super::track::Track;
use super::{Cause, Channel, ChunkIn, Outcome};
use thalweg_media::presentation::{micros, rescale};

impl Channel {
    /// Where a chunk belongs.
    pub(super) fn decide(&self, index: usize, chunk: &ChunkIn, now: i64) -> Decision {
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
        let place = self.relative(track, chunk);
        if id == newest.id {
            return self.decide_in_newest(index, chunk, place, fits);
        }
        match newest.follow {
            Follow::ByTime { from_us } => {
                let end_us = micros(chunk.time + chunk.half(), track.info.timescale);
                match place {
                    Place::Duplicate => Decision::Drop(Outcome::Duplicate),
                    Place::Behind => Decision::Begin(Cause::Jump, Follow::ByJump),
                    _ if chunk.sync && end_us >= from_us => Decision::Join,
                    _ => Decision::Stay,
                }
            }
            Follow::ByJump => match place {
                Place::InOrder if !track.header_changed && self.at_border(index, chunk, now) => {
                    Decision::Follow
                }
                Place::InOrder if !track.header_changed => Decision::Stay,
                _ if fits => Decision::Join,
                Place::Duplicate if !track.header_changed => Decision::Drop(Outcome::Duplicate),
                _ => Decision::Begin(Cause::Jump, Follow::ByJump),
            },
        }
    }

    /// Where a chunk belongs whose track is in the newest epoch, and may thus begin another.
    fn decide_in_newest(&self, index: usize, chunk: &ChunkIn, place: Place, fits: bool) -> Decision {
        let track = &self.tracks[index];
        let from_us = micros(chunk.time, track.info.timescale).saturating_sub(1);
        let by_time = Follow::ByTime { from_us };
        match place {
            Place::InOrder if track.header_changed => Decision::Begin(Cause::Header, by_time),
            Place::InOrder if self.is_late(index, chunk) => Decision::Begin(Cause::Late, by_time),
            Place::InOrder => Decision::Stay,
            Place::Duplicate if !track.header_changed => Decision::Drop(Outcome::Duplicate),
            Place::Ahead if fits => Decision::Begin(Cause::Gap, by_time),
            _ => Decision::Begin(Cause::Jump, Follow::ByJump),
        }
    }

    /// Where a chunk lies relative to the last one of its track.
    pub(super) fn relative(&self, track: &Track, chunk: &ChunkIn) -> Place {
        let segment = rescale(self.segment_us(track).cast_unsigned(), 1_000_000, track.info.timescale);
        let (time, edge) = (chunk.time, track.edge);
        if time + chunk.half() < edge {
            let repeated = !track.fresh || track.seen.contains(&chunk.fingerprint());
            return if repeated && edge - time < 2 * segment { Place::Duplicate } else { Place::Behind };
        }
        if time > edge + segment / 2 { Place::Ahead } else { Place::InOrder }
    }
}

/// Where a chunk lies relative to the last one of its track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    InOrder,
    Duplicate,
    Behind,
    Ahead,
}

/// What to do with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Into the epoch that its track is in.
    Stay,
    /// Into the newest epoch, which its track enters with it.
    Join,
    /// Into an epoch of its own, which other tracks enter later.
    Begin(Cause, Follow),
    /// Into the newest epoch, where other tracks have begun anew while this one runs on.
    Follow,
    /// Nowhere.
    Drop(Outcome),
}
