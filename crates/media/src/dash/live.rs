//! Low-latency MPD of a live channel (DASH-IF CR Low-Latency Live, ISO/IEC 23009-1 §5.3.9.5).
//!
//! The MPD uses SegmentTemplate with `@duration` and `$Number$`. With UTCTiming, a player computes
//! the live edge itself and reloads the MPD only for a new epoch. Segment *n* of a Period is
//! available from `availabilityStartTime + Period@start + (n − startNumber + 1) × duration`, less
//! `availabilityTimeOffset`. At that time, its first chunk is complete.

use super::{
    Duration, PROFILE_CMAF, PROFILE_LIVE, Seconds, Xml, begin_mpd, begin_representation, begin_set,
    write_descriptors, write_role,
};
use crate::presentation::live::{Epoch, Live};
use crate::presentation::utc::Utc;
use crate::presentation::{Kind, Rendition, SwitchingSet, micros, micros_up, rescale, switching_sets};

const PROFILE_LOW_LATENCY: &str = "http://www.dashif.org/guidelines/low-latency-live-v5";
/// Target live latency for players, if chunks are short enough to allow it.
const LATENCY_TARGET_MS: u64 = 2000;
/// Minimum sustainable live latency, in chunks: one being produced, one arriving, one playing.
const LATENCY_CHUNKS_MIN: u64 = 3;
/// Lowest and highest playback rate that players may use to maintain the latency.
const PLAYBACK_RATE_MIN: &str = "0.96";
const PLAYBACK_RATE_MAX: &str = "1.04";

/// Writes the dynamic MPD of a channel. URLs are relative to the MPD: `TRACK/init-NUMBER.mp4` with
/// the epoch's first number, and `TRACK/NUMBER.m4s`.
pub fn live(live: &Live) -> String {
    let segment_us = max_us(live, |e| e.segment_duration);
    let chunk_us = max_us(live, |e| e.chunk_duration);
    let target_ms = LATENCY_TARGET_MS.max(LATENCY_CHUNKS_MIN * chunk_us / 1000);
    let mut xml = Xml::new();
    begin_mpd(&mut xml, live.epochs.iter().flat_map(Epoch::renditions));
    xml.attr("profiles", format_args!("{PROFILE_LIVE},{PROFILE_CMAF},{PROFILE_LOW_LATENCY}"))
        .attr("type", "dynamic")
        .attr("availabilityStartTime", live.availability_start)
        .attr("publishTime", live.published)
        .attr("minimumUpdatePeriod", Duration(segment_us))
        .attr("minBufferTime", Duration(chunk_us))
        .attr("timeShiftBufferDepth", Duration(live.window_ms * 1000))
        .attr("suggestedPresentationDelay", Duration((target_ms * 1000).max(segment_us)))
        .attr("maxSegmentDuration", Duration(segment_us));
    write_service_description(&mut xml, target_ms);
    for epoch in &live.epochs {
        write_period(&mut xml, live, epoch);
    }
    xml.begin("UTCTiming")
        .attr("schemeIdUri", "urn:mpeg:dash:utc:http-iso:2014")
        .attr("value", "/time")
        .end();
    xml.end();
    xml.finish()
}

fn max_us(live: &Live, of: impl Fn(&Epoch) -> u64) -> u64 {
    live.epochs.iter().map(|e| micros_up(of(e), e.timescale)).max().unwrap_or(0)
}

/// Writes the ServiceDescription; `@referenceId` refers to the ProducerReferenceTime of the first
/// AdaptationSet.
fn write_service_description(xml: &mut Xml, target_ms: u64) {
    xml.begin("ServiceDescription").attr("id", 0);
    xml.begin("Latency")
        .attr("referenceId", 0)
        .attr("target", target_ms)
        .attr("max", target_ms * 2)
        .attr("min", target_ms / 2)
        .end();
    xml.begin("PlaybackRate").attr("max", PLAYBACK_RATE_MAX).attr("min", PLAYBACK_RATE_MIN).end();
    xml.end();
}

fn write_period(xml: &mut Xml, live: &Live, epoch: &Epoch) {
    xml.begin("Period").attr("id", epoch.id).attr("start", Duration(epoch.start_us));
    if let Some(end_us) = epoch.end_us {
        xml.attr("duration", Duration(end_us.saturating_sub(epoch.start_us)));
    }
    let renditions = epoch.renditions();
    let sets = switching_sets(&renditions);
    for (id, set) in sets.iter().enumerate() {
        write_set(xml, live, epoch, &renditions, id, set);
    }
    xml.end();
}

fn write_set(
    xml: &mut Xml,
    live: &Live,
    epoch: &Epoch,
    renditions: &[Rendition<'_>],
    id: usize,
    set: &SwitchingSet,
) {
    let times = Times::new(epoch, renditions[set.members[0]].info.timescale);
    let independent = set.members.iter().all(|&m| epoch.tracks[m].segments.iter().all(|s| s.sync));
    begin_set(xml, id, set, renditions, independent);
    write_descriptors(xml, set, renditions, None);
    write_producer_reference_time(xml, live, epoch, &times, id, set);
    // Every audio chunk is a random access point; for video, only the first chunk of a segment is.
    let resync = if set.kind == Kind::Video { 0 } else { 1 };
    xml.begin("Resync").attr("type", resync).attr("dT", times.of(epoch.chunk_duration)).end();
    write_role(xml, set, renditions);
    write_template(xml, epoch, &times);
    for &member in &set.members {
        begin_representation(xml, set, renditions, member);
        xml.end();
    }
    xml.end();
}

fn write_template(xml: &mut Xml, epoch: &Epoch, times: &Times) {
    xml.begin("SegmentTemplate")
        .attr("timescale", times.timescale)
        .attr("presentationTimeOffset", times.of(epoch.media_start));
    if epoch.chunk_duration < epoch.segment_duration {
        let offset_us = micros(epoch.segment_duration - epoch.chunk_duration, epoch.timescale);
        xml.attr("availabilityTimeOffset", Seconds(offset_us)).attr("availabilityTimeComplete", "false");
    }
    xml.attr("duration", times.of(epoch.segment_duration))
        .attr("startNumber", epoch.start_number)
        .attr("media", "$RepresentationID$/$Number$.m4s")
        .attr("initialization", format_args!("$RepresentationID$/init-{}.mp4", epoch.start_number))
        .end();
}

/// Converts an epoch's times to the timescale of an AdaptationSet. This is the tracks' timescale
/// or, if rounding to it would make segments drift from their numbers, the epoch's.
struct Times {
    from: u32,
    timescale: u32,
}

impl Times {
    fn new(epoch: &Epoch, timescale: u32) -> Times {
        let exact = |time: u64| u128::from(time) * u128::from(timescale) % u128::from(epoch.timescale) == 0;
        let all = exact(epoch.media_start) && exact(epoch.segment_duration);
        Times { from: epoch.timescale, timescale: if all { timescale } else { epoch.timescale } }
    }

    fn of(&self, time: u64) -> u64 {
        rescale(time, self.from, self.timescale)
    }
}

/// Writes the wall clock at which a media time was encoded. It is taken from the source's prft
/// boxes or, without prft, from the arrival times of the chunks, which define the epoch's start.
fn write_producer_reference_time(
    xml: &mut Xml,
    live: &Live,
    epoch: &Epoch,
    times: &Times,
    id: usize,
    set: &SwitchingSet,
) {
    let arrived = Utc(live.availability_start.0 + (epoch.start_us / 1000).cast_signed());
    let (wall, media_time) = epoch.produced.map_or((arrived, epoch.media_start), |p| (p.wall, p.media_time));
    let inband = set.members.iter().all(|&m| epoch.tracks[m].inband_prft);
    xml.begin("ProducerReferenceTime")
        .attr("id", id)
        .attr("inband", inband)
        .attr("type", "encoder")
        .attr("wallClockTime", wall)
        .attr("presentationTime", times.of(media_time))
        .end();
}
