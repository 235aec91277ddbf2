//! Manifest model: the tracks of an on-demand presentation or of a live channel.
//!
//! The model determines which tracks form a switching set, where segments lie on the presentation's
//! timeline, and which bitrates manifests declare. HLS playlists and MPDs are written only from
//! this model, so they cannot disagree.
//!
//! **Invariant:** the tracks of an [`OnDemand`] align: the video tracks of a switching
//! set have the same segment boundaries within half a frame (ISO/IEC 23000-19 §7.3.4), and all
//! tracks have the same length to within one segment.
//!
//! **Invariant:** a time in a manifest or a segment's name is a presentation time, with the CMAF
//! header's edit list applied (ISO/IEC 14496-12 §8.6.6). Players apply the edit list to the media
//! themselves, so a manifest that ignored it would be off by the encoder's priming.

mod align;
pub mod clip;
pub mod joined;
pub mod live;
pub mod rate;
pub mod role;
pub mod select;
pub mod sets;
pub mod utc;
pub mod warning;

pub use crate::kind::Kind;
use crate::tiles::Tiles;
use crate::track::{Media, Segment, TrackIndex, TrackInfo};
use crate::vtt;
use align::Aligned;
pub use align::Misaligned;
pub use rate::Bitrate;
pub use role::Role;
pub use sets::{SwitchingSet, switching_sets, trick_play_sets};
pub use warning::Warning;

/// A track file, with its name in URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTrack {
    /// Path segment of URLs and `Representation@id`; contains only unreserved characters (RFC
    /// 3986).
    pub name: String,
    /// Path segment in the URLs of the track's header and segments. It changes with the file's
    /// content, so the content at a URL never changes. It contains only unreserved characters (RFC
    /// 3986).
    pub version: String,
    /// File name shown to the operator in messages.
    pub file: String,
    /// Index of the file.
    pub index: TrackIndex,
}

/// A segment on the presentation's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Presentation time in the track's timescale; it names the segment in URLs.
    pub time: u64,
    /// Duration in the track's timescale; if the first segment begins before 0, only the part from
    /// 0 on.
    pub duration: u64,
    /// Location of the segment's bytes.
    pub segment: Segment,
}

impl NamedTrack {
    /// Iterates over the track's segments in order. Segments entirely cut off by the edit list are
    /// skipped; a partly cut segment begins at 0, because manifests cannot express negative times.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Placed> + '_ {
        self.shown().iter().map(|s| self.place(s))
    }

    /// Returns the segments that the edit list does not cut off entirely.
    fn shown(&self) -> &[Segment] {
        let segments = &self.index.segments;
        let skip = self.index.info.edit_media_time;
        &segments[segments.partition_point(|s| s.time + s.duration <= skip)..]
    }

    fn place(&self, segment: &Segment) -> Placed {
        let skip = self.index.info.edit_media_time;
        let time = segment.time.saturating_sub(skip);
        Placed { time, duration: segment.time + segment.duration - skip - time, segment: *segment }
    }

    /// Returns the segment whose presentation time is exactly `time`.
    pub fn segment_at(&self, time: u64) -> Option<Placed> {
        let shown = self.shown();
        let at = shown.partition_point(|s| self.place(s).time < time);
        shown.get(at).map(|s| self.place(s)).filter(|placed| placed.time == time)
    }

    /// Returns the shown segments of a video track, each with the number of bytes up to the end of
    /// its first frame, a sync sample; `None` if that is unknown. Without sizes from the index, a
    /// segment must be a single frame.
    pub fn key_frames(&self) -> Option<Vec<(Placed, u64)>> {
        let TrackIndex { segments, key_sizes, .. } = &self.index;
        if key_sizes.len() == segments.len() {
            let sizes = &key_sizes[segments.len() - self.shown().len()..];
            return Some(self.segments().zip(sizes.iter().map(|&size| u64::from(size))).collect());
        }
        let (num, den) = self.index.frame_rate.filter(|_| self.index.all_sync)?;
        let timescale = u64::from(self.index.info.timescale);
        let is_frame = |s: &Segment| s.duration * u64::from(num) <= timescale * u64::from(den);
        let frames = || self.segments().map(|placed| (placed, placed.segment.size));
        segments.iter().all(is_frame).then(|| frames().collect())
    }

    /// Returns the bitrates of the key frames, if [known](NamedTrack::key_frames).
    fn key_frame_bitrate(&self) -> Option<Bitrate> {
        let frames = self.key_frames()?;
        let sizes: Vec<(u64, u64)> = frames.iter().map(|(placed, size)| (*size, placed.duration)).collect();
        Some(rate::measure_sizes(&sizes, self.index.info.timescale))
    }

    /// Returns the presentation time of the segment after `segment`, if there is one.
    pub fn next_time(&self, segment: &Segment) -> Option<u64> {
        let shown = self.shown();
        let after = shown.partition_point(|s| s.time <= segment.time);
        shown.get(after).map(|s| self.place(s).time)
    }

    /// Returns the presentation time of the first sample, in the track's timescale.
    fn start(&self) -> u64 {
        self.segments().next().map_or(0, |s| s.time)
    }

    /// Returns the presentation time at the end of the last segment, in the track's timescale.
    fn end(&self) -> u64 {
        self.segments().next_back().map_or(0, |s| s.time + s.duration)
    }

    /// Returns the track's description for manifests.
    fn rendition(&self, role: Role) -> Rendition<'_> {
        Rendition {
            role,
            name: &self.name,
            info: &self.index.info,
            frame_rate: self.index.frame_rate,
            bitrate: rate::measure(&self.index.segments, self.index.info.timescale),
            key_frames: self.key_frame_bitrate(),
        }
    }
}

/// Description of a track in a manifest, on demand or live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendition<'a> {
    /// Path segment of URLs and `Representation@id`.
    pub name: &'a str,
    /// Role of the track.
    pub role: Role,
    /// Contents of the CMAF header.
    pub info: &'a TrackInfo,
    /// Frames per second as (numerator, denominator).
    pub frame_rate: Option<(u32, u32)>,
    /// Bitrates measured from the segments.
    pub bitrate: Bitrate,
    /// Bitrates of the key frames alone, if the track has an I-frame playlist.
    pub key_frames: Option<Bitrate>,
}

/// A complete presentation whose tracks align.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemand {
    tracks: Vec<NamedTrack>,
    /// Role of each track.
    roles: Vec<Role>,
    excluded: Vec<Misaligned>,
    tiles: Vec<Tiles>,
    /// Presentation time at which playback starts, and its timescale.
    start: (u64, u32),
}

impl OnDemand {
    /// Creates a presentation from those of `tracks` that align; [`OnDemand::excluded`] has the
    /// reasons for the others.
    ///
    /// # Errors
    ///
    /// Returns the reasons for all tracks if no video or audio track remains.
    pub fn new(tracks: Vec<NamedTrack>) -> Result<OnDemand, Misaligned> {
        let mut tracks = tracks;
        for NamedTrack { file, index, .. } in &mut tracks {
            let kind = Kind::of(&index.info);
            index.info.properties.purposes.add_name(file, kind);
        }
        let Aligned { tracks, mut excluded } = align::keep_aligned(tracks);
        let (tracks, roles): (Vec<_>, Vec<_>) = tracks.into_iter().unzip();
        if !tracks.iter().any(|t| Kind::of(&t.index.info) != Kind::Text) {
            let reason = if tracks.is_empty() { Misaligned::NoTracks } else { Misaligned::TextAlone };
            if excluded.is_empty() || !tracks.is_empty() {
                excluded.push(reason);
            }
            return Err(if excluded.len() == 1 { excluded.remove(0) } else { Misaligned::Several(excluded) });
        }
        let mut main = tracks.iter().zip(&roles).filter(|(_, role)| **role == Role::Main).map(|(t, _)| t);
        let video = main.find(|t| Kind::of(&t.index.info) == Kind::Video);
        let timed = tracks.iter().find(|t| Kind::of(&t.index.info) != Kind::Text);
        let reference = video.or(timed).ok_or(Misaligned::NoTracks)?;
        let start = (reference.start(), reference.index.info.timescale);
        let mut presentation = OnDemand { tracks, roles, excluded, tiles: Vec::new(), start };
        presentation.fit_files();
        Ok(presentation)
    }

    /// Adds sets of thumbnails. Their times count from the start of the presentation.
    #[must_use]
    pub fn with_tiles(self, tiles: Vec<Tiles>) -> OnDemand {
        OnDemand { tiles, ..self }
    }

    /// Returns the sets of thumbnails.
    pub fn tiles(&self) -> &[Tiles] {
        &self.tiles
    }

    /// Fits WebVTT files, whose times count from the start of the presentation, to its start and
    /// duration. The segments of a file state the start, so its version does, too.
    fn fit_files(&mut self) {
        let (duration_us, start) = (self.duration_us(), self.start_in(vtt::MPEG_TIMESCALE));
        for track in self.tracks.iter_mut().filter(|t| t.index.info.media == Media::WebVtt) {
            vtt::fit(&mut track.index.segments, duration_us.div_ceil(1000));
            if start != 0 {
                track.version.push_str(&format!("-{start:x}"));
            }
        }
    }

    /// Iterates over the tracks in MP4.
    fn timed(&self) -> impl Iterator<Item = &NamedTrack> {
        self.tracks.iter().filter(|t| t.index.info.media != Media::WebVtt)
    }

    /// Returns the reason for each track that was left out.
    pub fn excluded(&self) -> &[Misaligned] {
        &self.excluded
    }

    /// Returns the warnings about the remaining tracks.
    pub fn warnings(&self) -> Vec<Warning> {
        warning::warnings(&self.tracks, &self.roles)
    }

    /// Returns the remaining tracks, in the order passed to [`OnDemand::new`].
    pub fn tracks(&self) -> &[NamedTrack] {
        &self.tracks
    }

    /// Returns the track called `name`.
    pub fn track(&self, name: &str) -> Option<&NamedTrack> {
        self.tracks.iter().find(|t| t.name == name)
    }

    /// Describes all tracks, in the order of [`OnDemand::tracks`].
    pub fn renditions(&self) -> Vec<Rendition<'_>> {
        self.tracks.iter().zip(&self.roles).map(|(track, role)| track.rendition(*role)).collect()
    }

    /// Returns the start of the presentation in units of `timescale`, for
    /// `@presentationTimeOffset`.
    pub fn start_in(&self, timescale: u32) -> u64 {
        rescale(self.start.0, self.start.1, timescale)
    }

    /// Returns the time from the start of the presentation to the end of its longest track, in
    /// microseconds.
    pub fn duration_us(&self) -> u64 {
        let start = micros(self.start.0, self.start.1);
        let ends = self.timed().map(|t| micros(t.end(), t.index.info.timescale));
        ends.max().unwrap_or(0).saturating_sub(start)
    }

    /// Returns the duration of the longest segment of any track in microseconds, rounded up,
    /// because no segment may be longer than `MPD@maxSegmentDuration` (ISO/IEC 23009-1 §5.3.1.2).
    pub fn segment_us_max(&self) -> u64 {
        let longest = |t: &NamedTrack| {
            micros_up(t.segments().map(|s| s.duration).max().unwrap_or(0), t.index.info.timescale)
        };
        self.timed().map(longest).max().unwrap_or(0)
    }
}

/// Converts `value / timescale` seconds to microseconds, rounded to the nearest.
pub fn micros(value: u64, timescale: u32) -> u64 {
    rescale(value, timescale, 1_000_000)
}

/// Converts `value / timescale` seconds to microseconds, rounded up.
pub fn micros_up(value: u64, timescale: u32) -> u64 {
    let us = (u128::from(value) * 1_000_000).div_ceil(u128::from(timescale.max(1)));
    u64::try_from(us).unwrap_or(u64::MAX)
}

/// Converts `value / from` seconds to units of `1 / to` seconds, rounded to the nearest.
pub fn rescale(value: u64, from: u32, to: u32) -> u64 {
    let (value, from, to) = (u128::from(value), u128::from(from.max(1)), u128::from(to));
    u64::try_from((value * to + from / 2) / from).unwrap_or(u64::MAX)
}

/// Returns the language from mdhd or elng if it is a well-formed tag (BCP 47, as in xs:language).
pub fn language(info: &TrackInfo) -> Option<&str> {
    let tag = info.language.as_deref()?;
    let mut subtags = tag.split('-');
    let primary = subtags.next()?;
    let sized = |s: &str| (1..=8).contains(&s.len());
    let well_formed = sized(primary)
        && primary.bytes().all(|b| b.is_ascii_alphabetic())
        && subtags.all(|s| sized(s) && s.bytes().all(|b| b.is_ascii_alphanumeric()));
    well_formed.then_some(tag)
}

#[cfg(test)]
pub(crate) mod tests;
