//! HLS playlists (draft-pantos-hls-rfc8216bis), written from the same model as the MPD.
//!
//! This module writes the multivariant playlist, and [`media`] writes media playlists. URIs are
//! relative to their playlist: `TRACK/media.m3u8` in the multivariant playlist, `init….mp4` and
//! `….m4s` in a media playlist. Segment URIs equal those of the MPD's templates, so a cache stores
//! each segment once.
//!
//! **Invariant:** no text from a file enters a quoted string unfiltered, because §4.2 forbids `"`,
//! CR and LF.

mod group;
pub mod iframes;
pub mod images;
pub mod joined;
mod key;
pub mod media;

use crate::presentation::live::Epoch;
use crate::presentation::sets::choice_purposes;
use crate::presentation::{Bitrate, Kind, Rendition, SwitchingSet, switching_sets};
use crate::properties::{DynamicRange, Properties};
use crate::protection::Protection;
use crate::purpose::Purpose;
use crate::track::{Media, TrackInfo};
use group::{Group, SUBTITLES, Type};
use std::fmt::Write;

/// Protocol version. EXT-X-MAP requires only 6 (§8), but players associate 7 with fMP4.
const VERSION: u32 = 7;
/// Tag declaring that decoding can start with any segment.
const INDEPENDENT: &str = "#EXT-X-INDEPENDENT-SEGMENTS\n";

/// Writes the multivariant playlist of on-demand tracks, whose segments all begin with a sync
/// sample.
pub fn multivariant(renditions: &[Rendition<'_>]) -> String {
    write(renditions, INDEPENDENT)
}

/// Writes the multivariant playlist of a live channel. It does not declare segments independent,
/// because future segments may not be; each media playlist states whether its listed segments are.
pub fn multivariant_live(epoch: &Epoch) -> String {
    write(&epoch.renditions(), "")
}

fn write(renditions: &[Rendition<'_>], independent: &str) -> String {
    let sets = switching_sets(renditions);
    let (audio, choices) = group::audio(renditions, &sets);
    let text: Vec<usize> = of_kind(&sets, Kind::Text).flat_map(|s| s.members.clone()).collect();
    let mut out = format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n{independent}");
    let has_video = of_kind(&sets, Kind::Video).next().is_some();
    // Audio-only content in one language needs no group: the variants are the renditions.
    let groups: &[Group] = if has_video || audio.iter().any(|g| g.members.len() > 1) { &audio } else { &[] };
    let defaults: Vec<usize> = sets.iter().filter(|s| s.is_default).flat_map(|s| s.members.clone()).collect();
    let names = group::names(renditions, &choices);
    for group in groups {
        let members = &group.members;
        group::write(&mut out, renditions, (Type::Audio, &group.id), members, &names, &defaults);
    }
    let names = group::names(renditions, &text);
    group::write(&mut out, renditions, (Type::Subtitles, SUBTITLES), &text, &names, &defaults);
    let video = video_sets(renditions, &sets);
    let variants = variants(&video, &audio);
    let of = |test: fn(&Properties) -> bool| variants.iter().any(|v| test(&renditions[v.0].info.properties));
    let common = Common {
        text: &text,
        has_captions: of(|properties| properties.purposes.has(Purpose::Caption)),
        has_high_range: of(|properties| properties.dynamic_range() != DynamicRange::Standard),
    };
    write_session_keys(&mut out, renditions);
    if common.has_captions {
        group::write_captions(&mut out);
    }
    for (variant, group) in variants {
        let group = group.filter(|_| !groups.is_empty());
        write_variant(&mut out, renditions, variant, group, &common);
    }
    let range = |rendition: &Rendition<'_>| common.has_high_range.then(|| video_range(rendition.info));
    iframes::write(&mut out, renditions, &video, range);
    out
}

/// Writes each key of the tracks once.
fn write_session_keys(out: &mut String, renditions: &[Rendition<'_>]) {
    let mut written: Vec<&Protection> = Vec::new();
    for protection in renditions.iter().filter_map(|r| r.info.properties.protection.as_ref()) {
        if !written.contains(&protection) {
            key::write(out, key::SESSION_KEY, protection);
            written.push(protection);
        }
    }
}

/// What all variants share.
struct Common<'a> {
    /// The subtitles.
    text: &'a [usize],
    /// Whether a video track has CEA-608 captions.
    has_captions: bool,
    /// Whether a video track has a high dynamic range.
    has_high_range: bool,
}

/// Returns the sets of video whose members are variants. A video track with a purpose of its own,
/// such as one with an interpreter, is no variant, because players would switch to it when the
/// bandwidth changes.
fn video_sets<'a>(renditions: &[Rendition<'_>], sets: &'a [SwitchingSet]) -> Vec<&'a SwitchingSet> {
    let is_plain = |set: &&SwitchingSet| choice_purposes(renditions[set.members[0]].info).is_empty();
    of_kind(sets, Kind::Video).filter(|set| set.is_default || is_plain(set)).collect()
}

/// Returns the variants: every video track paired with every audio group or, without video, every
/// audio track of the first language.
fn variants<'a>(video: &[&SwitchingSet], audio: &'a [Group]) -> Vec<(usize, Option<&'a Group>)> {
    let mut variants = Vec::new();
    if video.is_empty() {
        variants.extend(audio.iter().map(|group| (group.members[0], Some(group))));
        return variants;
    }
    for &member in video.iter().flat_map(|set| &set.members) {
        match audio {
            [] => variants.push((member, None)),
            groups => variants.extend(groups.iter().map(|group| (member, Some(group)))),
        }
    }
    variants
}

fn of_kind(sets: &[SwitchingSet], kind: Kind) -> impl Iterator<Item = &SwitchingSet> {
    sets.iter().filter(move |s| s.kind == kind)
}

fn write_variant(
    out: &mut String,
    renditions: &[Rendition<'_>],
    variant: usize,
    group: Option<&Group>,
    common: &Common<'_>,
) {
    let main = &renditions[variant];
    let is_video = Kind::of(main.info) == Kind::Video;
    let members = group.map_or(&[][..], |g| &g.members);
    let members_max = |of: fn(&Rendition<'_>) -> u64| members.iter().map(|&m| of(&renditions[m])).max();
    let (peak, average) = (members_max(|r| r.bitrate.peak), members_max(|r| r.bitrate.average));
    let (peak, average) = (peak.unwrap_or(0), average.unwrap_or(0));
    // A video variant is played with one member of the group. An audio variant is itself a member
    // and is played alone.
    let bitrate = match is_video {
        true => Bitrate { peak: main.bitrate.peak + peak, average: main.bitrate.average + average },
        false => Bitrate { peak: main.bitrate.peak.max(peak), average: main.bitrate.average.max(average) },
    };
    let mut codecs = vec![main.info.codec.as_str()];
    // §4.4.6.2: CODECS lists every format of the variant's renditions, including subtitles.
    for &member in members.iter().chain(common.text) {
        let codec = renditions[member].info.codec.as_str();
        if !codec.is_empty() && !codecs.contains(&codec) {
            codecs.push(codec);
        }
    }
    let mut attributes = Attributes::new(out, "#EXT-X-STREAM-INF");
    attributes
        .plain("BANDWIDTH", bitrate.peak)
        .plain("AVERAGE-BANDWIDTH", bitrate.average)
        .quoted("CODECS", &codecs.join(","));
    if let Media::Video { width, height } = main.info.media {
        attributes.plain("RESOLUTION", format_args!("{width}x{height}"));
    }
    if is_video && common.has_high_range {
        attributes.plain("VIDEO-RANGE", video_range(main.info));
    }
    if let Some((num, den)) = main.frame_rate {
        attributes.plain("FRAME-RATE", format_args!("{:.3}", f64::from(num) / f64::from(den)));
    }
    if let Some(group) = group {
        attributes.quoted("AUDIO", &group.id);
    }
    if !common.text.is_empty() {
        attributes.quoted("SUBTITLES", SUBTITLES);
    }
    if is_video {
        // Without the attribute, players look for captions in the video (§4.4.6.2).
        match common.has_captions {
            true => attributes.quoted("CLOSED-CAPTIONS", group::CAPTIONS),
            false => attributes.plain("CLOSED-CAPTIONS", "NONE"),
        };
    }
    attributes.end();
    let _ = writeln!(out, "{}/media.m3u8", main.name);
}

/// Returns VIDEO-RANGE (§4.4.6.2).
fn video_range(info: &TrackInfo) -> &'static str {
    match info.properties.dynamic_range() {
        DynamicRange::Standard => "SDR",
        DynamicRange::Hlg => "HLG",
        DynamicRange::Pq => "PQ",
    }
}

/// A writer of one attribute list (§4.2).
struct Attributes<'a> {
    out: &'a mut String,
    separator: char,
}

impl<'a> Attributes<'a> {
    fn new(out: &'a mut String, tag: &str) -> Attributes<'a> {
        out.push_str(tag);
        Attributes { out, separator: ':' }
    }

    fn plain(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let _ = write!(self.out, "{}{name}={value}", self.separator);
        self.separator = ',';
        self
    }

    fn quoted(&mut self, name: &str, value: &str) -> &mut Self {
        let allowed: String = value.chars().filter(|c| !matches!(c, '"' | '\r' | '\n')).collect();
        self.plain(name, format_args!("\"{allowed}\""))
    }

    fn end(self) {
        self.out.push('\n');
    }
}

#[cfg(test)]
pub(crate) mod tests;
