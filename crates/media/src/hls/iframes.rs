//! I-frame playlists (§4.4.3.6): the first frame of each segment, for fast forward, rewind and seek
//! previews.
//!
//! Each entry is the start of a segment, up to the end of its first sample, as a byte range of the
//! segment's URL. A cache thus needs no further object for it.

use super::Attributes;
use super::media::{head, length_us, write_keys};
use crate::presentation::{Bitrate, NamedTrack, Rendition, Role, SwitchingSet};
use crate::track::Media;
use std::fmt::Write;

/// Writes the I-frame playlist of an on-demand track; returns `None` if its key frames are unknown.
pub fn on_demand(track: &NamedTrack) -> Option<String> {
    let timescale = track.index.info.timescale;
    let frames = track.key_frames()?;
    let lengths = frames.iter().map(|(placed, _)| length_us(placed.time, placed.duration, timescale));
    let mut out = head(lengths.clone().max().unwrap_or(0));
    let version = &track.version;
    out.push_str("#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-I-FRAMES-ONLY\n");
    let _ = writeln!(out, "#EXT-X-MAP:URI=\"{version}/init.mp4\"");
    write_keys(&mut out, track);
    for ((placed, size), length) in frames.iter().zip(lengths) {
        let (seconds, us) = (length / 1_000_000, length % 1_000_000);
        let _ = writeln!(out, "#EXTINF:{seconds}.{us:06},\n#EXT-X-BYTERANGE:{size}@0");
        let _ = writeln!(out, "{version}/{}.m4s", placed.time);
    }
    out.push_str("#EXT-X-ENDLIST\n");
    Some(out)
}

/// Writes an EXT-X-I-FRAME-STREAM-INF for each trick-play track or, without any, for each variant's
/// video (§4.4.6.3).
pub(super) fn write(
    out: &mut String,
    renditions: &[Rendition<'_>],
    variants: &[&SwitchingSet],
    range: impl Fn(&Rendition<'_>) -> Option<&'static str>,
) {
    let known = |r: &&Rendition<'_>| r.key_frames.is_some();
    let trick_play = renditions.iter().filter(|r| r.role == Role::TrickPlay).filter(known);
    let mut listed: Vec<&Rendition<'_>> = trick_play.collect();
    if listed.is_empty() {
        let members = variants.iter().flat_map(|set| &set.members).map(|&member| &renditions[member]);
        listed = members.filter(known).collect();
    }
    for rendition in listed {
        let Some(Bitrate { average, peak }) = rendition.key_frames else { continue };
        let mut attributes = Attributes::new(out, "#EXT-X-I-FRAME-STREAM-INF");
        attributes.plain("BANDWIDTH", peak).plain("AVERAGE-BANDWIDTH", average);
        attributes.quoted("CODECS", &rendition.info.codec);
        if let Media::Video { width, height } = rendition.info.media {
            attributes.plain("RESOLUTION", format_args!("{width}x{height}"));
        }
        if let Some(range) = range(rendition) {
            attributes.plain("VIDEO-RANGE", range);
        }
        attributes.quoted("URI", &format!("{}/iframes.m3u8", rendition.name));
        attributes.end();
    }
}
