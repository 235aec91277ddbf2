//! Epoch publication: chunks are queued until the segment duration is known.
//!
//! The reference is a video track or, without video, an audio track. The segment duration is the
//! time from the reference's first sync sample to the next one at least `segment_target` later; for
//! audio, it is the smallest whole number of chunks that reaches the target. If the reference's
//! header is unchanged from the previous epoch, that epoch's duration is reused and the new epoch
//! is published as soon as its first chunk arrives.

use super::epoch::{Epoch, Follow, chunk_us};
use super::outcome::{PENDING_BYTES_MAX, SEGMENT_US_MAX};
use super::timeline::{Timeline, signed};
use super::{Cause, Channel, GATHER_GRACE_US, IncomingChunk, Note, Outcome, Refusal};
use thalweg_media::presentation::{Bitrate, Kind, micros, rate, rescale};

/// Maximum allowance in EXT-X-TARGETDURATION for segments lengthened to whole chunks.
const TARGET_SLACK_US_MAX: u64 = 250_000;

/// Minimum time between the starts of two epochs: the time resolution of manifests.
const EPOCH_US_MIN: i64 = 1000;

/// Maximum delay of an epoch's start to align it with a whole number of media time units. 40 ms
/// suffices for 11,025 Hz.
const EPOCH_STEP_MS_MAX: i64 = 40;

/// Parameters for publishing an epoch.
struct Plan {
    reference: usize,
    /// Duration of a segment in the reference's timescale.
    segment: u64,
}

impl Channel {
    /// Queues a chunk until its epoch is published.
    pub(super) fn gather(
        &mut self,
        index: usize,
        chunk: IncomingChunk,
        now: i64,
    ) -> Result<Outcome, Refusal> {
        if self.tracks[index].pending.is_empty() && !chunk.sync {
            return Ok(Outcome::NotSync);
        }
        let pending = self.tracks.iter().flat_map(|t| &t.pending).map(|(c, _)| c.bytes.len() as u64);
        if pending.sum::<u64>() + chunk.bytes.len() as u64 > PENDING_BYTES_MAX {
            return Err(self.drop_pending(Refusal::TooMuchPending));
        }
        self.tracks[index].pending.push((chunk, now));
        self.try_publish(now);
        let track = &self.tracks[index];
        let span_us = track.pending.first().map_or(0, |(first, _)| {
            signed(micros(track.edge.saturating_sub(first.time), track.info.timescale))
        });
        if span_us > SEGMENT_US_MAX {
            let refusal = Refusal::NoSyncSample { track: track.name.clone() };
            return Err(self.drop_pending(refusal));
        }
        Ok(Outcome::Taken)
    }

    /// Drops all pending chunks, which cannot form a segment and would block later chunks. Returns
    /// `refusal`.
    fn drop_pending(&mut self, refusal: Refusal) -> Refusal {
        for track in &mut self.tracks {
            track.pending.clear();
        }
        refusal
    }

    /// Publishes the newest epoch if its segment duration and tracks are known.
    pub(super) fn try_publish(&mut self, now: i64) {
        let Some(newest) = self.epochs.back() else { return };
        if newest.timeline.is_some() {
            return;
        }
        let Some(plan) = self.plan(newest, now) else { return };
        if !self.takes_over(newest, plan.reference) && !self.all_tracks_ready(newest, &plan) {
            let ready_us = newest.ready_us.unwrap_or(now);
            if let Some(newest) = self.epochs.back_mut() {
                newest.ready_us = Some(ready_us);
            }
            if now - ready_us < GATHER_GRACE_US {
                return;
            }
        }
        self.publish_epoch(&plan, now);
    }

    fn plan(&self, epoch: &Epoch, now: i64) -> Option<Plan> {
        let of_kind = |video: bool| {
            let mut with_pending = epoch.members.iter().filter(|m| !self.tracks[m.track].pending.is_empty());
            with_pending.find(|m| (Kind::of(&m.info) == Kind::Video) == video).map(|m| m.track)
        };
        if let Some(reference) = of_kind(true) {
            let reused = self.last_segment_duration(epoch, reference);
            return reused.or_else(|| self.measure(reference)).map(|segment| Plan { reference, segment });
        }
        let reference = of_kind(false)?;
        if self.video_may_come(epoch) && now - epoch.begun_us < self.gather_us_max(epoch) {
            return None;
        }
        let segment =
            self.last_segment_duration(epoch, reference).or_else(|| self.segment_from_chunks(reference))?;
        Some(Plan { reference, segment })
    }

    /// Returns whether an epoch without video still expects a video track.
    fn video_may_come(&self, epoch: &Epoch) -> bool {
        let is_video = |index: usize| Kind::of(&self.tracks[index].info) == Kind::Video;
        let new = |(_, t): &(usize, &super::Track)| t.epoch.is_none();
        epoch.expected.iter().any(|&i| is_video(i))
            || self.tracks.iter().enumerate().filter(new).any(|(i, _)| is_video(i))
    }

    /// Returns how long the publication of an epoch waits for its video, in microseconds.
    fn gather_us_max(&self, epoch: &Epoch) -> i64 {
        let last = self.epochs.iter().rev().filter(|e| e.id < epoch.id).find_map(|e| e.timeline.as_ref());
        let target_us = i64::from(self.settings.segment_target_ms) * 1000;
        2 * last.map_or(target_us, Timeline::segment_us) + GATHER_GRACE_US
    }

    /// Returns the previous epoch's segment duration, if the reference's header is unchanged.
    fn last_segment_duration(&self, epoch: &Epoch, reference: usize) -> Option<u64> {
        let last = self.epochs.iter().rev().find(|e| e.id < epoch.id && e.timeline.is_some())?;
        let timeline = last.timeline.as_ref()?;
        let same_header = last.member(reference)?.header == self.tracks[reference].header;
        let exact = rescale(timeline.segment, timeline.timescale, self.tracks[reference].info.timescale);
        same_header.then_some(exact)
    }

    fn takes_over(&self, epoch: &Epoch, reference: usize) -> bool {
        self.last_segment_duration(epoch, reference).is_some()
    }

    /// Returns the time from the reference's first sync sample to the next one that reaches the
    /// minimum segment duration, or misses it by at most half a chunk.
    fn measure(&self, reference: usize) -> Option<u64> {
        let track = &self.tracks[reference];
        let target = rescale(u64::from(self.settings.segment_target_ms), 1000, track.info.timescale);
        let first = track.pending.first()?.0.time;
        let far_enough = |c: &IncomingChunk| c.sync && c.time > first && c.time - first + c.half() >= target;
        let next = track.pending.iter().map(|(c, _)| c).find(|c| far_enough(c))?;
        Some(next.time - first)
    }

    /// Returns the duration of the fewest whole chunks that reach the minimum segment duration, or
    /// miss it by at most half a chunk; `None` until those chunks have arrived.
    fn segment_from_chunks(&self, reference: usize) -> Option<u64> {
        let track = &self.tracks[reference];
        let target = rescale(u64::from(self.settings.segment_target_ms), 1000, track.info.timescale);
        let first = &track.pending.first()?.0;
        let chunk = first.duration.max(1);
        let segment = chunk * ((target.saturating_sub(first.half())).div_ceil(chunk)).max(1);
        (track.edge - first.time >= segment).then_some(segment)
    }

    /// Returns whether every track of the channel has reached the end of the reference track's
    /// first segment.
    fn all_tracks_ready(&self, epoch: &Epoch, plan: &Plan) -> bool {
        let reference = &self.tracks[plan.reference];
        let Some((first, _)) = reference.pending.first() else { return false };
        let end_us = micros(first.time + plan.segment, reference.info.timescale);
        self.tracks.iter().enumerate().all(|(index, track)| {
            let text = Kind::of(&track.info) == Kind::Text;
            let slack_us = track.pending.last().map_or(0, |(c, _)| micros(c.half(), track.info.timescale));
            let here = epoch.member(index).is_some();
            text || here && micros(track.edge, track.info.timescale) + slack_us >= end_us
        })
    }

    fn publish_epoch(&mut self, plan: &Plan, now: i64) {
        let Some(timeline) = self.timeline(plan) else { return };
        let chunk_us_max = rescale(timeline.chunk, timeline.timescale, 1_000_000);
        let segment_us = timeline.segment_us();
        let target_us = segment_us.cast_unsigned() + (chunk_us_max / 2).min(TARGET_SLACK_US_MAX);
        let target_us = target_us.max(chunk_us_max);
        // The first epoch sets the target duration. A later epoch with longer segments must raise
        // it (RFC 8216bis §4.4.3.1).
        self.target_duration_s = self.target_duration_s.max((target_us + 500_000) / 1_000_000).max(1);
        self.availability_start_us.get_or_insert(timeline.start_us);
        self.published_us = now;
        let last_end = self.last_published().map(|e| self.period_end_us(e, &timeline, now));
        if let Some(last) = self.epochs.iter_mut().rev().find(|e| e.timeline.is_some()) {
            last.end_us = last_end;
        }
        let Some(newest) = self.epochs.back_mut() else { return };
        newest.timeline = Some(timeline.clone());
        let id = newest.id;
        self.note(Note::Published { id, segment_us: segment_us.cast_unsigned() });
        for index in 0..self.tracks.len() {
            if self.tracks[index].epoch == Some(id) {
                self.flush(index, &timeline);
            }
        }
    }

    /// Moves pending chunks into segments.
    fn flush(&mut self, index: usize, timeline: &Timeline) {
        let pending = std::mem::take(&mut self.tracks[index].pending);
        self.tracks[index].next_number = self.tracks[index].next_number.max(timeline.start_number);
        let bitrate = self.bitrate(index, &pending);
        if let Some(member) =
            self.epochs.back_mut().and_then(|e| e.members.iter_mut().find(|m| m.track == index))
        {
            member.bitrate = bitrate;
        }
        for (chunk, received_us) in pending {
            self.place(index, timeline, chunk, received_us);
        }
    }

    /// Returns the track's bitrate in the previous epoch if its header is unchanged; otherwise
    /// measures the bitrate over the pending chunks.
    fn bitrate(&self, index: usize, pending: &[(IncomingChunk, i64)]) -> Bitrate {
        let track = &self.tracks[index];
        let same = |m: &&super::epoch::Member| m.header == track.header;
        if let Some(member) = self.epochs.iter().rev().skip(1).find_map(|e| e.member(index)).filter(same) {
            return member.bitrate;
        }
        let bytes = pending.iter().map(|(c, _)| c.bytes.len() as u64).sum();
        let duration = pending.iter().map(|(c, _)| c.duration).sum();
        rate::measure_sizes(&[(bytes, duration)], track.info.timescale)
    }

    fn last_published(&self) -> Option<&Epoch> {
        self.epochs.iter().rev().find(|e| e.timeline.is_some())
    }

    fn timeline(&self, plan: &Plan) -> Option<Timeline> {
        let newest = self.epochs.back()?;
        let reference = &self.tracks[plan.reference];
        let timescale = reference.info.timescale;
        let media_start = reference.pending.first()?.0.time;
        let members = || newest.members.iter().map(|m| &self.tracks[m.track]);
        let pending = || members().flat_map(|t| t.pending.iter().map(|(c, at)| (c, *at, t.info.timescale)));
        let chunk_us_max = pending().map(|(c, _, timescale)| chunk_us(c, timescale)).max()?;
        let media_start_us = signed(micros(media_start, timescale));
        // Wall-clock time at which `media_start` was live, according to the chunk that arrived
        // soonest after its end.
        let arrived =
            pending().map(|(c, at, timescale)| at - signed(micros(c.end(), timescale)) + media_start_us);
        let mut start_us = arrived.min()?;
        let (start_number, mut shift);
        match self.last_published() {
            None => {
                start_us = start_us.div_euclid(1000) * 1000;
                start_number = first_number(start_us, micros(plan.segment, timescale));
                shift = 0;
            }
            Some(last) => {
                let timed = matches!(newest.follow, Follow::ByTime { .. }) && newest.cause != Cause::Late;
                let clock = last.timeline.as_ref()?;
                start_us = match self.content_end_us(last.id) {
                    _ if timed => clock.wall_us(media_start, timescale),
                    content_end => start_us.max(content_end.unwrap_or(start_us)),
                };
                start_us = start_us.max(clock.start_us + EPOCH_US_MIN);
                if !timed {
                    // A Period that starts at a whole number of media time units starts exactly at
                    // its first sample. With another start, rounding could put that sample before
                    // the Period, and a player would drop it and every sample that depends on it.
                    let step_us = whole_units_us(timescale);
                    let since = self.availability_start_us.unwrap_or(clock.start_us);
                    start_us = since + (start_us - since + step_us - 1).div_euclid(step_us) * step_us;
                }
                let next_number = self.tracks.iter().map(|t| t.next_number).max().unwrap_or(0);
                start_number = clock.number_from(start_us).max(next_number);
                shift = if timed {
                    clock.shift(timescale)
                } else {
                    clock.served_time_at(start_us, timescale) - media_start.cast_signed()
                };
            }
        }
        // Round up, because a segment must not be announced before its first chunk is complete.
        let chunk = u128::from(chunk_us_max) * u128::from(timescale);
        let chunk = u64::try_from(chunk.div_ceil(1_000_000)).unwrap_or(u64::MAX).min(plan.segment);
        if !self.can_shift(newest) {
            shift = 0;
        }
        Some(Timeline { timescale, media_start, segment: plan.segment, chunk, start_us, start_number, shift })
    }

    /// Returns whether an epoch's times can be shifted. They cannot if the epoch has a TTML track,
    /// because TTML samples contain times of their own. Tracks that may still join count as well.
    fn can_shift(&self, epoch: &Epoch) -> bool {
        let in_it = |index: usize| epoch.member(index).is_some() || epoch.expected.contains(&index);
        let mut tracks = self.tracks.iter().enumerate().filter(|(i, t)| in_it(*i) || t.epoch.is_none());
        !tracks.any(|(_, t)| t.info.codec.starts_with("stpp"))
    }
}

/// Returns the shortest duration that is a whole number of milliseconds and of timescale units, in
/// microseconds. Returns 1 ms if that duration would exceed `EPOCH_STEP_MS_MAX`.
fn whole_units_us(timescale: u32) -> i64 {
    let whole = |ms: &i64| ms * i64::from(timescale) % 1000 == 0;
    (1..=EPOCH_STEP_MS_MAX).find(whole).unwrap_or(1) * 1000
}

/// Exclusive upper bound of a channel's first segment number. `@startNumber` has 32 bits, so half
/// the range remains for later numbers.
const FIRST_NUMBERS: u64 = 1 << 31;

/// Derives the first segment number from the wall clock, so that a channel does not reuse segment
/// names still in caches after the origin restarts.
fn first_number(start_us: i64, segment_us: u64) -> u64 {
    start_us.max(0).cast_unsigned() / segment_us.max(1) % FIRST_NUMBERS
}
