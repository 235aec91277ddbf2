//! HLS media playlists: on demand, and live with complete segments.
//!
//! **Invariant:** the EXTINF durations of a playlist add up to the media's duration to the
//! microsecond: each is the difference of two rounded positions, not a rounded difference.
//!
//! **Invariant:** EXT-X-TARGETDURATION does not depend on which segments are listed (§4.4.3.1). For
//! a live channel, the model provides it.

use super::{INDEPENDENT, VERSION, key};
use crate::presentation::live::{Epoch, Live, LiveSegment, LiveTrack};
use crate::presentation::utc::Utc;
use crate::presentation::{NamedTrack, micros};
use crate::track::Media;
use std::fmt::Write;

/// Writes the media playlist of an on-demand track. Its URIs are `VERSION/init.mp4` and
/// `VERSION/TIME.m4s` or, for a WebVTT file, `VERSION/TIME.vtt`.
pub fn on_demand(track: &NamedTrack) -> String {
    let timescale = track.index.info.timescale;
    let lengths: Vec<(u64, u64)> =
        track.segments().map(|s| (s.time, length_us(s.time, s.duration, timescale))).collect();
    let mut out = head(lengths.iter().map(|l| l.1).max().unwrap_or(0));
    let version = &track.version;
    out.push_str("#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n");
    let is_file = track.index.info.media == Media::WebVtt;
    if !is_file {
        let _ = writeln!(out, "#EXT-X-MAP:URI=\"{version}/init.mp4\"");
    }
    write_keys(&mut out, track);
    for (time, length) in lengths {
        let extension = if is_file { "vtt" } else { "m4s" };
        write_segment(&mut out, length, format_args!("{version}/{time}.{extension}"));
    }
    out.push_str("#EXT-X-ENDLIST\n");
    out
}

/// Writes the media playlist of a live track; returns `None` if the channel has no such track.
///
/// `depth_us` is the length of the listed part of the window, measured back from the newest
/// segment. It must be less than the window, because a removed segment must stay available for the
/// duration of the longest playlist that listed it (§6.2.2).
pub fn live(live: &Live, track: &str, depth_us: u64) -> Option<String> {
    let listed = listed(live, track, depth_us)?;
    let mut out = head(live.target_duration_s * 1_000_000);
    if listed.iter().all(|(_, segment)| segment.sync) {
        out.push_str(INDEPENDENT);
    }
    let (sequence, epoch) = listed.first().map_or((0, 0), |(epoch, s)| (s.sequence, epoch.id));
    let _ = writeln!(out, "#EXT-X-MEDIA-SEQUENCE:{sequence}\n#EXT-X-DISCONTINUITY-SEQUENCE:{epoch}");
    let mut current: Option<&Epoch> = None;
    for (epoch, segment) in listed {
        if current.is_none_or(|current| current.id != epoch.id) {
            write_epoch(&mut out, current, epoch, track);
            current = Some(epoch);
        }
        let timescale = epoch.track(track).map_or(1, |t| t.info.timescale);
        let wall_us = live.availability_start.0 * 1000 + epoch.wall_us(segment.time, timescale);
        let _ = writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", Utc::from_micros(wall_us));
        write_segment(
            &mut out,
            length_us(segment.time, segment.duration, timescale),
            format_args!("{}.m4s", segment.number),
        );
    }
    Some(out)
}

/// Returns the newest segments of a track that fit into `depth_us`; at least one if any exist.
fn listed<'a>(live: &'a Live, track: &str, depth_us: u64) -> Option<Vec<(&'a Epoch, &'a LiveSegment)>> {
    let epochs = || live.epochs.iter().filter_map(|e| e.track(track).map(|t| (e, t)));
    epochs().next()?;
    let all = epochs().flat_map(|(e, t): (_, &LiveTrack)| t.segments.iter().map(move |s| (e, t, s)));
    let all: Vec<_> = all.collect();
    let (mut depth, mut from) = (0, all.len());
    while from > 0 {
        let (_, t, s) = all[from - 1];
        depth += micros(s.duration, t.info.timescale);
        if depth > depth_us && from < all.len() {
            break;
        }
        from -= 1;
    }
    Some(all[from..].iter().map(|&(e, _, s)| (e, s)).collect())
}

/// Writes the CMAF header of an epoch, preceded by one discontinuity for each epoch since `last`,
/// the last listed one. A track that missed an epoch thus keeps the same
/// EXT-X-DISCONTINUITY-SEQUENCE as the others (§6.2.1).
fn write_epoch(out: &mut String, last: Option<&Epoch>, epoch: &Epoch, track: &str) {
    for _ in last.map_or(epoch.id, |last| last.id)..epoch.id {
        out.push_str("#EXT-X-DISCONTINUITY\n");
    }
    let _ = writeln!(out, "#EXT-X-MAP:URI=\"init-{}.mp4\"", epoch.start_number);
    let protection = |epoch: &Epoch| epoch.track(track)?.info.properties.protection.clone();
    match protection(epoch) {
        Some(protection) => key::write(out, key::KEY, &protection),
        None if last.and_then(protection).is_some() => out.push_str("#EXT-X-KEY:METHOD=NONE\n"),
        None => {}
    }
}

/// Writes the tags at the start of every media playlist whose longest segment has this length.
pub(super) fn head(longest_us: u64) -> String {
    let target = ((longest_us + 500_000) / 1_000_000).max(1);
    format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n#EXT-X-TARGETDURATION:{target}\n")
}

pub(super) fn write_segment(out: &mut String, length_us: u64, name: std::fmt::Arguments<'_>) {
    let (seconds, us) = (length_us / 1_000_000, length_us % 1_000_000);
    let _ = writeln!(out, "#EXTINF:{seconds}.{us:06},\n{name}");
}

/// Writes the keys of an encrypted track, after EXT-X-MAP, because the CMAF header is not
/// encrypted.
pub(super) fn write_keys(out: &mut String, track: &NamedTrack) {
    if let Some(protection) = &track.index.info.properties.protection {
        key::write(out, key::KEY, protection);
    }
}

/// Returns the length of a segment as the difference of two rounded positions.
pub(super) fn length_us(time: u64, duration: u64, timescale: u32) -> u64 {
    micros(time + duration, timescale) - micros(time, timescale)
}
