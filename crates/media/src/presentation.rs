//! The model both manifests are written from: tracks that belong together, on demand or live.
//!
//! Owns: which tracks form a switching set, where a track's segments lie on the presentation's
//! timeline, and the bitrates that manifests declare. HLS and DASH read this and nothing else, so
//! they cannot disagree.
//!
//! **Invariant:** an [`OnDemand`] exists only if its tracks line up: the video tracks of one
//! switching set have the same segment boundaries within half a frame (ISO/IEC 23000-19 §7.3.4)
//! and all tracks last equally long within one segment.
//!
//! **Invariant:** a time in a manifest or in a segment's name is a presentation time: the edit list
//! of the CMAF header has been applied (ISO/IEC 14496-12 §8.6.6). Players apply it to the media
//! themselves, so a manifest that ignored it would be off by the encoder's priming.

mod align;
pub mod live;
pub mod rate;
pub mod sets;
pub mod utc;

use crate::track::{Segment, TrackIndex, TrackInfo};
pub use align::Misaligned;
pub use rate::Bitrate;
pub use sets::{Kind, SwitchingSet, switching_sets};

/// A track as found in a file, with the name that stands in URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTrack {
    /// Path segment of URLs and `Representation@id`: only unreserved characters of RFC 3986.
    pub name: String,
    /// Path segment of the URLs of its header and segments that is another once the file's content is:
    /// what stands at such a URL never changes. Only unreserved characters of RFC 3986.
    pub version: String,
    /// The file as an operator knows it, for messages.
    pub file: String,
    /// What the file holds.
    pub index: TrackIndex,
}

/// A segment on the presentation's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Presentation time in the track's timescale; it names the segment in URLs.
    pub time: u64,
    /// Duration in the track's timescale; of a first segment that begins before 0, what remains.
    pub duration: u64,
    /// Where its bytes lie.
    pub segment: Segment,
}

impl NamedTrack {
    /// The track's segments in order. What the edit list cuts off entirely is left out; what it cuts
    /// in the middle begins at 0, since no manifest can write a negative time.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Placed> + '_ {
        self.shown().iter().map(|s| self.place(s))
    }

    /// Segments of which the edit list shows something.
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

    /// The segment whose presentation time is exactly `time`.
    pub fn segment_at(&self, time: u64) -> Option<Placed> {
        let shown = self.shown();
        let at = shown.partition_point(|s| self.place(s).time < time);
        shown.get(at).map(|s| self.place(s)).filter(|placed| placed.time == time)
    }

    /// Presentation time of the first sample, in the track's timescale.
    fn start(&self) -> u64 {
        self.segments().next().map_or(0, |s| s.time)
    }

    /// Presentation time at which the last segment ends, in the track's timescale.
    fn end(&self) -> u64 {
        self.segments().next_back().map_or(0, |s| s.time + s.duration)
    }

    /// What manifests say of this track.
    fn rendition(&self) -> Rendition<'_> {
        Rendition {
            name: &self.name,
            info: &self.index.info,
            frame_rate: self.index.frame_rate,
            bitrate: rate::measure(&self.index.segments, self.index.info.timescale),
        }
    }
}

/// A track as the head of a manifest describes it, on demand and live alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendition<'a> {
    /// Path segment of URLs and `Representation@id`.
    pub name: &'a str,
    /// What the CMAF header says.
    pub info: &'a TrackInfo,
    /// Frames per second as (numerator, denominator).
    pub frame_rate: Option<(u32, u32)>,
    /// Measured from the segments.
    pub bitrate: Bitrate,
}

/// A finished presentation whose tracks line up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemand {
    tracks: Vec<NamedTrack>,
    /// Presentation time that players show first, as value and timescale of the track it is from.
    start: (u64, u32),
}

impl OnDemand {
    /// Checks that `tracks` line up; the error names the files that do not.
    pub fn new(tracks: Vec<NamedTrack>) -> Result<OnDemand, Misaligned> {
        align::check(&tracks)?;
        let video = tracks.iter().find(|t| Kind::of(&t.index.info) == Kind::Video);
        let reference = video.or(tracks.first()).ok_or(Misaligned::NoTracks)?;
        let start = (reference.start(), reference.index.info.timescale);
        Ok(OnDemand { tracks, start })
    }

    /// All tracks, in the order they were given.
    pub fn tracks(&self) -> &[NamedTrack] {
        &self.tracks
    }

    /// The track of that name.
    pub fn track(&self, name: &str) -> Option<&NamedTrack> {
        self.tracks.iter().find(|t| t.name == name)
    }

    /// What manifests say of each track, in the order of [`OnDemand::tracks`].
    pub fn renditions(&self) -> Vec<Rendition<'_>> {
        self.tracks.iter().map(NamedTrack::rendition).collect()
    }

    /// The start of the presentation in units of `timescale`: `@presentationTimeOffset`.
    pub fn start_in(&self, timescale: u32) -> u64 {
        rescale(self.start.0, self.start.1, timescale)
    }

    /// Microseconds from the start of the presentation to the end of its longest track.
    pub fn duration_us(&self) -> u64 {
        let start = micros(self.start.0, self.start.1);
        let ends = self.tracks.iter().map(|t| micros(t.end(), t.index.info.timescale));
        ends.max().unwrap_or(0).saturating_sub(start)
    }

    /// Microseconds of the longest segment of any track.
    pub fn segment_us_max(&self) -> u64 {
        let longest = |t: &NamedTrack| {
            micros(t.segments().map(|s| s.duration).max().unwrap_or(0), t.index.info.timescale)
        };
        self.tracks.iter().map(longest).max().unwrap_or(0)
    }
}

/// `value / timescale` seconds in microseconds, to the nearest.
pub fn micros(value: u64, timescale: u32) -> u64 {
    rescale(value, timescale, 1_000_000)
}

/// `value / from` seconds in units of `1 / to` seconds, to the nearest.
pub fn rescale(value: u64, from: u32, to: u32) -> u64 {
    let (value, from, to) = (u128::from(value), u128::from(from.max(1)), u128::from(to));
    u64::try_from((value * to + from / 2) / from).unwrap_or(u64::MAX)
}

/// `mdhd`'s or `elng`'s language where it has the form of a tag (BCP 47, as xs:language writes it).
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
