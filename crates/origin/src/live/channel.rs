//! State machine of a live channel: turns headers and chunks into segments, without I/O or a clock.
//!
//! Chunks are grouped into segments on a media time grid shared by all tracks of an *epoch*:
//! segment *n* begins at `media_start + (n − start_number) × segment`. The grid is derived from the
//! video's sync samples. Only decode times (tfdt) are trusted; upload names, upload boundaries and
//! the source's own manifest are not.
//!
//! All epochs are served on the media timeline of the first epoch, which advances with the clock.
//! If an epoch's timestamps do not fit that timeline, its chunks are shifted onto it as they enter
//! segments ([`timeline::Timeline::shift`]); all other code here uses times as received. Segment
//! numbers follow the same timeline, so a player that has not noticed a new epoch still requests
//! segments of the right time.
//!
//! [`decide`] determines a chunk's epoch. Changes to stored bytes are emitted in order as
//! [`Effect`]s, which the caller applies.
//!
//! **Invariant:** every accepted chunk is in exactly one segment. In number order, a track's
//! segments contain its chunks in arrival order.
//!
//! **Invariant:** the published parts of an epoch (start, numbers, durations) never change.

mod chunk;
mod cut;
mod decide;
mod epoch;
mod epochs;
mod follow;
mod gather;
mod outcome;
mod snapshot;
#[cfg(test)]
mod tests;
mod timeline;
mod track;

use bytes::Bytes;
use std::collections::VecDeque;
use thalweg_media::presentation::Kind;
use thalweg_media::track::TrackInfo;

pub(crate) use chunk::IncomingChunk;
use decide::{Continuity, Decision};
use epoch::Epoch;
pub(crate) use outcome::{Cause, Effect, Note, Outcome, Refusal, TRACKS_MAX};
pub(crate) use snapshot::{HeaderLookup, SegmentLookup};
use track::Track;

/// How long a track may receive nothing, beyond a chunk's duration. Its open segment is then
/// completed as is, so that readers do not wait forever.
pub(crate) const SEGMENT_IDLE_US: i64 = 3_000_000;
/// How long an epoch's publication waits for other tracks once the video's grid is known.
const GATHER_GRACE_US: i64 = 1_000_000;

/// Channel settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Minimum duration of a segment, in milliseconds.
    pub(crate) segment_target_ms: u32,
    /// DVR window, in milliseconds.
    pub(crate) window_ms: u64,
}

/// A live channel. Times named `now` or `…_us` are microseconds since 1970, UTC.
#[derive(Debug)]
pub(crate) struct Channel {
    settings: Settings,
    tracks: Vec<Track>,
    /// Epochs, oldest first; only the newest may be unpublished.
    epochs: VecDeque<Epoch>,
    next_epoch: u64,
    /// Start of the first epoch, once it is published.
    availability_start_us: Option<i64>,
    target_duration_s: u64,
    /// When the last header or chunk arrived.
    touched_us: i64,
    /// When the structure shown in manifests last changed.
    published_us: i64,
    effects: Vec<Effect>,
}

impl Channel {
    pub(crate) fn new(settings: Settings) -> Channel {
        Channel {
            settings,
            tracks: Vec::new(),
            epochs: VecDeque::new(),
            next_epoch: 0,
            availability_start_us: None,
            target_duration_s: 0,
            touched_us: 0,
            published_us: 0,
            effects: Vec::new(),
        }
    }

    /// Accepts a CMAF header for the track `name`; returns the track index used in effects and for
    /// chunks. `again` states whether the same upload already sent a header for the track. If it
    /// did not, the caller must call [`upload_ended`](Channel::upload_ended) when the upload ends.
    pub(crate) fn header(
        &mut self,
        name: &str,
        bytes: Bytes,
        info: TrackInfo,
        again: bool,
        now: i64,
    ) -> Result<usize, Refusal> {
        self.touched_us = now;
        let index = match self.tracks.iter().position(|t| t.name == name) {
            Some(index) => {
                let track = &self.tracks[index];
                if Kind::of(&track.info) != Kind::of(&info) {
                    return Err(Refusal::OtherKind { track: name.to_owned() });
                }
                if track.uploads > usize::from(again) && track.header != bytes {
                    return Err(Refusal::Busy { track: name.to_owned() });
                }
                if track.info.timescale != info.timescale {
                    // The current segment's times are in the old timescale.
                    self.complete_current(index);
                }
                self.tracks[index].set_header(bytes, info);
                index
            }
            None if self.tracks.len() == TRACKS_MAX => return Err(Refusal::TooManyTracks),
            None => {
                self.tracks.push(Track::new(name, bytes, info));
                self.tracks.len() - 1
            }
        };
        let track = &mut self.tracks[index];
        if !again {
            track.fresh = track.uploads == 0;
            track.uploads += 1;
        }
        Ok(index)
    }

    /// Ends an upload that sent a header. If the upload also carried media, the whole track has
    /// ended with it, so the track's current segment is completed.
    pub(crate) fn upload_ended(&mut self, track: usize, with_media: bool) {
        self.tracks[track].uploads = self.tracks[track].uploads.saturating_sub(1);
        if with_media {
            self.complete_current(track);
        }
    }

    /// Accepts a chunk of a track. [`Channel::take_effects`] returns the resulting effects.
    pub(crate) fn chunk(&mut self, track: usize, chunk: IncomingChunk, now: i64) -> Result<Outcome, Refusal> {
        let last = chunk.last;
        self.touched_us = now;
        let chunk = self.apply_shift(track, chunk, now);
        let outcome = match self.decide(track, &chunk, now) {
            Decision::Drop(outcome) => {
                if outcome == Outcome::Misfit {
                    self.note(Note::Misfit { track, time: chunk.time });
                }
                outcome
            }
            Decision::Stay => self.accept(track, chunk, now)?,
            Decision::Join => {
                self.join(track, now);
                self.accept(track, chunk, now)?
            }
            Decision::Begin(cause, follow) => {
                self.begin_epoch(track, cause, follow, now);
                self.join(track, now);
                self.accept(track, chunk, now)?
            }
            Decision::Follow => self.follow(track, chunk, now)?,
        };
        if outcome != Outcome::Duplicate {
            self.tracks[track].fresh = false;
        }
        if last {
            self.complete_current(track);
        }
        self.evict(now);
        Ok(outcome)
    }

    /// Advances time: completes segments of stalled sources and moves the window forward.
    pub(crate) fn tick(&mut self, now: i64) {
        for track in 0..self.tracks.len() {
            let idle_us = SEGMENT_IDLE_US + self.chunk_us(&self.tracks[track]);
            if self.tracks[track].current.as_ref().is_some_and(|c| now - c.touched_us >= idle_us) {
                self.complete_current(track);
            }
        }
        self.try_publish(now);
        self.forget_expected(now);
        self.evict(now);
    }

    /// Returns the effects emitted since the last call, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the name of a track.
    pub(crate) fn track_name(&self, track: usize) -> &str {
        &self.tracks[track].name
    }

    /// Returns the track's index and latest header, for chunks uploaded without a header.
    pub(crate) fn track_info(&self, name: &str) -> Option<(usize, &TrackInfo)> {
        let index = self.tracks.iter().position(|t| t.name == name)?;
        Some((index, &self.tracks[index].info))
    }

    /// Returns the track's name if the channel has exactly one track.
    pub(crate) fn only_track(&self) -> Option<&str> {
        match self.tracks.as_slice() {
            [track] => Some(&track.name),
            _ => None,
        }
    }

    pub(crate) fn has_many_tracks(&self) -> bool {
        self.tracks.len() > 1
    }

    fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }

    fn epoch(&self, id: u64) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.id == id)
    }

    /// Accepts a chunk into its track's epoch.
    fn accept(&mut self, track: usize, chunk: IncomingChunk, now: i64) -> Result<Outcome, Refusal> {
        let epoch = self.tracks[track].epoch.and_then(|id| self.epoch(id));
        let timeline = epoch.and_then(|e| e.timeline.clone());
        self.tracks[track].record_chunk(&chunk, now);
        match timeline {
            Some(timeline) => Ok(self.place(track, &timeline, chunk, now)),
            None => self.gather(track, chunk, now),
        }
    }

    /// Returns the duration of the longest chunk in the epoch of `track`; 0 before the epoch is
    /// published.
    fn chunk_us(&self, track: &Track) -> i64 {
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        timeline.map_or(0, timeline::Timeline::chunk_us)
    }

    /// Returns the segment duration of `track`'s epoch; before publication, the configured minimum.
    fn segment_us(&self, track: &Track) -> i64 {
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        timeline.map_or(i64::from(self.settings.segment_target_ms) * 1000, timeline::Timeline::segment_us)
    }
}
