//! HLS playlists (draft-pantos-hls-rfc8216bis), written from the same model as the MPD.
//!
//! This module writes the multivariant playlist, and [`media`] writes media playlists. URIs are
//! relative to their playlist: `TRACK/media.m3u8` in the multivariant playlist, `init….mp4` and
//! `….m4s` in a media playlist. Segment URIs equal those of the MPD's templates, so a cache stores
//! each segment once.
//!
//! **Invariant:** no text from a file enters a quoted string unfiltered, because §4.2 forbids `"`,
//! CR and LF.

pub mod joined;
pub mod media;

use crate::presentation::live::Epoch;
use crate::presentation::{Kind, Rendition, SwitchingSet, language, switching_sets};
use crate::track::{Media, TrackInfo};
use std::fmt::Write;

/// Protocol version. EXT-X-MAP requires only 6 (§8), but players associate 7 with fMP4.
const VERSION: u32 = 7;
/// Tag declaring that decoding can start with any segment.
const INDEPENDENT: &str = "#EXT-X-INDEPENDENT-SEGMENTS\n";
/// GROUP-ID of all subtitles.
const SUBTITLES_GROUP: &str = "subtitles";

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
    let audio = audio_groups(renditions, &sets);
    let text: Vec<usize> = of_kind(&sets, Kind::Text).flat_map(|s| s.members.clone()).collect();
    let mut out = format!("#EXTM3U\n#EXT-X-VERSION:{VERSION}\n{independent}");
    let has_video = of_kind(&sets, Kind::Video).next().is_some();
    // Audio-only content in one language needs no group: the variants are the renditions.
    let groups: &[Group] = if has_video || audio.iter().any(|g| g.members.len() > 1) { &audio } else { &[] };
    for group in groups {
        write_media(&mut out, renditions, "AUDIO", &group.id, &group.members);
    }
    if !text.is_empty() {
        write_media(&mut out, renditions, "SUBTITLES", SUBTITLES_GROUP, &text);
    }
    for (variant, group) in variants(&sets, &audio, has_video) {
        let group = group.filter(|_| !groups.is_empty());
        write_variant(&mut out, renditions, variant, group, &text);
    }
    out
}

/// An EXT-X-MEDIA group: one track per language, all of similar bitrate.
struct Group {
    id: String,
    members: Vec<usize>,
}

/// Builds the audio groups: one per codec and number of channels and, if a language has several
/// bitrates, one per bitrate rank (§4.4.6.1.1 requires every group to offer the same choices).
fn audio_groups(renditions: &[Rendition<'_>], sets: &[SwitchingSet]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for set in of_kind(sets, Kind::Audio) {
        for (rank, &member) in set.members.iter().rev().enumerate() {
            let id = group_id(renditions[member].info, rank);
            match groups.iter_mut().find(|g| g.id == id) {
                Some(group) => group.members.push(member),
                None => groups.push(Group { id, members: vec![member] }),
            }
        }
    }
    groups
}

/// Returns a GROUP-ID such as `audio-mp4a.40.2-2ch`, or `…-1` for the second-best bitrate.
fn group_id(info: &TrackInfo, rank: usize) -> String {
    let Media::Audio { channels, .. } = info.media else { return String::from("audio") };
    let rank = if rank == 0 { String::new() } else { format!("-{rank}") };
    format!("audio-{}-{channels}ch{rank}", info.codec)
}

/// Returns the variants: every video track paired with every audio group or, without video, every
/// audio track of the first language.
fn variants<'a>(
    sets: &'a [SwitchingSet],
    audio: &'a [Group],
    has_video: bool,
) -> Vec<(usize, Option<&'a Group>)> {
    let mut variants = Vec::new();
    if !has_video {
        variants.extend(audio.iter().map(|group| (group.members[0], Some(group))));
        return variants;
    }
    for &member in of_kind(sets, Kind::Video).flat_map(|s| &s.members) {
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

fn write_media(out: &mut String, renditions: &[Rendition<'_>], kind: &str, group: &str, members: &[usize]) {
    let names = names(renditions, members);
    for (i, (&member, name)) in members.iter().zip(names).enumerate() {
        let Rendition { name: track, info, .. } = renditions[member];
        let is_default = kind == "AUDIO" && i == 0;
        let mut attributes = Attributes::new(out, "#EXT-X-MEDIA");
        attributes.plain("TYPE", kind).quoted("GROUP-ID", group).quoted("NAME", &name);
        if let Some(language) = language(info) {
            attributes.quoted("LANGUAGE", language);
        }
        attributes.plain("DEFAULT", if is_default { "YES" } else { "NO" }).plain("AUTOSELECT", "YES");
        if let Media::Audio { channels, .. } = info.media {
            attributes.quoted("CHANNELS", &channels.to_string());
        }
        attributes.quoted("URI", &format!("{track}/media.m3u8"));
        attributes.end();
    }
}

/// Returns names for a player's menu: the language if it is unique in the group, otherwise the
/// track's name (§4.4.6.1 requires NAME to be unique in a group).
fn names(renditions: &[Rendition<'_>], members: &[usize]) -> Vec<String> {
    let languages: Vec<_> = members.iter().map(|&m| language(renditions[m].info)).collect();
    let unique = |l: &&str| languages.iter().filter(|other| **other == Some(*l)).count() == 1;
    let of = |(i, &m): (usize, &usize)| languages[i].filter(unique).unwrap_or(renditions[m].name).to_owned();
    members.iter().enumerate().map(of).collect()
}

fn write_variant(
    out: &mut String,
    renditions: &[Rendition<'_>],
    variant: usize,
    group: Option<&Group>,
    text: &[usize],
) {
    let main = &renditions[variant];
    // A video variant is played with one member of the group. An audio variant is itself a member
    // and is played alone.
    let others = group.map_or(&[][..], |g| &g.members).iter().filter(|&&m| m != variant);
    let others: Vec<_> = if Kind::of(main.info) == Kind::Video { others.collect() } else { Vec::new() };
    let peak = others.iter().map(|&&m| renditions[m].bitrate.peak).max().unwrap_or(0);
    let average = others.iter().map(|&&m| renditions[m].bitrate.average).max().unwrap_or(0);
    let mut codecs = vec![main.info.codec.as_str()];
    // §4.4.6.2: CODECS lists every format of the variant's renditions, including subtitles.
    for &member in others.iter().copied().chain(text) {
        let codec = renditions[member].info.codec.as_str();
        if !codecs.contains(&codec) {
            codecs.push(codec);
        }
    }
    let mut attributes = Attributes::new(out, "#EXT-X-STREAM-INF");
    attributes
        .plain("BANDWIDTH", main.bitrate.peak + peak)
        .plain("AVERAGE-BANDWIDTH", main.bitrate.average + average)
        .quoted("CODECS", &codecs.join(","));
    if let Media::Video { width, height } = main.info.media {
        attributes.plain("RESOLUTION", format_args!("{width}x{height}"));
    }
    if let Some((num, den)) = main.frame_rate {
        attributes.plain("FRAME-RATE", format_args!("{:.3}", f64::from(num) / f64::from(den)));
    }
    if let Some(group) = group {
        attributes.quoted("AUDIO", &group.id);
    }
    if !text.is_empty() {
        attributes.quoted("SUBTITLES", SUBTITLES_GROUP);
    }
    attributes.end();
    let _ = writeln!(out, "{}/media.m3u8", main.name);
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
