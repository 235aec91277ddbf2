//! Joined presentation: several presentations, or clips of them, played one after another.
//!
//! In DASH, each entry is a Period with its own tracks. HLS needs renditions that continue through
//! all entries. They are matched by codec, language and position in the ladder: see
//! [`Joined::ladder`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::clip::{BeyondEnd, Clip};
use super::select::{NothingSelected, Selection};
use super::{Bitrate, Kind, NamedTrack, OnDemand, Rendition, Role, language, switching_sets};
use crate::track::{Media, TrackInfo};

/// One entry of a joined presentation.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Name of the presentation as a path segment of URLs, percent-encoded.
    pub path: String,
    media: Cow<'a, OnDemand>,
    duration_us: u64,
    /// The clip on the presentation's timeline, in microseconds.
    clip_us: Option<Range<u64>>,
}

impl<'a> Entry<'a> {
    /// Creates an entry from a presentation, or from a clip of it.
    ///
    /// # Errors
    ///
    /// Returns an error if the clip begins after the presentation's end.
    pub fn new(path: String, media: &'a OnDemand, clip: Option<Clip>) -> Result<Entry<'a>, BeyondEnd> {
        let Some(clip) = clip else {
            let duration_us = media.duration_us();
            return Ok(Entry { path, media: Cow::Borrowed(media), duration_us, clip_us: None });
        };
        let (media, range) = media.clip(clip)?;
        let duration_us = range.end - range.start;
        Ok(Entry { path, media: Cow::Owned(media), duration_us, clip_us: Some(range) })
    }

    /// Returns the tracks, with only the segments of the clip.
    pub fn media(&self) -> &OnDemand {
        &self.media
    }

    /// Returns the duration in microseconds.
    pub fn duration_us(&self) -> u64 {
        self.duration_us
    }

    /// Iterates over the segments that an HLS playlist lists for a track. HLS cannot cut segments,
    /// so a segment is listed if at least half of it is in the clip.
    pub(crate) fn segments<'t>(&'t self, track: &'t NamedTrack) -> impl Iterator<Item = super::Placed> + 't {
        let timescale = track.index.info.timescale;
        track.segments().filter(move |placed| {
            let middle_us = super::micros(placed.time + placed.duration / 2, timescale);
            self.clip_us.as_ref().is_none_or(|clip| clip.contains(&middle_us))
        })
    }
}

/// Presentations played one after another.
#[derive(Debug, Clone)]
pub struct Joined<'a> {
    /// The entries in order; never empty.
    pub entries: Vec<Entry<'a>>,
}

/// One HLS rendition of a joined presentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    /// Path segment of the playlist's URL, such as `video-1`.
    pub name: String,
    /// For each entry, the position of its track in [`OnDemand::tracks`].
    pub tracks: Vec<usize>,
    info: TrackInfo,
    frame_rate: Option<(u32, u32)>,
    bitrate: Bitrate,
}

impl Rung {
    /// Returns the description for the multivariant playlist.
    pub fn rendition(&self) -> Rendition<'_> {
        let Rung { name, info, frame_rate, bitrate, .. } = self;
        Rendition {
            name,
            role: Role::Main,
            info,
            frame_rate: *frame_rate,
            bitrate: *bitrate,
            key_frames: None,
        }
    }
}

/// An entry that lacks media that another entry has, so HLS cannot join them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// Position of the entry that lacks the media.
    pub entry: usize,
    /// Position of an entry that has it.
    pub other: usize,
    /// The media, such as `avc1 video`.
    pub media: String,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} has no {}, but entry {} has", self.entry + 1, self.media, self.other + 1)
    }
}

impl std::error::Error for Unmatched {}

impl Joined<'_> {
    /// Returns the total duration in microseconds.
    pub fn duration_us(&self) -> u64 {
        self.entries.iter().map(Entry::duration_us).sum()
    }

    /// Returns the joined presentation with only the selected tracks of each entry.
    ///
    /// # Errors
    ///
    /// Returns an error if an entry has video or audio, but none of it is selected.
    pub fn select(mut self, selection: &Selection) -> Result<Self, NothingSelected> {
        for entry in &mut self.entries {
            entry.media = Cow::Owned(entry.media.select(selection)?);
        }
        Ok(self)
    }

    /// Matches the tracks of all entries into HLS renditions.
    ///
    /// Tracks match if they have the same codec family and, for audio and subtitles, the same
    /// language and number of channels. If an entry has fewer tracks in a ladder than another, each
    /// is used for several positions. If an entry lacks a language, its audio in another language
    /// continues the rendition; subtitles that an entry lacks are left out.
    ///
    /// # Errors
    ///
    /// Returns the first entry that has no video or audio of a codec that another entry has.
    pub fn ladder(&self) -> Result<Vec<Rung>, Unmatched> {
        let renditions: Vec<Vec<Rendition<'_>>> = self.entries.iter().map(|e| e.media.renditions()).collect();
        let sets: Vec<Vec<Set>> = renditions.iter().map(|r| keyed_sets(r)).collect();
        let mut keys: Vec<(&Key, usize)> = Vec::new();
        for (entry, sets) in sets.iter().enumerate() {
            for Set { key, .. } in sets {
                if !keys.iter().any(|(known, _)| *known == key) {
                    keys.push((key, entry));
                }
            }
        }
        keys.sort_by_key(|(key, _)| key.kind);
        let mut rungs: Vec<Rung> = Vec::new();
        for (key, owner) in keys {
            let found: Vec<Option<&Set>> = sets.iter().map(|sets| key.find(sets)).collect();
            let missing = found.iter().position(Option::is_none);
            match missing {
                Some(_) if key.kind == Kind::Text => continue,
                Some(entry) => return Err(Unmatched { entry, other: owner, media: key.describe() }),
                None => {}
            }
            let found: Vec<&Set> = found.into_iter().flatten().collect();
            let height = found.iter().map(|set| set.members.len()).max().unwrap_or(0);
            for position in 0..height {
                let member = |set: &&Set| set.members[position * set.members.len() / height];
                let tracks: Vec<usize> = found.iter().map(member).collect();
                let number = rungs.iter().filter(|r| Kind::of(&r.info) == key.kind).count() + 1;
                rungs.push(rung(key, number, tracks, &renditions));
            }
        }
        Ok(rungs)
    }
}

/// A switching set of an entry, with what it is matched by.
#[derive(Debug)]
struct Set {
    key: Key,
    /// In ascending order of bitrate.
    members: Vec<usize>,
}

/// What switching sets of different entries are matched by.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    kind: Kind,
    /// Sample entry, such as `avc1`.
    family: String,
    /// For audio and subtitles.
    language: Option<String>,
    /// For audio.
    channels: u32,
    /// Distinguishes sets of an entry that are otherwise equal.
    number: usize,
}

impl Key {
    fn of(info: &TrackInfo) -> Key {
        let kind = Kind::of(info);
        let spoken = language(info).filter(|_| kind != Kind::Video);
        let channels = if let Media::Audio { channels, .. } = info.media { channels } else { 0 };
        Key { kind, family: family(info), language: spoken.map(str::to_owned), channels, number: 0 }
    }

    /// Returns the set that continues this one in another entry.
    fn find<'s>(&self, sets: &'s [Set]) -> Option<&'s Set> {
        let same_media = |other: &Key| other.kind == self.kind && other.family == self.family;
        let same_language = |other: &Key| same_media(other) && other.language == self.language;
        let find = |test: &dyn Fn(&Key) -> bool| sets.iter().find(|set| test(&set.key));
        let exact = find(&|other| other == self).or_else(|| find(&same_language));
        exact.or_else(|| if self.kind == Kind::Text { None } else { find(&same_media) })
    }

    fn describe(&self) -> String {
        let kind = match self.kind {
            Kind::Video => "video",
            Kind::Audio => "audio",
            _ => "subtitle",
        };
        format!("{} {kind} track", self.family)
    }
}

fn keyed_sets(renditions: &[Rendition<'_>]) -> Vec<Set> {
    let mut keyed: Vec<Set> = Vec::new();
    for set in switching_sets(renditions) {
        let mut key = Key::of(renditions[set.members[0]].info);
        while keyed.iter().any(|other| other.key == key) {
            key.number += 1;
        }
        keyed.push(Set { key, members: set.members });
    }
    keyed
}

fn family(info: &TrackInfo) -> String {
    info.codec.split('.').next().unwrap_or(&info.codec).to_owned()
}

/// Describes a rendition that satisfies all its tracks: the largest picture, the highest bitrate
/// and every codec.
fn rung(key: &Key, number: usize, tracks: Vec<usize>, renditions: &[Vec<Rendition<'_>>]) -> Rung {
    let members = || tracks.iter().zip(renditions).map(|(&track, of_entry)| &of_entry[track]);
    let size = |r: &Rendition<'_>| match r.info.media {
        Media::Video { width, height } => u64::from(width) * u64::from(height),
        _ => u64::from(language(r.info).map(str::to_owned) == key.language),
    };
    // Of equally suitable tracks, the first describes the rendition.
    let mut best = &renditions[0][tracks[0]];
    for member in members() {
        if size(member) > size(best) {
            best = member;
        }
    }
    let mut codecs: Vec<&str> = vec![&best.info.codec];
    for member in members() {
        if !codecs.contains(&member.info.codec.as_str()) {
            codecs.push(&member.info.codec);
        }
    }
    let info = TrackInfo { codec: codecs.join(","), ..best.info.clone() };
    let peak = members().map(|r| r.bitrate.peak).max().unwrap_or(0);
    let average = members().map(|r| r.bitrate.average).max().unwrap_or(0);
    let kind = match key.kind {
        Kind::Video => "video",
        Kind::Audio => "audio",
        _ => "text",
    };
    let name = format!("{kind}-{number}");
    Rung { name, frame_rate: best.frame_rate, bitrate: Bitrate { average, peak }, info, tracks }
}

#[cfg(test)]
#[path = "joined_tests.rs"]
mod tests;
