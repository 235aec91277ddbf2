//! Epochs: how one begins, how tracks enter it, when it is forgotten.

use super::follow::STRAGGLERS_US;
use super::timeline::{Timeline, signed};
use super::{Cause, Channel, ChunkIn, Effect, Note};
use bytes::Bytes;
use thalweg_media::presentation::{Bitrate, Kind, micros};
use thalweg_media::prft::Prft;
use thalweg_media::track::TrackInfo;

/// Least tolerance on a chunk's arrival that still counts as in time.
const FIT_US_MIN: i64 = 2_000_000;

/// Media time that is left out between two epochs by more than this is a hole: the source was away.
const HOLE_US_MIN: i64 = 100_000;
/// How much before its last frames an epoch is said to end where a hole follows. A player stops some frames before the
/// end of what it has; one that has not passed the end of a Period by then (dash.js) seeks to it, into the hole, and
/// stays there. An epoch shorter than twice that keeps its length: no Period is without one.
const EPOCH_TAIL_US: i64 = 200_000;

/// A stretch of continuous media time.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) id: u64,
    pub(super) cause: Cause,
    pub(super) follow: Follow,
    /// When its first chunk came.
    pub(super) begun_us: i64,
    /// When it could have been published but for other tracks that are to come.
    pub(super) ready_us: Option<i64>,
    /// `None` while it gathers what it needs to be published.
    pub(super) timeline: Option<Timeline>,
    /// Wall clock of its end, once the next is published.
    pub(super) end_us: Option<i64>,
    /// Tracks that are in it.
    pub(super) members: Vec<Member>,
    /// Tracks of the last epoch that have not entered it yet, though they are expected to.
    pub(super) expected: Vec<usize>,
}

/// How the other tracks enter an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// With a jump of their own: media time has begun anew.
    ByJump,
    /// At a media time, in microseconds: it runs on.
    ByTime { from_us: u64 },
}

/// A track in an epoch, as manifests show it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) track: usize,
    pub(super) header: Bytes,
    pub(super) info: TrackInfo,
    pub(super) frame_rate: Option<(u32, u32)>,
    /// Measured when the epoch was published, or when the track entered it.
    pub(super) bitrate: Bitrate,
    /// First prft of the track in this epoch.
    pub(super) prft: Option<Prft>,
}

impl Epoch {
    /// Whether a chunk, by its media time, comes about when the epoch's clock expects it. While the
    /// epoch has no clock yet, anything does.
    pub(super) fn fits(&self, chunk: &ChunkIn, timescale: u32, now: i64) -> bool {
        let Some(timeline) = &self.timeline else { return true };
        let late_us = now - timeline.wall_us(chunk.end(), timescale);
        late_us.abs() <= timeline.segment_us().max(FIT_US_MIN)
    }

    pub(super) fn member(&self, track: usize) -> Option<&Member> {
        self.members.iter().find(|m| m.track == track)
    }
}

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

    /// A track enters the newest epoch.
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

    /// An epoch that ends before it was published leaves no segment: what waited in it is given up.
    fn abandon_pending(&mut self, index: usize) {
        self.tracks[index].pending.clear();
    }

    /// Tracks that have not followed into a published epoch for two segments will not.
    pub(super) fn forget_expected(&mut self, now: i64) {
        let Some(newest) = self.epochs.back_mut() else { return };
        let Some(timeline) = &newest.timeline else { return };
        if !newest.expected.is_empty() && now - newest.begun_us > 2 * timeline.segment_us() {
            newest.expected.clear();
            self.published_us = now;
        }
    }

    /// Drops what has left the window. A segment stays a while longer than the window says, so that
    /// what a manifest has just named can still be had (RFC 8216bis §6.2.2, ISO/IEC 23009-1 §5.3.9.5.3).
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

    /// Drops the oldest segment of the channel, whichever track it is of, to make room; `false` if
    /// there is none.
    pub(crate) fn shed(&mut self, now: i64) -> bool {
        let oldest = |t: &super::Track| t.segments.front().map(|s| s.end_wall_us);
        let track = (0..self.tracks.len()).filter(|&i| !self.tracks[i].segments.is_empty());
        let Some(index) = track.min_by_key(|&i| oldest(&self.tracks[i])) else { return false };
        let Some(segment) = self.tracks[index].segments.pop_front() else { return false };
        self.effects.push(Effect::Evict { track: index, number: segment.number });
        self.forget_epochs(now);
        true
    }

    /// Drops epochs that are over and of which no segment is left.
    fn forget_epochs(&mut self, now: i64) {
        while self.epochs.len() > 1 {
            let oldest = self.epochs[0].id;
            let in_use =
                |t: &super::Track| t.epoch == Some(oldest) || t.segments.iter().any(|s| s.epoch == oldest);
            let next_published = self.epochs[1].timeline.is_some();
            let stale = self.epochs[0].timeline.is_none();
            let newest = self.epochs.back();
            // What expected tracks are shown as is what they were in the last epoch.
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

    /// Whether the window has passed over an epoch whose tracks have not followed into the next.
    fn epoch_is_over(&self, at: usize, now: i64) -> bool {
        let epoch = &self.epochs[at];
        let no_segments = !self.tracks.iter().any(|t| t.segments.iter().any(|s| s.epoch == epoch.id));
        let window_us = signed(self.settings.window_ms * 1000);
        no_segments && epoch.end_us.is_none_or(|end| now - end > window_us)
    }

    /// Where an epoch is said to end that the next one follows: there or, where the source was away between them, a
    /// little before the first of its tracks has nothing more to play. A track that ended long before others of its kind
    /// does not count: what is played is one of those.
    pub(super) fn period_end_us(&self, epoch: &Epoch, next: &Timeline, now: i64) -> i64 {
        let Some(timeline) = &epoch.timeline else { return next.start_us };
        let tracks = epoch.members.iter().map(|m| (m.track, Kind::of(&m.info))).filter(|t| t.1 != Kind::Text);
        let ends: Vec<(usize, Kind, i64)> =
            tracks.filter_map(|(t, kind)| Some((t, kind, self.track_end_us(t, epoch)?))).collect();
        let last_of = |kind| ends.iter().filter(|e| e.1 == kind).map(|e| e.2).max().unwrap_or(next.start_us);
        let lasted = || ends.iter().filter(|e| last_of(e.1) - e.2 <= timeline.segment_us());
        let has_hole = |&&(track, _, end_us): &&(usize, Kind, i64)| {
            next.start_us - end_us > HOLE_US_MIN && !self.goes_on(track, end_us, epoch, next, now)
        };
        match lasted().map(|e| e.2).min() {
            Some(first_us) if first_us > timeline.start_us && lasted().any(|e| has_hole(&e)) => {
                let is_short = first_us - timeline.start_us < 2 * EPOCH_TAIL_US;
                if is_short { first_us } else { first_us - EPOCH_TAIL_US }
            }
            _ => next.start_us,
        }
    }

    /// Whether a track that has come up to `end_us` has no hole before the next epoch: what came of it there begins where
    /// it ended, or more of it is on its way.
    fn goes_on(&self, track: usize, end_us: i64, epoch: &Epoch, next: &Timeline, now: i64) -> bool {
        let track = &self.tracks[track];
        if track.epoch == Some(epoch.id) {
            return now - track.arrived_us <= self.chunk_us(track) + STRAGGLERS_US;
        }
        let wall_us = |time| next.wall_us(time, track.info.timescale);
        let kept = track.pending.iter().find(|(c, _)| wall_us(c.time + c.half()) >= next.start_us);
        kept.is_some_and(|(first, _)| wall_us(first.time) - end_us <= HOLE_US_MIN)
    }

    /// Wall clock at which the segments of a track in an epoch end.
    fn track_end_us(&self, track: usize, epoch: &Epoch) -> Option<i64> {
        let (timeline, track) = (epoch.timeline.as_ref()?, &self.tracks[track]);
        let whole = track.segments.iter().rev().find(|s| s.epoch == epoch.id).map(|s| s.end_wall_us);
        let current = track.current.as_ref().filter(|_| track.epoch == Some(epoch.id));
        whole.max(current.map(|c| timeline.wall_us(c.end, track.info.timescale)))
    }

    /// Wall clock at which the segments of an epoch end.
    pub(super) fn content_end_us(&self, epoch: u64) -> Option<i64> {
        let epoch = self.epoch(epoch)?;
        (0..self.tracks.len()).filter_map(|track| self.track_end_us(track, epoch)).max()
    }
}

/// Frames per second, reduced.
pub(super) fn frame_rate(timescale: u32, sample_duration: u32) -> (u32, u32) {
    let divisor = gcd(timescale, sample_duration).max(1);
    (timescale / divisor, sample_duration / divisor)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Duration of a chunk in microseconds.
pub(super) fn chunk_us(chunk: &ChunkIn, timescale: u32) -> u64 {
    micros(chunk.duration, timescale)
}
