//! MPD of an on-demand presentation, which uses SegmentTemplate with SegmentTimeline and `$Time$`.

use super::{
    Duration, NAMESPACE, PROFILE_CMAF, PROFILE_LIVE, Xml, begin_representation, begin_set, write_channels,
    write_role,
};
use crate::presentation::{NamedTrack, OnDemand, Rendition, SwitchingSet, switching_sets};

/// Writes the static MPD of a presentation. URLs are relative to the MPD: `TRACK/VERSION/init.mp4`
/// and `TRACK/VERSION/TIME.m4s`. Each Representation has a BaseURL because each track has its own
/// version.
pub fn on_demand(presentation: &OnDemand) -> String {
    let segment_us_max = presentation.segment_us_max();
    let mut xml = Xml::new();
    xml.begin("MPD")
        .attr("xmlns", NAMESPACE)
        .attr("profiles", format_args!("{PROFILE_LIVE},{PROFILE_CMAF}"))
        .attr("type", "static")
        .attr("mediaPresentationDuration", Duration(presentation.duration_us()))
        .attr("maxSegmentDuration", Duration(segment_us_max))
        .attr("minBufferTime", Duration(segment_us_max));
    xml.begin("Period").attr("id", 0).attr("start", Duration(0));
    write_sets(&mut xml, presentation);
    xml.end().end();
    xml.finish()
}

/// Writes the AdaptationSets of a Period.
pub(super) fn write_sets(xml: &mut Xml, presentation: &OnDemand) {
    let renditions = presentation.renditions();
    let sets = switching_sets(&renditions);
    for (id, set) in sets.iter().enumerate() {
        let first_of_kind = !sets[..id].iter().any(|s| s.kind == set.kind);
        write_set(xml, presentation, &renditions, id, set, first_of_kind);
    }
}

fn write_set(
    xml: &mut Xml,
    presentation: &OnDemand,
    renditions: &[Rendition<'_>],
    id: usize,
    set: &SwitchingSet,
    first_of_kind: bool,
) {
    begin_set(xml, id, set, renditions, true);
    write_channels(xml, set, renditions);
    write_role(xml, set, first_of_kind);
    let tracks = presentation.tracks();
    let shared = shares_timeline(tracks, set);
    if shared {
        write_template(xml, presentation, &tracks[set.members[0]]);
    }
    for &member in &set.members {
        begin_representation(xml, &renditions[member]);
        let NamedTrack { name, version, .. } = &tracks[member];
        xml.leaf("BaseURL", format_args!("{name}/{version}/"));
        if !shared {
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
