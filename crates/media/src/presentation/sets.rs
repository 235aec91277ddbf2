//! Switching sets: tracks between which a player may switch at a segment boundary.
//!
//! Members have the same media kind, codec family and language, and for audio the same number of
//! channels (ISO/IEC 23000-19 §7.3.4). Each set becomes one DASH AdaptationSet.

use super::{Rendition, Role, language};
use crate::track::{Media, TrackInfo};

/// Media kinds, in the order in which manifests list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Video.
    Video,
    /// Audio.
    Audio,
    /// Subtitles.
    Text,
}

impl Kind {
    /// Returns the media kind of a track.
    pub fn of(info: &TrackInfo) -> Kind {
        match info.media {
            Media::Video { .. } => Kind::Video,
            Media::Audio { .. } => Kind::Audio,
            Media::Text => Kind::Text,
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
}

/// Groups renditions into sets: video first, then audio, then text. Sets of the same kind are in
/// order of first appearance. Trick-play tracks are in no set, because players do not switch to
/// them for normal playback.
pub fn switching_sets(renditions: &[Rendition<'_>]) -> Vec<SwitchingSet> {
    let mut sets: Vec<SwitchingSet> = Vec::new();
    let main = renditions.iter().enumerate().filter(|(_, r)| r.role == Role::Main);
    for (i, rendition) in main {
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

/// Returns whether a player may switch between two tracks.
pub(super) fn switchable(a: &TrackInfo, b: &TrackInfo) -> bool {
    Kind::of(a) == Kind::of(b)
        && codec_family(&a.codec) == codec_family(&b.codec)
        && language(a) == language(b)
        && channels(a) == channels(b)
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
        Media::Video { .. } | Media::Text => 0,
    }
}
