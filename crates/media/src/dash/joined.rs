//! MPD of joined presentations: one Period for each entry.

use super::on_demand::write_sets;
use super::{Duration, PROFILE_CMAF, PROFILE_LIVE, Xml, begin_mpd};
use crate::presentation::joined::Joined;

/// Writes the static MPD of joined presentations. Each Period has a BaseURL relative to the MPD,
/// `../NAME/`, so its segment URLs are those of the entry's own MPD. A clip that begins within a
/// segment starts with that segment; `@presentationTimeOffset` says where.
pub fn joined(joined: &Joined<'_>) -> String {
    let segment_us_max = joined.entries.iter().map(|e| e.media().segment_us_max()).max().unwrap_or(0);
    let mut xml = Xml::new();
    let renditions: Vec<_> = joined.entries.iter().map(|entry| entry.media().renditions()).collect();
    begin_mpd(&mut xml, renditions.iter().flatten().copied());
    xml.attr("profiles", format_args!("{PROFILE_LIVE},{PROFILE_CMAF}"))
        .attr("type", "static")
        .attr("mediaPresentationDuration", Duration(joined.duration_us()))
        .attr("maxSegmentDuration", Duration(segment_us_max))
        .attr("minBufferTime", Duration(segment_us_max));
    let mut start_us = 0;
    for (id, (entry, renditions)) in joined.entries.iter().zip(&renditions).enumerate() {
        xml.begin("Period")
            .attr("id", id)
            .attr("start", Duration(start_us))
            .attr("duration", Duration(entry.duration_us()));
        xml.leaf("BaseURL", format_args!("../{}/", entry.path));
        write_sets(&mut xml, entry.media(), renditions);
        xml.end();
        start_us += entry.duration_us();
    }
    xml.end();
    xml.finish()
}
