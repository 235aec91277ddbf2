//! EXT-X-MEDIA groups of the multivariant playlist: which renditions a viewer can choose.
//!
//! A *choice* is what a viewer selects in a player's menu, such as a language or a commentary.
//! **Invariant:** all groups of a type offer the same choices in the same order, under the same names
//! (§4.4.6.1.1), except for choices that would make a group unplayable where only AAC is supported.

use super::{Attributes, of_kind};
use crate::presentation::sets::{choice_purposes, same_choice};
use crate::presentation::{Kind, Rendition, SwitchingSet, language};
use crate::purpose::Purpose;
use crate::track::{Media, TrackInfo};

/// GROUP-ID of all subtitles.
pub(super) const SUBTITLES: &str = "subtitles";
/// GROUP-ID of captions in the video.
pub(super) const CAPTIONS: &str = "captions";

/// An EXT-X-MEDIA group: one rendition for each choice, all of similar bitrate.
pub(super) struct Group {
    pub(super) id: String,
    /// Rank of the bitrate: 0 is the best.
    rank: usize,
    pub(super) members: Vec<usize>,
}

/// Builds the audio groups: one for each codec and number of channels and, if a choice has several
/// bitrates, one for each bitrate rank. If a group lacks a choice, it gets the rendition of another
/// group. Also returns a rendition for each choice.
pub(super) fn audio(renditions: &[Rendition<'_>], sets: &[SwitchingSet]) -> (Vec<Group>, Vec<usize>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut choices: Vec<usize> = Vec::new();
    for set in of_kind(sets, Kind::Audio) {
        for (rank, &member) in set.members.iter().rev().enumerate() {
            let info = renditions[member].info;
            if !choices.iter().any(|&choice| same_choice(renditions[choice].info, info)) {
                choices.push(member);
            }
            let id = group_id(info, rank);
            match groups.iter_mut().find(|g| g.id == id) {
                Some(group) => group.members.push(member),
                None => groups.push(Group { id, rank, members: vec![member] }),
            }
        }
    }
    let complete = |group: &Group| {
        let of = |&choice: &usize| member(renditions, &groups, group, renditions[choice].info);
        let members = choices.iter().filter_map(of);
        Group { id: group.id.clone(), rank: group.rank, members: members.collect() }
    };
    (groups.iter().map(complete).collect(), choices)
}

/// Returns the group's own rendition for a choice or, without one, that of another group, if
/// possible of the same bitrate rank. Groups of AAC get only AAC: players drop variants with a codec
/// that they do not support, and many support no other.
fn member(
    renditions: &[Rendition<'_>],
    groups: &[Group],
    group: &Group,
    choice: &TrackInfo,
) -> Option<usize> {
    let of = |g: &Group| g.members.iter().copied().find(|&m| same_choice(renditions[m].info, choice));
    let is_aac = |member: usize| renditions[member].info.codec.starts_with("mp4a");
    let only_aac = group.members.iter().any(|&member| is_aac(member));
    let others = groups.iter().filter_map(|g| Some((g.rank != group.rank, of(g)?)));
    let mut others = others.filter(|(_, member)| !only_aac || is_aac(*member)).collect::<Vec<_>>();
    others.sort_by_key(|(differs, member)| (*differs, !is_aac(*member)));
    of(group).or_else(|| others.first().map(|(_, member)| *member))
}

/// Returns a GROUP-ID such as `audio-mp4a.40.2-2ch`, or `…-1` for the second-best bitrate.
fn group_id(info: &TrackInfo, rank: usize) -> String {
    let Media::Audio { channels, .. } = info.media else { return String::from("audio") };
    let rank = if rank == 0 { String::new() } else { format!("-{rank}") };
    let objects = if info.properties.audio_objects.is_some() { "-joc" } else { "" };
    format!("audio-{}-{channels}ch{objects}{rank}", info.codec)
}

/// Type of an EXT-X-MEDIA group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Audio,
    Subtitles,
}

/// Writes the EXT-X-MEDIA tags of a group. `names` are the names of the choices, each with a
/// rendition, and `defaults` are the renditions that players select by default.
pub(super) fn write(
    out: &mut String,
    renditions: &[Rendition<'_>],
    (kind, id): (Type, &str),
    members: &[usize],
    names: &[(usize, String)],
    defaults: &[usize],
) {
    let default = members.iter().position(|member| defaults.contains(member));
    for (i, &member) in members.iter().enumerate() {
        let is_named = |(named, _): &&(usize, String)| {
            *named == member
                || kind == Type::Audio && same_choice(renditions[*named].info, renditions[member].info)
        };
        let name = names.iter().find(is_named).map_or(renditions[member].name, |(_, name)| name);
        let Rendition { name: track, info, .. } = renditions[member];
        let purposes = &info.properties.purposes;
        let is_default = default == Some(i);
        let is_optional = purposes.has(Purpose::Commentary) || purposes.has(Purpose::Karaoke);
        let mut attributes = Attributes::new(out, "#EXT-X-MEDIA");
        attributes.plain("TYPE", if kind == Type::Audio { "AUDIO" } else { "SUBTITLES" });
        attributes.quoted("GROUP-ID", id).quoted("NAME", name);
        if let Some(language) = language(info) {
            attributes.quoted("LANGUAGE", language);
        }
        attributes.plain("DEFAULT", yes(is_default)).plain("AUTOSELECT", yes(is_default || !is_optional));
        if kind == Type::Subtitles && purposes.has(Purpose::Forced) {
            attributes.plain("FORCED", "YES");
        }
        let characteristics = purposes.list.iter().map(|purpose| purpose.characteristics());
        let characteristics: Vec<&str> = characteristics.filter(|names| !names.is_empty()).collect();
        if !characteristics.is_empty() {
            attributes.quoted("CHARACTERISTICS", &characteristics.join(","));
        }
        if let Media::Audio { channels, .. } = info.media {
            attributes.quoted("CHANNELS", &channel_description(channels, info.properties.audio_objects));
        }
        attributes.quoted("URI", &format!("{track}/media.m3u8"));
        attributes.end();
    }
}

/// Writes the group of CEA-608 captions in the video. Which of the four channels have captions is
/// not known without reading the video; the first nearly always does.
pub(super) fn write_captions(out: &mut String) {
    let mut attributes = Attributes::new(out, "#EXT-X-MEDIA");
    attributes.plain("TYPE", "CLOSED-CAPTIONS").quoted("GROUP-ID", CAPTIONS).quoted("NAME", "CC1");
    attributes.plain("DEFAULT", "NO").plain("AUTOSELECT", "YES").quoted("INSTREAM-ID", "CC1");
    attributes.end();
}

fn yes(condition: bool) -> &'static str {
    if condition { "YES" } else { "NO" }
}

/// Returns CHANNELS: the number of channels or, for audio objects, their complexity index and the
/// coding (HLS Authoring Specification, 2.11).
fn channel_description(channels: u32, objects: Option<u8>) -> String {
    objects.map_or_else(|| channels.to_string(), |index| format!("{index}/JOC"))
}

/// Returns names for a player's menu: the language and the purposes if no other member has the same,
/// and otherwise the track's name. A name that another member already has gets a number, because
/// names are unique in a group (§4.4.6.1).
pub(super) fn names(renditions: &[Rendition<'_>], members: &[usize]) -> Vec<(usize, String)> {
    let info = |member: usize| renditions[member].info;
    let is_unique = |a: usize| members.iter().filter(|&&b| same_choice(info(a), info(b))).count() == 1;
    let mut names: Vec<(usize, String)> = Vec::new();
    for &member in members {
        let language = language(info(member)).filter(|_| is_unique(member));
        let purposes = choice_purposes(info(member)).into_iter().map(|p| p.role().replace('-', " "));
        let purposes: Vec<String> = purposes.collect();
        let label = match language {
            Some(language) if purposes.is_empty() => language.to_owned(),
            Some(language) => format!("{language} ({})", purposes.join(", ")),
            None => renditions[member].name.to_owned(),
        };
        let numbered = (2..).map(|number| format!("{label} {number}"));
        let mut candidates = std::iter::once(label.clone()).chain(numbered);
        let is_free = |candidate: &String| !names.iter().any(|(_, name)| name == candidate);
        let name = candidates.find(is_free);
        names.extend(name.map(|name| (member, name)));
    }
    names
}
