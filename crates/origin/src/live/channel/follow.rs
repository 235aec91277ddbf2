//! A track that runs on while another of its channel has begun anew.
//!
//! Both are in one epoch, so their media times have to lie on one line: those of the track that runs on are moved
//! beside those that come now of the others. How well they are in sync is as well as they arrive together.
//!
//! **Invariant:** a track that runs on is never left out because of another.

use super::timeline::signed;
use super::{Cause, Channel, ChunkIn, Outcome, Place, Refusal, epoch::Follow};
use thalweg_media::presentation::{micros, rescale};

/// How long after another track has begun anew chunks of the old run may still be on their way.
pub(super) const STRAGGLERS_US: i64 = 300_000;

impl Channel {
    /// Whether a chunk of a track that runs on is where it can leave its epoch for the newest: at a segment's beginning,
    /// or wherever decoding can start if the newest is published without it.
    pub(super) fn at_border(&self, index: usize, chunk: &ChunkIn, now: i64) -> bool {
        let awaited = |e: &super::Epoch| e.timeline.is_some() && now - e.begun_us > STRAGGLERS_US;
        if chunk.sync && self.epochs.back().is_some_and(awaited) {
            return true;
        }
        let epoch = self.tracks[index].epoch.and_then(|id| self.epoch(id));
        let timeline = epoch.and_then(|e| e.timeline.as_ref());
        chunk.sync && timeline.is_none_or(|t| self.begins_segment(index, t, chunk))
    }

    /// Takes a track that runs on into the newest epoch. If its times cannot be moved there, the others will have to
    /// come to it.
    pub(super) fn follow(&mut self, index: usize, chunk: ChunkIn, now: i64) -> Result<Outcome, Refusal> {
        let by = self.distance(index, &chunk, now);
        let chunk = match by.and_then(|by| Some((by, chunk.shifted(by, self.tracks[index].info.timescale)?)))
        {
            Some((by, moved)) => {
                self.tracks[index].shift += by;
                moved
            }
            None => {
                self.begin_epoch(index, Cause::Jump, Follow::ByJump, now);
                chunk
            }
        };
        self.join(index, now);
        self.accept(index, chunk, now)
    }

    /// The chunk in the times that its track is served in. A track that begins anew does so in its own.
    pub(super) fn moved(&mut self, index: usize, chunk: ChunkIn, now: i64) -> ChunkIn {
        let track = &self.tracks[index];
        if track.shift == 0 {
            return chunk;
        }
        let fits = |c: &ChunkIn| self.epochs.back().is_some_and(|e| e.fits(c, track.info.timescale, now));
        let goes_on = |c: &ChunkIn| match self.relative(track, c) {
            Place::InOrder | Place::Duplicate => true,
            Place::Ahead => fits(c),
            Place::Behind => false,
        };
        match chunk.shifted(track.shift, track.info.timescale).filter(goes_on) {
            Some(moved) => moved,
            None => {
                self.tracks[index].shift = 0;
                chunk
            }
        }
    }

    /// How far a chunk that comes now lies from the end of what has come of the newest epoch, in its track's timescale.
    fn distance(&self, index: usize, chunk: &ChunkIn, now: i64) -> Option<i64> {
        let newest = self.epochs.back()?;
        let members = newest.members.iter().map(|m| &self.tracks[m.track]);
        let latest = members.filter(|t| t.epoch == Some(newest.id)).max_by_key(|t| t.arrived_us)?;
        let end_us = signed(micros(latest.edge, latest.info.timescale)) + now - latest.arrived_us;
        let end = rescale(u64::try_from(end_us).ok()?, 1_000_000, self.tracks[index].info.timescale);
        Some(end.cast_signed() - chunk.end().cast_signed())
    }
}
