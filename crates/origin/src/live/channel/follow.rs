//! Handling of tracks that continue while another track of the channel restarts.
//!
//! All tracks of an epoch need one media timeline, so a continuing track is shifted to match the
//! chunks now arriving on the restarted ones. The tracks are in sync to the extent that their
//! chunks arrive together.
//!
//! **Invariant:** a continuing track is never dropped because another track restarted.

use super::timeline::signed;
use super::{Cause, Channel, Continuity, IncomingChunk, Outcome, Refusal, epoch::Follow};
use thalweg_media::presentation::{micros, rescale};

/// Time after another track's restart within which chunks from before the restart may still arrive.
pub(super) const STRAGGLERS_US: i64 = 300_000;

impl Channel {
    /// Returns whether a continuing track may enter the newest epoch with this chunk: at a segment
    /// boundary, or at any sync sample if the newest epoch was published without this track.
    pub(super) fn at_border(&self, index: usize, chunk: &IncomingChunk, now: i64) -> bool {
        let awaited = |e: &super::Epoch| e.timeline.is_some() && now - e.begun_us > STRAGGLERS_US;
        if chunk.sync && self.epochs.back().is_some_and(awaited) {
            return true;
        }
        let epoch = self.tracks[index].epoch.and_then(|id| self.epoch(id));
        let timeline = epoch.and_then(|e| e.timeline.as_ref());
        chunk.sync && timeline.is_none_or(|t| self.begins_segment(index, t, chunk))
    }

    /// Moves a continuing track into the newest epoch. If its times cannot be shifted into that
    /// epoch, the track begins a new epoch, which the other tracks must enter.
    pub(super) fn follow(
        &mut self,
        index: usize,
        chunk: IncomingChunk,
        now: i64,
    ) -> Result<Outcome, Refusal> {
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

    /// Applies the track's shift to a chunk. Once the track itself restarts, its timestamps are no
    /// longer shifted.
    pub(super) fn apply_shift(&mut self, index: usize, chunk: IncomingChunk, now: i64) -> IncomingChunk {
        let track = &self.tracks[index];
        if track.shift == 0 {
            return chunk;
        }
        let fits =
            |c: &IncomingChunk| self.epochs.back().is_some_and(|e| e.fits(c, track.info.timescale, now));
        let continues = |c: &IncomingChunk| match self.continuity(track, c) {
            Continuity::InOrder | Continuity::Duplicate => true,
            Continuity::Ahead => fits(c),
            Continuity::Behind => false,
        };
        match chunk.shifted(track.shift, track.info.timescale).filter(continues) {
            Some(moved) => moved,
            None => {
                self.tracks[index].shift = 0;
                chunk
            }
        }
    }

    /// Returns the media time from a chunk arriving now to the current end of the newest epoch's
    /// media, in the timescale of the chunk's track.
    fn distance(&self, index: usize, chunk: &IncomingChunk, now: i64) -> Option<i64> {
        let newest = self.epochs.back()?;
        let members = newest.members.iter().map(|m| &self.tracks[m.track]);
        let latest = members.filter(|t| t.epoch == Some(newest.id)).max_by_key(|t| t.arrived_us)?;
        let end_us = signed(micros(latest.edge, latest.info.timescale)) + now - latest.arrived_us;
        let end = rescale(u64::try_from(end_us).ok()?, 1_000_000, self.tracks[index].info.timescale);
        Some(end.cast_signed() - chunk.end().cast_signed())
    }
}
