//! Segmentation: groups a track's chunks into segments on its epoch's grid.
//!
//! A video segment begins with a sync sample at or after its grid point, or at most half a chunk
//! before it. A segment of any other track begins with the chunk that contains its grid point. A
//! player seeking to a segment's start requests only that segment, and some players (dash.js) stall
//! permanently if its media begins later. Segments may begin late only in tracks with chunks longer
//! than half a segment, such as tracks sent in whole segments.
//!
//! A segment is complete as soon as its last chunk reaches the next grid point, without waiting for
//! the next chunk. If later sync samples turn out to be off the grid, segments are cut at those
//! samples instead, and always before a segment exceeds the playlists' target duration.
//!
//! In every track, the first segment of an epoch begins at most half a chunk early; earlier media
//! belongs to the previous epoch.

use super::timeline::Timeline;
use super::track::{CompleteSegment, OpenSegment};
use super::{Channel, Effect, IncomingChunk, Note, Outcome, timeline::signed};
use thalweg_media::presentation::{Bitrate, Kind, micros, rate, rescale};
use thalweg_media::track::TrackInfo;

/// Maximum rounding error of source timestamps. Some protocols have only millisecond resolution.
const ROUNDING_MS: u64 = 2;

impl Channel {
    /// Appends a chunk to a segment of a published epoch.
    pub(super) fn place(
        &mut self,
        index: usize,
        timeline: &Timeline,
        chunk: IncomingChunk,
        now: i64,
    ) -> Outcome {
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
        let Some(current) = &mut track.current else { unreachable!("the chunk's segment is open") };
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

    pub(super) fn begins_segment(&self, index: usize, timeline: &Timeline, chunk: &IncomingChunk) -> bool {
        let track = &self.tracks[index];
        let Some(current) = &track.current else { return true };
        let timescale = track.info.timescale;
        let border = timeline.grid(current.number + 1, timescale);
        let reached = chunk.time + tolerance(timeline, chunk, &track.info) >= border;
        // A length of n.5 s is rounded up (RFC 8216bis §4.4.3.1); the extra microsecond absorbs
        // earlier rounding.
        let length_us = micros(chunk.end().saturating_sub(current.time), timescale);
        let overlong = length_us + 500_001 >= (self.target_duration_s + 1) * 1_000_000;
        chunk.sync && reached || overlong
    }

    fn begin_segment(
        &mut self,
        index: usize,
        timeline: &Timeline,
        chunk: &IncomingChunk,
        lag_us: i64,
        now: i64,
    ) {
        let track = &mut self.tracks[index];
        let number = timeline.number_at(chunk.time, track.info.timescale).max(track.next_number);
        let irregular = !chunk.sync;
        track.irregular |= irregular && track.completed_early;
        track.completed_early = false;
        track.begun = true;
        track.next_number = number + 1;
        track.lag_us = Some((lag_us, lag_us));
        track.current = Some(OpenSegment {
            number,
            time: chunk.time,
            end: chunk.time,
            touched_us: now,
            sync: chunk.sync,
        });
        self.effects.push(Effect::Begin { track: index, number });
        if irregular {
            self.note(Note::Irregular { track: index, number });
        }
    }

    /// Completes the segment being filled, if any.
    pub(super) fn complete_current(&mut self, index: usize) {
        let track = &mut self.tracks[index];
        let Some(current) = track.current.take() else { return };
        let Some(epoch) = track.epoch else { unreachable!("every open segment belongs to an epoch") };
        let timeline = self.epochs.iter().find(|e| e.id == epoch).and_then(|e| e.timeline.as_ref());
        let timescale = track.info.timescale;
        let sequence = track.next_sequence.unwrap_or(current.number);
        track.next_sequence = Some(sequence + 1);
        let duration = current.end - current.time;
        track.segments.push_back(CompleteSegment {
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

    /// Drops a segment whose bytes could not be stored; the track resumes at the next sync sample.
    pub(crate) fn drop_segment(&mut self, index: usize, number: u64) {
        let track = &mut self.tracks[index];
        track.current.take_if(|c| c.number == number);
        track.segments.retain(|s| s.number != number);
        track.begun = false;
        self.effects.push(Effect::Evict { track: index, number });
    }

    /// Returns whether the source has permanently fallen behind its epoch's clock: every chunk of
    /// its last segment arrived more than a segment duration late, and the lag was not shrinking.
    pub(super) fn is_late(&self, index: usize, chunk: &IncomingChunk) -> bool {
        let track = &self.tracks[index];
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        let (Some(timeline), Some((first, last))) = (timeline, track.lag_us) else { return false };
        let segment_us = timeline.segment_us();
        chunk.sync
            && self.begins_segment(index, timeline, chunk)
            && last > segment_us
            && first - last < segment_us / 2
    }

    /// Sets a track's manifest attributes from its first chunk in an epoch.
    fn describe_member(&mut self, index: usize, chunk: &IncomingChunk) {
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

/// Returns how far before a segment's grid point its first chunk may begin, in the track's
/// timescale.
fn tolerance(timeline: &Timeline, chunk: &IncomingChunk, info: &TrackInfo) -> u64 {
    if Kind::of(info) == Kind::Video {
        return half_a_chunk(timeline, chunk, info.timescale);
    }
    // A chunk that ends after the grid point by no more than the rounding error does not count as
    // containing it.
    let early = chunk.duration.saturating_sub(rescale(ROUNDING_MS, 1000, info.timescale));
    // Beyond half a segment, another grid point is nearer.
    let nearest = rescale(timeline.segment, timeline.timescale, info.timescale) / 2;
    early.min(nearest.saturating_sub(1))
}

/// Returns half the chunk's duration, but at most a quarter of a segment, in units of `timescale`.
fn half_a_chunk(timeline: &Timeline, chunk: &IncomingChunk, timescale: u32) -> u64 {
    chunk.half().min(rescale(timeline.segment, timeline.timescale, timescale) / 4)
}
