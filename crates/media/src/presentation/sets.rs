//! Switching sets: tracks between which a player may switch at a segment boundary.
//!
//! Members have the same media kind, codec family, language and purposes, for audio the same number
//! of channels, for video the same dynamic range, and the same encryption scheme (ISO/IEC 23000-19 §7.3.4). Each set becomes one
//! DASH AdaptationSet.

use super::{Rendition, Role, language};
use crate::kind::Kind;
use crate::protection::Scheme;
use crate::purpose::Purpose;
use crate::track::{Media, TrackInfo};

impl Kind {
    /// Returns the media kind of a track.
    pub fn of(info: &TrackInfo) -> Kind {
        match info.media {
            Media::Video { .. } => Kind::Video,
            Media::Audio { .. } => Kind::Audio,
            Media::Text | Media::WebVtt => Kind::Text,
        }
    }
}

/// A switching set. Its members are indices into the renditions passed to [`switching_sets`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchingSet {
    /// Media kind of the members.
    pub kind: Kind,
    /// Members in ascending order of bitrate; never empty.
    pub members: Vec<usize>,
    /// Whether players select this set, or one with the same [choice](same_choice), by default: the
    /// files say so or, without such a statement, it is the first video or audio set without a
    /// special purpose. Subtitles are off unless a file says otherwise.
    pub is_default: bool,
}

/// Groups renditions into sets: video first, then audio, then text. Of a kind, the default sets
/// come first, and sets with a special purpose last; otherwise, they are in order of first
/// appearance. Trick-play tracks are in no set, because players do not switch to them for normal
/// playback.
pub fn switching_sets(renditions: &[Rendition<'_>]) -> Vec<SwitchingSet> {
    let mut sets = sets_of(renditions, Role::Main);
    for kind in [Kind::Video, Kind::Audio, Kind::Text] {
        let Some(default) = default_of(renditions, &sets, kind) else { continue };
        for set in sets.iter_mut().filter(|set| set.kind == kind) {
            set.is_default = same_choice(renditions[set.members[0]].info, default);
        }
    }
    let is_special = |set: &SwitchingSet| !choice_purposes(renditions[set.members[0]].info).is_empty();
    sets.sort_by_key(|set| (set.kind, !set.is_default, is_special(set)));
    sets
}

/// Groups the trick-play tracks into sets, as [`switching_sets`] does with the others.
pub fn trick_play_sets(renditions: &[Rendition<'_>]) -> Vec<SwitchingSet> {
    sets_of(renditions, Role::TrickPlay)
}

/// Groups the renditions with a role, in order of first appearance.
fn sets_of(renditions: &[Rendition<'_>], role: Role) -> Vec<SwitchingSet> {
    let mut sets: Vec<SwitchingSet> = Vec::new();
    for (i, rendition) in renditions.iter().enumerate().filter(|(_, r)| r.role == role) {
        let same = |set: &&mut SwitchingSet| switchable(renditions[set.members[0]].info, rendition.info);
        match sets.iter_mut().find(same) {
            Some(set) => set.members.push(i),
            None => {
                let kind = Kind::of(rendition.info);
                sets.push(SwitchingSet { kind, members: vec![i], is_default: false });
            }
        }
    }
    for set in &mut sets {
        set.members.sort_by_key(|&i| renditions[i].bitrate.peak);
    }
    sets
}

/// Returns whether two tracks have codecs of one family.
pub(crate) fn same_codec_family(a: &TrackInfo, b: &TrackInfo) -> bool {
    codec_family(&a.codec) == codec_family(&b.codec)
}

/// Returns a track of the sets of a kind that players select by default.
fn default_of<'a>(renditions: &[Rendition<'a>], sets: &[SwitchingSet], kind: Kind) -> Option<&'a TrackInfo> {
    let infos = || {
        let of_kind = sets.iter().filter(|set| set.kind == kind);
        of_kind.flat_map(|set| &set.members).map(|&member| renditions[member].info)
    };
    let stated = infos().find(|info| info.properties.purposes.is_default);
    let plain = || infos().find(|info| choice_purposes(info).is_empty()).or_else(|| infos().next());
    stated.or_else(|| if kind == Kind::Text { None } else { plain() })
}

/// Returns whether two tracks are the same choice for a viewer: they have the same language and
/// purposes.
pub(crate) fn same_choice(a: &TrackInfo, b: &TrackInfo) -> bool {
    language(a) == language(b) && choice_purposes(a) == choice_purposes(b)
}

/// Returns the purposes between which a viewer chooses. Captions in the video are not one: they do
/// not make it another video.
pub(crate) fn choice_purposes(info: &TrackInfo) -> Vec<Purpose> {
    let is_video = Kind::of(info) == Kind::Video;
    let chosen = |purpose: &&Purpose| !(is_video && **purpose == Purpose::Caption);
    info.properties.purposes.list.iter().filter(chosen).copied().collect()
}

/// Returns whether a player may switch between two tracks.
pub(super) fn switchable(a: &TrackInfo, b: &TrackInfo) -> bool {
    Kind::of(a) == Kind::of(b)
        && same_codec_family(a, b)
        && same_choice(a, b)
        && channels(a) == channels(b)
        && a.properties.dynamic_range() == b.properties.dynamic_range()
        && scheme(a) == scheme(b)
        && a.properties.audio_objects.is_some() == b.properties.audio_objects.is_some()
}

fn scheme(info: &TrackInfo) -> Option<Scheme> {
    info.properties.protection.as_ref().map(|protection| protection.scheme)
}

/// Returns the sample entry's name. For `mp4a`, returns the full codec string, because players
/// cannot switch between AAC-LC and HE-AAC.
fn codec_family(codec: &str) -> &str {
    let family = codec.split('.').next().unwrap_or(codec);
    if family == "mp4a" { codec } else { family }
}

fn channels(info: &TrackInfo) -> u32 {
    match info.media {
        Media::Audio { channels, .. } => channels,
        Media::Video { .. } | Media::Text | Media::WebVtt => 0,
    }
}
