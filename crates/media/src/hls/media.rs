//! HLS media playlists: on demand, and live with complete segments.
//!
//! **Invariant:** the EXTINF durations of a playlist add up to the media's duration to the
//! microsecond: each is the difference of two rounded positions, not a rounded difference.
//!
//! **Invariant:** EXT-X-TARGETDURATION does not depend on which segments are listed (§4.4.3.1). For
//! a live channel, the model provides it.

use super::{INDEPENDENT, VERSION};
use crate::presentation::live::{Epoch, Live, LiveSegment, LiveTrack};
use crate::presentation::utc::Utc;
use crate::presentation::{NamedTrack, micros};
use std::fmt::Write;

/// Writes the media playlist of an on-demand track. Its URIs are `VERSION/init.mp4` and
/// `VERSION/TIME.m4s`.
pub fn on_demand(track: &NamedTrack) -> String {
    let timescale = track.index.info.timescale;
    let lengths: Vec<(u64, u64)> =
        track.segments().map(|s| (s.time, length_us(s.time, s.duration, timescale))).collect();
    let target = lengths.iter().map(|l| (l.1 + 500_000) / 1_000_000).max().unwrap_or(0).max(1);
    let mut out = head(target);
    let version = &track.version;
    out.push_str("#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n");
    let _ = writeln!(out, "#EXT-X-MAP:URI=\"{version}/init.mp4\"");
    for (time, length) in lengths {
        write_segment(&mut out, length, format_args!("{version}/{time}"));
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
    let mut out = head(live.target_duration_s);
    if listed.iter().all(|(_, segment)| segment.sync) {
        out.push_str(INDEPENDENT);
    }
    let (sequence, epoch) = listed.first().map_or((0, 0), |(epoch, s)| (s.sequence, epoch.id));
    let _ = writeln!(out, "#EXT-X-MEDIA-SEQUENCE:{sequence}\n#EXT-X-DISCONTINUITY-SEQUENCE:{epoch}");
    let mut current = None;
    for (epoch, segment) in listed {
        if current != Some(epoch.id) {
            write_epoch(&mut out, current, epoch);
            current = Some(epoch.id);
        }
        let timescale = epoch.track(track).map_or(1, |t| t.info.timescale);
        let wall_us = live.availability_start.0 * 1000 + epoch.wall_us(segment.time, timescale);
        let _ = writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", Utc::from_micros(wall_us));
        write_segment(
            &mut out,
            length_us(segment.time, segment.duration, timescale),
            format_args!("{}", segment.number),
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
fn write_epoch(out: &mut String, last: Option<u64>, epoch: &Epoch) {
    for _ in last.unwrap_or(epoch.id)..epoch.id {
        out.push_str("#EXT-X-DISCONTINUITY\n");
    }
    let _ = writeln!(out, "#EXT-X-MAP:URI=\"init-{}.mp4\"", epoch.start_number);
}

pub(super) fn head(target: u64) -> String {
    format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n#EXT-X-TARGETDURATION:{target}\n")
}

pub(super) fn write_segment(out: &mut String, length_us: u64, name: std::fmt::Arguments<'_>) {
    let (seconds, us) = (length_us / 1_000_000, length_us % 1_000_000);
    let _ = writeln!(out, "#EXTINF:{seconds}.{us:06},\n{name}.m4s");
}

pub(super) fn length_us(time: u64, duration: u64, timescale: u32) -> u64 {
    micros(time + duration, timescale) - micros(time, timescale)
}
