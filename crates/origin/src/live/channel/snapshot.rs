//! Read access to a channel: manifest model, segments and headers.

use super::epoch::{Epoch, Member};
use super::timeline::{Timeline, signed};
use super::{Channel, SEGMENT_IDLE_US};
use bytes::Bytes;
use thalweg_media::presentation::live::{self, Live, LiveSegment, LiveTrack, Produced};
use thalweg_media::presentation::utc::Utc;
use thalweg_media::presentation::{Kind, micros, rescale};

/// Maximum plausible time from capture to arrival. If it is exceeded, the source's clock is wrong.
const PRFT_AGE_US_MAX: i64 = 10_000_000;

/// The result of looking up a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentLookup {
    /// The segment exists, complete or not; carries the index of its track.
    Available(usize),
    /// The segment is about to begin.
    Pending,
    /// The segment has left the window or is not expected.
    Missing,
}

/// The result of looking up a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderLookup {
    /// The header exists.
    Available(Bytes),
    /// The track is expected to enter the epoch.
    Pending,
    /// The header does not exist.
    Missing,
}

impl Channel {
    /// Returns the model from which manifests are written; `None` before the first epoch is
    /// published.
    pub(crate) fn live(&self) -> Option<Live> {
        let availability_start_us = self.availability_start_us?;
        let published = self.epochs.iter().filter_map(|e| Some((e, e.timeline.as_ref()?)));
        Some(Live {
            availability_start: Utc::from_micros(availability_start_us),
            published: Utc::from_micros(self.published_us),
            window_ms: self.settings.window_ms,
            target_duration_s: self.target_duration_s,
            epochs: published
                .map(|(e, timeline)| self.live_epoch(e, timeline, availability_start_us))
                .collect(),
        })
    }

    /// Returns the segment duration of the newest epoch in milliseconds; before publication, the
    /// minimum.
    pub(crate) fn segment_ms(&self) -> u64 {
        let timeline = self.epochs.iter().rev().find_map(|e| e.timeline.as_ref());
        let target = u64::from(self.settings.segment_target_ms);
        timeline.map_or(target, |t| t.segment_us().cast_unsigned() / 1000)
    }

    /// Returns the start of the first epoch.
    pub(crate) fn since(&self) -> Option<Utc> {
        self.availability_start_us.map(Utc::from_micros)
    }

    /// Returns whether the channel has nothing left to play and has received nothing for the length
    /// of its window.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        let nothing = |t: &super::Track| t.uploads == 0 && t.current.is_none() && t.segments.is_empty();
        let window_us = signed(self.settings.window_ms * 1000);
        now - self.touched_us > window_us && self.tracks.iter().all(nothing)
    }

    /// Returns whether the source has been silent for longer than it takes to produce a segment.
    fn is_idle(&self, timeline: &Timeline, now: i64) -> bool {
        now - self.touched_us > SEGMENT_IDLE_US + timeline.segment_us()
    }

    /// Looks up a segment of a track.
    pub(crate) fn segment(&self, track: &str, number: u64, now: i64) -> SegmentLookup {
        let Some(index) = self.tracks.iter().position(|t| t.name == track) else {
            return SegmentLookup::Missing;
        };
        let track = &self.tracks[index];
        let current = track.current.as_ref().is_some_and(|c| c.number == number);
        if current || track.segments.iter().any(|s| s.number == number) {
            return SegmentLookup::Available(index);
        }
        let Some(newest) = self.epochs.back() else { return SegmentLookup::Missing };
        let Some(timeline) = &newest.timeline else {
            return if number >= track.next_number { SegmentLookup::Pending } else { SegmentLookup::Missing };
        };
        let soon = timeline.segment_wall_us(number) <= now + timeline.segment_us();
        if number >= track.next_number && soon && !self.is_idle(timeline, now) {
            SegmentLookup::Pending
        } else {
            SegmentLookup::Missing
        }
    }

    /// Returns the header of a track in the epoch whose first segment has the number
    /// `start_number`.
    pub(crate) fn header_of(&self, track: &str, start_number: u64) -> HeaderLookup {
        let starts = |e: &&Epoch| e.timeline.as_ref().is_some_and(|t| t.start_number == start_number);
        let index = self.tracks.iter().position(|t| t.name == track);
        let (Some(index), Some(epoch)) = (index, self.epochs.iter().find(starts)) else {
            return HeaderLookup::Missing;
        };
        match epoch.member(index) {
            Some(member) => HeaderLookup::Available(member.header.clone()),
            None if epoch.expected.contains(&index) => HeaderLookup::Pending,
            None => HeaderLookup::Missing,
        }
    }

    fn live_epoch(&self, epoch: &Epoch, timeline: &Timeline, availability_start_us: i64) -> live::Epoch {
        let since = |us: i64| u64::try_from(us - availability_start_us).unwrap_or(0);
        let mut members: Vec<(&Member, Option<Produced>, bool)> =
            epoch.members.iter().map(|m| (m, produced(m, timeline), true)).collect();
        // List expected tracks from the start, because players do not look for tracks that appear
        // later.
        let expected = epoch.expected.iter().filter_map(|&t| self.last_member(t));
        members.extend(expected.map(|(m, last)| (m, produced(m, last), false)));
        members.sort_by_key(|(m, ..)| (Kind::of(&m.info), m.track));
        let tracks = members.iter().map(|(m, produced, here)| {
            self.live_track(m, here.then_some(epoch.id), timeline, produced.is_some())
        });
        let tracks = tracks.collect();
        live::Epoch {
            id: epoch.id,
            start_us: since(timeline.start_us),
            end_us: epoch.end_us.map(since),
            timescale: timeline.timescale,
            media_start: timeline.served(timeline.media_start, timeline.timescale),
            segment_duration: timeline.segment,
            chunk_duration: timeline.chunk,
            produced: members.iter().find_map(|(_, produced, here)| produced.filter(|_| *here)),
            start_number: timeline.start_number,
            tracks,
        }
    }

    /// Returns a track's attributes in the last epoch it was in, and that epoch's timeline.
    fn last_member(&self, track: usize) -> Option<(&Member, &Timeline)> {
        self.epochs.iter().rev().find_map(|e| Some((e.member(track)?, e.timeline.as_ref()?)))
    }

    fn live_track(
        &self,
        member: &Member,
        epoch: Option<u64>,
        timeline: &Timeline,
        inband_prft: bool,
    ) -> LiveTrack {
        let track = &self.tracks[member.track];
        let segments = track.segments.iter().filter(|s| Some(s.epoch) == epoch);
        let segments = segments.map(|s| LiveSegment {
            sequence: s.sequence,
            number: s.number,
            time: timeline.served(s.time, track.info.timescale),
            duration: s.duration,
            sync: s.sync,
        });
        LiveTrack {
            name: track.name.clone(),
            info: member.info.clone(),
            frame_rate: member.frame_rate,
            bitrate: member.bitrate,
            inband_prft,
            segments: segments.collect(),
        }
    }
}

/// Returns the capture time reported by the source (prft), if plausible.
///
/// A frame is captured before its chunk is complete, so a capture time cannot be later than the
/// time that the epoch's clock gives for the frame. ffmpeg's `-write_prft wallclock` reports when
/// it wrote the moof, which is later than the capture; a player that used this time would lag by
/// the difference.
fn produced(member: &Member, timeline: &Timeline) -> Option<Produced> {
    let prft = member.prft?;
    let wall_us = i64::try_from(prft.unix_time()?.as_micros()).ok()?;
    let latest_us = timeline.wall_us(prft.media_time, member.info.timescale);
    if !(0..=PRFT_AGE_US_MAX).contains(&(latest_us - wall_us)) {
        return None;
    }
    let media_time = rescale(micros(prft.media_time, member.info.timescale), 1_000_000, timeline.timescale);
    let media_time = timeline.served(media_time, timeline.timescale);
    Some(Produced { wall: Utc(signed(wall_us.cast_unsigned()) / 1000), media_time })
}
