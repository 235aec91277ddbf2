//! Epoch life cycle: starting an epoch, moving tracks into it, ending it and dropping it.

use super::epoch::{Epoch, Follow, Member};
use super::follow::STRAGGLERS_US;
use super::timeline::{Timeline, signed};
use super::track::Track;
use super::{Cause, Channel, Effect, Note};
use thalweg_media::presentation::{Bitrate, Kind};

/// Minimum gap between two epochs' media that counts as a hole left by an absent source.
const HOLE_US_MIN: i64 = 100_000;
/// How long before its last frames an epoch's Period ends if a hole follows. A player stops a few
/// frames before its media runs out. If the end of the Period is still ahead at that point, dash.js
/// seeks to it, lands in the hole, and stays there. An epoch shorter than twice this time keeps its
/// length, so that no Period is empty.
const EPOCH_TAIL_US: i64 = 200_000;

impl Channel {
    pub(super) fn begin_epoch(&mut self, track: usize, cause: Cause, follow: Follow, now: i64) {
        let id = self.next_epoch;
        self.next_epoch += 1;
        let expected =
            self.epochs.back().map_or_else(Vec::new, |last| last.members.iter().map(|m| m.track).collect());
        self.note(Note::Epoch { id, track, cause });
        self.epochs.push_back(Epoch {
            id,
            cause,
            follow,
            begun_us: now,
            ready_us: None,
            timeline: None,
            end_us: None,
            members: Vec::new(),
            expected,
        });
    }

    /// Moves a track into the newest epoch.
    pub(super) fn join(&mut self, index: usize, now: i64) {
        self.abandon_pending(index);
        self.complete_current(index);
        let Some(newest) = self.epochs.back_mut() else { return };
        let track = &mut self.tracks[index];
        track.enter(newest.id);
        newest.expected.retain(|&t| t != index);
        newest.members.push(Member {
            track: index,
            header: track.header.clone(),
            info: track.info.clone(),
            frame_rate: None,
            bitrate: Bitrate::default(),
            prft: None,
        });
        if newest.timeline.is_some() {
            self.published_us = now;
        }
    }

    /// Drops a track's pending chunks, whose epoch ends without being published.
    fn abandon_pending(&mut self, index: usize) {
        self.tracks[index].pending.clear();
    }

    /// Stops expecting tracks that have not entered a published epoch within two segment durations.
    pub(super) fn forget_expected(&mut self, now: i64) {
        let Some(newest) = self.epochs.back_mut() else { return };
        let Some(timeline) = &newest.timeline else { return };
        if !newest.expected.is_empty() && now - newest.begun_us > 2 * timeline.segment_us() {
            newest.expected.clear();
            self.published_us = now;
        }
    }

    /// Drops segments and epochs that have left the window. Segments are kept slightly longer than
    /// the window, so that any segment listed in a recent manifest is still available (RFC 8216bis
    /// §6.2.2, ISO/IEC 23009-1 §5.3.9.5.3).
    pub(super) fn evict(&mut self, now: i64) {
        let window_us = signed(self.settings.window_ms * 1000);
        for (index, track) in self.tracks.iter_mut().enumerate() {
            while let Some(segment) = track.segments.front() {
                let keep_us = window_us + 2 * segment.duration_us;
                if now - segment.end_wall_us <= keep_us {
                    break;
                }
                self.effects.push(Effect::Evict { track: index, number: segment.number });
                track.segments.pop_front();
            }
        }
        self.forget_epochs(now);
    }

    /// Evicts the oldest segment across all tracks to free memory. Returns `false` if the channel
    /// has no segment.
    pub(crate) fn evict_oldest(&mut self, now: i64) -> bool {
        let oldest = |t: &Track| t.segments.front().map(|s| s.end_wall_us);
        let track = (0..self.tracks.len()).filter(|&i| !self.tracks[i].segments.is_empty());
        let Some(index) = track.min_by_key(|&i| oldest(&self.tracks[i])) else { return false };
        let Some(segment) = self.tracks[index].segments.pop_front() else { return false };
        self.effects.push(Effect::Evict { track: index, number: segment.number });
        self.forget_epochs(now);
        true
    }

    /// Drops epochs that have ended and have no segments left.
    fn forget_epochs(&mut self, now: i64) {
        while self.epochs.len() > 1 {
            let oldest = self.epochs[0].id;
            let in_use = |t: &Track| t.epoch == Some(oldest) || t.segments.iter().any(|s| s.epoch == oldest);
            let next_published = self.epochs[1].timeline.is_some();
            let stale = self.epochs[0].timeline.is_none();
            let newest = self.epochs.back();
            // Manifests list expected tracks with their state from the previous epoch, so keep that
            // epoch.
            let needed = self.epochs.len() == 2 && newest.is_some_and(|e| !e.expected.is_empty());
            if needed
                || !(next_published || stale)
                || self.tracks.iter().any(in_use) && !self.epoch_is_over(0, now)
            {
                return;
            }
            self.epochs.pop_front();
            self.published_us = now;
        }
    }

    /// Returns whether an epoch has left the window even though some of its tracks have not entered
    /// the next one.
    fn epoch_is_over(&self, at: usize, now: i64) -> bool {
        let epoch = &self.epochs[at];
        let no_segments = !self.tracks.iter().any(|t| t.segments.iter().any(|s| s.epoch == epoch.id));
        let window_us = signed(self.settings.window_ms * 1000);
        no_segments && epoch.end_us.is_none_or(|end| now - end > window_us)
    }

    /// Returns the wall-clock time at the end of an epoch followed by `next`. Without a hole, the
    /// epoch ends where `next` starts; with a hole, it ends slightly before its first track runs
    /// out. Tracks that ended long before others of the same media kind are ignored, because
    /// players use one of the others.
    pub(super) fn period_end_us(&self, epoch: &Epoch, next: &Timeline, now: i64) -> i64 {
        let Some(timeline) = &epoch.timeline else { return next.start_us };
        let tracks = epoch.members.iter().map(|m| (m.track, Kind::of(&m.info))).filter(|t| t.1 != Kind::Text);
        let ends: Vec<(usize, Kind, i64)> =
            tracks.filter_map(|(t, kind)| Some((t, kind, self.track_end_us(t, epoch)?))).collect();
        let last_of = |kind| ends.iter().filter(|e| e.1 == kind).map(|e| e.2).max().unwrap_or(next.start_us);
        let lasted = || ends.iter().filter(|e| last_of(e.1) - e.2 <= timeline.segment_us());
        let has_hole = |&&(track, _, end_us): &&(usize, Kind, i64)| {
            next.start_us - end_us > HOLE_US_MIN && !self.continues(track, end_us, epoch, next, now)
        };
        match lasted().map(|e| e.2).min() {
            Some(first_us) if first_us > timeline.start_us && lasted().any(|e| has_hole(&e)) => {
                let is_short = first_us - timeline.start_us < 2 * EPOCH_TAIL_US;
                if is_short { first_us } else { first_us - EPOCH_TAIL_US }
            }
            _ => next.start_us,
        }
    }

    /// Returns whether a track that reached `end_us` continues into the next epoch without a hole:
    /// its pending chunks begin where it ended, or its next chunks are in flight.
    fn continues(&self, track: usize, end_us: i64, epoch: &Epoch, next: &Timeline, now: i64) -> bool {
        let track = &self.tracks[track];
        if track.epoch == Some(epoch.id) {
            return now - track.arrived_us <= self.chunk_us(track) + STRAGGLERS_US;
        }
        let wall_us = |time| next.wall_us(time, track.info.timescale);
        let found = track.pending.iter().find(|(c, _)| wall_us(c.time + c.half()) >= next.start_us);
        found.is_some_and(|(first, _)| wall_us(first.time) - end_us <= HOLE_US_MIN)
    }

    /// Returns the wall-clock time at the end of a track's segments in an epoch.
    fn track_end_us(&self, track: usize, epoch: &Epoch) -> Option<i64> {
        let (timeline, track) = (epoch.timeline.as_ref()?, &self.tracks[track]);
        let whole = track.segments.iter().rev().find(|s| s.epoch == epoch.id).map(|s| s.end_wall_us);
        let current = track.current.as_ref().filter(|_| track.epoch == Some(epoch.id));
        whole.max(current.map(|c| timeline.wall_us(c.end, track.info.timescale)))
    }

    /// Returns the wall-clock time at the end of an epoch's segments.
    pub(super) fn content_end_us(&self, epoch: u64) -> Option<i64> {
        let epoch = self.epoch(epoch)?;
        (0..self.tracks.len()).filter_map(|track| self.track_end_us(track, epoch)).max()
    }
}
