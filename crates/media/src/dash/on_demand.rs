//! MPD of an on-demand presentation, which uses SegmentTemplate with SegmentTimeline and `$Time$`.

use super::{
    Duration, PROFILE_CMAF, PROFILE_LIVE, Xml, begin_mpd, begin_representation, begin_set, is_file,
    write_descriptors, write_role,
};
use crate::presentation::sets::same_codec_family;
use crate::presentation::{NamedTrack, OnDemand, Rendition, SwitchingSet, switching_sets, trick_play_sets};
use crate::tiles::Tiles;

/// Name of a whole WebVTT file in URLs.
const FILE_NAME: &str = "subtitles.vtt";

/// Writes the static MPD of a presentation. URLs are relative to the MPD: `TRACK/VERSION/init.mp4`
/// and `TRACK/VERSION/TIME.m4s`. Each Representation has a BaseURL because each track has its own
/// version.
pub fn on_demand(presentation: &OnDemand) -> String {
    let segment_us_max = presentation.segment_us_max();
    // Images are segments too, but players do not wait for them before they begin to play.
    let images = presentation.tiles().iter().flat_map(|t| t.durations_us(presentation.duration_us()));
    let longest_us = images.fold(segment_us_max, u64::max);
    let mut xml = Xml::new();
    let renditions = presentation.renditions();
    begin_mpd(&mut xml, renditions.iter().copied());
    xml.attr("profiles", format_args!("{PROFILE_LIVE},{PROFILE_CMAF}"))
        .attr("type", "static")
        .attr("mediaPresentationDuration", Duration(presentation.duration_us()))
        .attr("maxSegmentDuration", Duration(longest_us))
        .attr("minBufferTime", Duration(segment_us_max));
    xml.begin("Period").attr("id", 0).attr("start", Duration(0));
    let count = write_sets(&mut xml, presentation, &renditions);
    for (i, tiles) in presentation.tiles().iter().enumerate() {
        write_tiles(&mut xml, presentation, count + i, tiles);
    }
    xml.end().end();
    xml.finish()
}

/// Writes a set of thumbnails (DASH-IF IOP §6.2.6).
fn write_tiles(xml: &mut Xml, presentation: &OnDemand, id: usize, tiles: &Tiles) {
    let Tiles { name, version, layout, format, size, .. } = tiles;
    let count = tiles.durations_us(presentation.duration_us()).count();
    xml.begin("AdaptationSet").attr("id", id);
    xml.attr("contentType", "image").attr("mimeType", format.media_type());
    xml.begin("SegmentTemplate")
        .attr("media", format_args!("$Number$.{}", format.extension()))
        .attr("duration", layout.image_seconds())
        .attr("startNumber", 1)
        .attr("endNumber", count)
        .end();
    xml.begin("Representation")
        .attr("id", name)
        .attr("bandwidth", tiles.bandwidth())
        .attr("width", size.0)
        .attr("height", size.1);
    xml.begin("EssentialProperty")
        .attr("schemeIdUri", "http://dashif.org/guidelines/thumbnail_tile")
        .attr("value", format_args!("{}x{}", layout.columns, layout.rows))
        .end();
    xml.leaf("BaseURL", format_args!("{name}/{version}/")).end().end();
}

/// Writes the AdaptationSets of a Period, except thumbnails. Returns their number.
pub(super) fn write_sets(xml: &mut Xml, presentation: &OnDemand, renditions: &[Rendition<'_>]) -> usize {
    let sets = switching_sets(renditions);
    let trick_play = trick_play_sets(renditions);
    for (id, set) in sets.iter().enumerate() {
        begin_set(xml, id, set, renditions, true);
        write_descriptors(xml, set, renditions, None);
        write_role(xml, set, renditions);
        write_members(xml, presentation, renditions, set);
    }
    for (i, set) in trick_play.iter().enumerate() {
        write_trick_play(xml, presentation, renditions, sets.len() + i, set, &sets);
    }
    sets.len() + trick_play.len()
}

/// Writes a set of trick-play tracks for the video set with the same codec or, without one, for the
/// first.
fn write_trick_play(
    xml: &mut Xml,
    presentation: &OnDemand,
    renditions: &[Rendition<'_>],
    id: usize,
    set: &SwitchingSet,
    sets: &[SwitchingSet],
) {
    let of = |set: &SwitchingSet| &renditions[set.members[0]];
    let same = |main: &SwitchingSet| main.kind == set.kind && same_codec_family(of(main).info, of(set).info);
    let main_id = sets.iter().position(same).unwrap_or(0);
    begin_set(xml, id, set, renditions, true);
    if let Some(((num, den), (slow_num, slow_den))) = of(&sets[main_id]).frame_rate.zip(of(set).frame_rate) {
        // At this playback rate, the set has as many frames per second as the main one.
        let rate = u64::from(num) * u64::from(slow_den) / (u64::from(den) * u64::from(slow_num)).max(1);
        xml.attr("maxPlayoutRate", rate.max(1));
    }
    xml.attr("codingDependency", "false");
    write_descriptors(xml, set, renditions, Some(main_id));
    write_members(xml, presentation, renditions, set);
}

/// Writes the Representations of a set, and closes it.
fn write_members(xml: &mut Xml, presentation: &OnDemand, renditions: &[Rendition<'_>], set: &SwitchingSet) {
    let tracks = presentation.tracks();
    let is_file = is_file(set, renditions);
    let shared = shares_timeline(tracks, set);
    if shared && !is_file {
        write_template(xml, presentation, &tracks[set.members[0]]);
    }
    for &member in &set.members {
        begin_representation(xml, set, renditions, member);
        let NamedTrack { name, version, .. } = &tracks[member];
        let file = if is_file { FILE_NAME } else { "" };
        xml.leaf("BaseURL", format_args!("{name}/{version}/{file}"));
        if !shared && !is_file {
            write_template(xml, presentation, &tracks[member]);
        }
        xml.end();
    }
    xml.end();
}

/// Returns whether all members have the same timescale and segments, so that one template describes
/// them.
fn shares_timeline(tracks: &[NamedTrack], set: &SwitchingSet) -> bool {
    let first = &tracks[set.members[0]];
    let same = |t: &NamedTrack| {
        t.index.info.timescale == first.index.info.timescale
            && t.segments().map(|s| (s.time, s.duration)).eq(first.segments().map(|s| (s.time, s.duration)))
    };
    set.members.iter().all(|&m| same(&tracks[m]))
}

fn write_template(xml: &mut Xml, presentation: &OnDemand, track: &NamedTrack) {
    let timescale = track.index.info.timescale;
    xml.begin("SegmentTemplate").attr("timescale", timescale);
    let start = presentation.start_in(timescale);
    if start != 0 {
        xml.attr("presentationTimeOffset", start);
    }
    xml.attr("media", "$Time$.m4s").attr("initialization", "init.mp4");
    xml.begin("SegmentTimeline");
    for run in runs(track) {
        xml.begin("S");
        if let Some(time) = run.time {
            xml.attr("t", time);
        }
        xml.attr("d", run.duration);
        if run.repeat > 0 {
            xml.attr("r", run.repeat);
        }
        xml.end();
    }
    xml.end().end();
}

/// A run of equally long segments, written as one `S` element.
struct Run {
    /// Start of the run, unless it starts where the previous run ended.
    time: Option<u64>,
    duration: u64,
    repeat: u64,
}

/// Groups a track's segments into runs of equal duration.
fn runs(track: &NamedTrack) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut end = None;
    for segment in track.segments() {
        let follows = end == Some(segment.time);
        end = Some(segment.time + segment.duration);
        match runs.last_mut() {
            Some(run) if follows && run.duration == segment.duration => run.repeat += 1,
            _ => {
                let time = (!follows).then_some(segment.time);
                runs.push(Run { time, duration: segment.duration, repeat: 0 });
            }
        }
    }
    runs
}
