//! Cutting a track's chunks into segments on the grid of its epoch.
//!
//! A segment of video begins with a sync sample at or after its place on the grid, half a chunk's duration
//! early at most. One of another track begins with the chunk in which its place lies: a player that seeks to
//! the place of a segment asks for that one alone, and some (dash.js) stay there for good where it begins later. Only
//! one with chunks longer than half a segment may, as one that comes in whole segments of its own.
//! A segment is whole as soon as its last chunk reaches the next place, without waiting for
//! the chunk after it; a source whose sync samples then turn out to lie elsewhere gets its segments
//! cut where they come, and before they would be longer than the playlists' target duration allows.
//!
//! The first segment of an epoch begins half a chunk early at most in every track: what was before is the last epoch's.

use super::timeline::Timeline;
use super::track::{Current, Whole};
use super::{Channel, ChunkIn, Effect, Note, Outcome, timeline::signed};
use thalweg_media::presentation::{Bitrate, Kind, micros, rate, rescale};
use thalweg_media::track::TrackInfo;

/// How far the times of a source may be off, as those of protocols that count milliseconds are.
const ROUNDING_MS: u64 = 2;

impl Channel {
    /// Takes a chunk into a segment of a published epoch.
    pub(super) fn place(&mut self, index: usize, timeline: &Timeline, chunk: ChunkIn, now: i64) -> Outcome {
        let track = &self.tracks[index];
        if !track.begun && !chunk.sync {
            return Outcome::NotSync;
        }
        let start = timeline.grid(timeline.start_number, track.info.timescale);
        if !track.begun && chunk.time + half_a_chunk(timeline, &chunk, track.info.timescale) < start {
            return Outcome::Early;
        }
        let timescale = track.info.timescale;
        let Some(bytes) = chunk.served(timeline.shift(timescale), timescale) else {
            self.note(Note::Misfit { track: index, time: chunk.time });
            return Outcome::Misfit;
        };
        let lag_us = now - timeline.wall_us(chunk.end(), track.info.timescale);
        if self.begins_segment(index, timeline, &chunk) {
            self.complete_current(index);
            self.begin_segment(index, timeline, &chunk, lag_us, now);
        }
        self.describe_member(index, &chunk);
        let track = &mut self.tracks[index];
        let Some(current) = &mut track.current else { unreachable!("a segment was begun") };
        let number = current.number;
        current.end = chunk.end();
        current.touched_us = now;
        track.lag_us = track.lag_us.map(|(first, _)| (first, lag_us));
        let next = timeline.grid(number + 1, track.info.timescale);
        let whole = !track.irregular && chunk.end() + tolerance(timeline, &chunk, &track.info) >= next;
        self.effects.push(Effect::Append { track: index, number, bytes });
        if whole {
            self.complete_current(index);
            self.tracks[index].completed_early = true;
        }
        Outcome::Taken
    }

    pub(super) fn begins_segment(&self, index: usize, timeline: &Timeline, chunk: &ChunkIn) -> bool {
        let track = &self.tracks[index];
        let Some(current) = &track.current else { return true };
        let timescale = track.info.timescale;
        let border = timeline.grid(current.number + 1, timescale);
        let reached = chunk.time + tolerance(timeline, chunk, &track.info) >= border;
        // A length of n.5 s is rounded up (RFC 8216bis §4.4.3.1); a microsecond is left for rounding before that.
        let length_us = micros(chunk.end().saturating_sub(current.time), timescale);
        let overlong = length_us + 500_001 >= (self.target_duration_s + 1) * 1_000_000;
        chunk.sync && reached || overlong
    }

    fn begin_segment(&mut self, index: usize, timeline: &Timeline, chunk: &ChunkIn, lag_us: i64, now: i64) {
        let track = &mut self.tracks[index];
        let number = timeline.number_at(chunk.time, track.info.timescale).max(track.next_number);
        let irregular = !chunk.sync;
        track.irregular |= irregular && track.completed_early;
        track.completed_early = false;
        track.begun = true;
        track.next_number = number + 1;
        track.lag_us = Some((lag_us, lag_us));
        track.current =
            Some(Current { number, time: chunk.time, end: chunk.time, touched_us: now, sync: chunk.sync });
        self.effects.push(Effect::Begin { track: index, number });
        if irregular {
            self.note(Note::Irregular { track: index, number });
        }
    }

    /// Ends the segment that is being filled, if there is one.
    pub(super) fn complete_current(&mut self, index: usize) {
        let track = &mut self.tracks[index];
        let Some(current) = track.current.take() else { return };
        let Some(epoch) = track.epoch else { unreachable!("a segment is in an epoch") };
        let timeline = self.epochs.iter().find(|e| e.id == epoch).and_then(|e| e.timeline.as_ref());
        let timescale = track.info.timescale;
        let sequence = track.next_sequence.unwrap_or(current.number);
        track.next_sequence = Some(sequence + 1);
        let duration = current.end - current.time;
        track.segments.push_back(Whole {
            epoch,
            sequence,
            number: current.number,
            time: current.time,
            duration,
            sync: current.sync,
            duration_us: signed(micros(duration, timescale)),
            end_wall_us: timeline.map_or(current.touched_us, |t| t.wall_us(current.end, timescale)),
        });
        self.effects.push(Effect::Complete { track: index, number: current.number });
    }

    /// A segment whose bytes could not be kept is forgotten; the track goes on where decoding can start.
    pub(crate) fn lost(&mut self, index: usize, number: u64) {
        let track = &mut self.tracks[index];
        track.current.take_if(|c| c.number == number);
        track.segments.retain(|s| s.number != number);
        track.begun = false;
        self.effects.push(Effect::Evict { track: index, number });
    }

    /// Whether the source has fallen behind its epoch's clock for good: the whole of the last segment
    /// came more than a segment late, and it was not catching up.
    pub(super) fn is_late(&self, index: usize, chunk: &ChunkIn) -> bool {
        let track = &self.tracks[index];
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        let (Some(timeline), Some((first, last))) = (timeline, track.lag_us) else { return false };
        let segment_us = timeline.segment_us();
        chunk.sync
            && self.begins_segment(index, timeline, chunk)
            && last > segment_us
            && first - last < segment_us / 2
    }

    /// What manifests say of a track, as its first chunk in an epoch tells it.
    fn describe_member(&mut self, index: usize, chunk: &ChunkIn) {
        let track = &self.tracks[index];
        let epoch = self.epochs.iter_mut().find(|e| Some(e.id) == track.epoch);
        let Some(member) = epoch.and_then(|e| e.members.iter_mut().find(|m| m.track == index)) else {
            return;
        };
        member.prft = member.prft.or(chunk.prft);
        if member.frame_rate.is_none() && Kind::of(&member.info) == Kind::Video {
            let rate = |d| super::epoch::frame_rate(member.info.timescale, d);
            member.frame_rate = chunk.sample_duration.filter(|&d| d > 0).map(rate);
        }
        if member.bitrate == Bitrate::default() {
            let sizes = [(chunk.bytes.len() as u64, chunk.duration)];
            member.bitrate = rate::measure_sizes(&sizes, member.info.timescale);
        }
    }
}

/// How far before its place on the grid a segment may begin with a chunk.
fn tolerance(timeline: &Timeline, chunk: &ChunkIn, info: &TrackInfo) -> u64 {
    if Kind::of(info) == Kind::Video {
        return half_a_chunk(timeline, chunk, info.timescale);
    }
    // A chunk that reaches over the place by no more than times are rounded does not begin there.
    let early = chunk.duration.saturating_sub(rescale(ROUNDING_MS, 1000, info.timescale));
    // Half a segment away another place is as near.
    let nearest = rescale(timeline.segment, timeline.timescale, info.timescale) / 2;
    early.min(nearest.saturating_sub(1))
}

/// Half a chunk, but no more than a quarter of a segment.
fn half_a_chunk(timeline: &Timeline, chunk: &ChunkIn, timescale: u32) -> u64 {
    chunk.half().min(rescale(timeline.segment, timeline.timescale, timescale) / 4)
}
