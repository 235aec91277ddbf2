//! Switching sets: the tracks among which a player may change at a segment boundary.
//!
//! ISO/IEC 23000-19 §7.3.4: same media, same codec family, same language; audio also the same
//! number of channels. One set becomes one DASH AdaptationSet.

use super::{Rendition, language};
use crate::track::{Media, TrackInfo};

/// Kinds of media, in the order in which manifests list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
    /// Subtitles.
    Text,
}

impl Kind {
    /// The kind of a track.
    pub fn of(info: &TrackInfo) -> Kind {
        match info.media {
            Media::Video { .. } => Kind::Video,
            Media::Audio { .. } => Kind::Audio,
            Media::Text => Kind::Text,
        }
    }
}

/// Indices into the renditions that the set was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchingSet {
    /// What the members are.
    pub kind: Kind,
    /// Members by rising bitrate; never empty.
    pub members: Vec<usize>,
}

/// Groups renditions: video sets first, then audio, then text; within a kind by first appearance.
pub fn switching_sets(renditions: &[Rendition<'_>]) -> Vec<SwitchingSet> {
    let mut sets: Vec<SwitchingSet> = Vec::new();
    for (i, rendition) in renditions.iter().enumerate() {
        let same = |set: &&mut SwitchingSet| switchable(renditions[set.members[0]].info, rendition.info);
        match sets.iter_mut().find(same) {
            Some(set) => set.members.push(i),
            None => sets.push(SwitchingSet { kind: Kind::of(rendition.info), members: vec![i] }),
        }
    }
    for set in &mut sets {
        set.members.sort_by_key(|&i| renditions[i].bitrate.peak);
    }
    sets.sort_by_key(|set| set.kind);
    sets
}

/// Whether a player may change between two tracks.
pub(super) fn switchable(a: &TrackInfo, b: &TrackInfo) -> bool {
    Kind::of(a) == Kind::of(b)
        && codec_family(&a.codec) == codec_family(&b.codec)
        && language(a) == language(b)
        && channels(a) == channels(b)
}

/// The sample entry's name, or for `mp4a` the whole: AAC-LC and HE-AAC do not switch.
fn codec_family(codec: &str) -> &str {
    let family = codec.split('.').next().unwrap_or(codec);
    if family == "mp4a" { codec } else { family }
}

fn channels(info: &TrackInfo) -> u32 {
    match info.media {
        Media::Audio { channels, .. } => channels,
        Media::Video { .. } | Media::Text => 0,
    }
}
