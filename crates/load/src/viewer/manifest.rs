//! Model of MPDs and playlists for viewers: tracks, and look-up of segments by media time.
//!
//! [`dash`] and [`hls`] parse the two formats into this model. The model has tracks of one media
//! type only: video if available, because it causes nearly all of a viewer's load and stalls.
//! *Media time* is measured from the start of the presentation. For a live presentation, the model
//! also has the wall clock at media time 0.
//!
//! **Invariant:** no manifest can make a parser panic or exceed the size limits below.

use std::fmt;
use std::time::Duration;

use thalweg_http::{Authority, Target, reference};

pub mod dash;
pub mod hls;
#[cfg(test)]
mod tests;

/// Maximum manifest size in bytes.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Maximum segments listed in a manifest, enough for two days of 2 s segments in one track.
pub const SEGMENTS_MAX: usize = 100_000;
/// Maximum periods per presentation.
pub const PERIODS_MAX: usize = 1000;
/// Maximum tracks per period.
pub const TRACKS_MAX: usize = 100;

/// Error that makes a manifest unplayable, described for the manifest's author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Description of the error.
    pub what: String,
}

impl Error {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

/// Location of a manifest, against which its references are resolved.
#[derive(Debug, Clone)]
pub struct Base {
    /// Authority of the server.
    pub authority: Authority,
    /// Path and query.
    pub target: Target,
}

impl Base {
    /// Resolves a reference, which must lead to the same server because a viewer has a single
    /// connection.
    fn resolve(&self, reference: &str) -> Result<Target, Error> {
        reference::resolve(&self.authority, &self.target, reference).ok_or_else(|| {
            Error::new(format!("{reference:?} is not on the server {}", self.authority.as_str()))
        })
    }

    fn join(&self, reference: &str) -> Result<Base, Error> {
        Ok(Base { authority: self.authority.clone(), target: self.resolve(reference)? })
    }
}

/// A presentation as described by its manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Presentation {
    /// Live properties; `None` if the presentation is on demand.
    pub live: Option<Live>,
    /// Buffer required by the manifest before playback starts; zero if unspecified.
    pub buffer: Duration,
    /// Periods in order; at least one.
    pub periods: Vec<Period>,
}

/// Properties of a live presentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Whether this is HLS, where each media playlist is reloaded when its segments are used up. In
    /// DASH, the MPD is reloaded at intervals.
    pub is_hls: bool,
    /// Unix time at media time 0.
    pub began: Duration,
    /// Whether the manifest gives `began`; otherwise `began` is an estimate.
    pub is_dated: bool,
    /// Interval between manifest reloads; `None` if the manifest is never reloaded.
    pub refresh: Option<Duration>,
    /// Target latency behind the live edge.
    pub latency: Duration,
    /// DVR window: how far behind the live edge media is available.
    pub window: Duration,
    /// Request target that returns the server's time in ISO 8601.
    pub clock: Option<String>,
}

/// A period, during which the tracks do not change.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// Start in media time.
    pub start: Duration,
    /// End in media time, if known.
    pub end: Option<Duration>,
    /// Tracks by ascending bitrate; at least one.
    pub tracks: Vec<Track>,
}

/// One of several tracks with the same content.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Id of the Representation in the MPD, or target of the media playlist.
    pub name: String,
    /// Bits per second; 0 if unknown.
    pub bitrate: u64,
    /// Segments of the track.
    pub segments: Segments,
}

/// The segments of a track.
#[derive(Debug, Clone, PartialEq)]
pub enum Segments {
    /// Segments computed from their numbers.
    Numbered(Box<Numbered>),
    /// Listed segments, ordered by time.
    Listed(Vec<Segment>),
    /// Segments listed in a media playlist at this target.
    Playlist(String),
}

/// Segments of equal duration, identified by number.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// Template of the segments' targets, containing `$Number$`.
    pub media: String,
    /// CMAF header of the track.
    pub header: Option<Header>,
    /// Number of the period's first segment.
    pub first: u64,
    /// Segment duration in units of the timescale; not 0.
    pub length: u64,
    /// Timescale in units per second; not 0.
    pub timescale: u64,
    /// Start of the period in media time.
    pub start: Duration,
    /// End of the period in media time, if known.
    pub end: Option<Duration>,
    /// How long before its end a segment can be requested, because its first chunk is complete.
    pub early: Duration,
    /// Conversion of decode times to media times.
    pub mapping: TimeMapping,
}

/// Conversion of a track's decode times: media time = decode time − `offset` + `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeMapping {
    /// Start of the period in media time.
    pub start: Duration,
    /// Decode time at the start of the period.
    pub offset: Duration,
}

/// Location of a CMAF header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Target to request.
    pub target: String,
    /// First byte and length, if the location is a range of the target.
    pub range: Option<(u64, u64)>,
}

/// A segment and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Target to request.
    pub target: String,
    /// First byte and length, if the location is a range of the target.
    pub range: Option<(u64, u64)>,
    /// CMAF header of the segment.
    pub header: Option<Header>,
    /// Start in media time.
    pub start: Duration,
    /// Duration in media time.
    pub duration: Duration,
    /// Media time that the live edge must reach before the segment can be requested: the segment's
    /// end, or an earlier time if it is sent chunk by chunk.
    pub available: Duration,
    /// Conversion of decode times. If `None`, the segment starts at `start`, regardless of its
    /// decode times.
    pub mapping: Option<TimeMapping>,
}

impl Segment {
    /// Returns the end in media time.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }

    fn middle(&self) -> Duration {
        self.start.saturating_add(self.duration / 2)
    }
}

/// Result of looking up a media time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The segment found.
    Segment(Segment),
    /// The live manifest does not list the segment yet.
    NotYet,
    /// The presentation has ended.
    End,
    /// The media playlist at this target must be read first.
    Playlist(String),
}

impl Presentation {
    /// Returns the period at media time `at`, preceded by its index.
    #[must_use]
    pub fn period(&self, at: Duration) -> (usize, &Period) {
        let number = self.periods.partition_point(|period| period.start <= at).saturating_sub(1);
        (number, &self.periods[number])
    }

    /// Returns the segment of a track that follows media time `end`. Because timescales round
    /// differently, the segment may start before `end`, but by less than half its duration.
    #[must_use]
    pub fn following(&self, track: usize, end: Duration) -> Found {
        self.find(track, end, |segment| segment.middle() > end)
    }

    /// Returns the segment of a track that contains `at`, or else the next segment.
    #[must_use]
    pub fn containing(&self, track: usize, at: Duration) -> Found {
        self.find(track, at, |segment| segment.end() > at)
    }

    fn find(&self, track: usize, at: Duration, is_it: impl Fn(&Segment) -> bool) -> Found {
        let (first, _) = self.period(at);
        for period in &self.periods[first..] {
            let found = match &period.tracks[track.min(period.tracks.len() - 1)].segments {
                Segments::Playlist(target) => return Found::Playlist(target.clone()),
                Segments::Numbered(numbered) => numbered.find(at, &is_it),
                Segments::Listed(listed) => {
                    listed.get(listed.partition_point(|segment| !is_it(segment))).cloned()
                }
            };
            if let Some(segment) = found {
                return Found::Segment(segment);
            }
        }
        if self.live.is_some() { Found::NotYet } else { Found::End }
    }
}

impl Numbered {
    fn find(&self, at: Duration, is_it: impl Fn(&Segment) -> bool) -> Option<Segment> {
        let into = at.saturating_sub(self.start).as_nanos().checked_mul(u128::from(self.timescale))?;
        let before = u64::try_from(into / (u128::from(self.length) * 1_000_000_000)).ok()?;
        // Try the computed segment and its neighbours, because nanoseconds are rounded.
        (before.saturating_sub(1)..=before.saturating_add(2))
            .filter_map(|index| self.segment(index))
            .find(is_it)
    }

    /// Returns segment `index`, counted from zero.
    fn segment(&self, index: u64) -> Option<Segment> {
        let from = units(index.checked_mul(self.length)?, self.timescale);
        let to = units(index.checked_add(1)?.checked_mul(self.length)?, self.timescale);
        let start = self.start.checked_add(from)?;
        if self.end.is_some_and(|end| start >= end) {
            return None;
        }
        let duration = to - from;
        let end = start.checked_add(duration)?;
        Some(Segment {
            target: dash::with_number(&self.media, self.first.checked_add(index)?),
            range: None,
            header: self.header.clone(),
            start,
            duration,
            available: end.saturating_sub(self.early.min(duration)),
            mapping: Some(self.mapping),
        })
    }
}

/// Converts units of a timescale to a duration. A timescale of 0 counts as 1.
#[must_use]
pub fn units(count: u64, timescale: u64) -> Duration {
    let timescale = timescale.max(1);
    let rest = u128::from(count % timescale) * 1_000_000_000 / u128::from(timescale);
    Duration::new(count / timescale, u32::try_from(rest).expect("less than 10^9 nanoseconds fit in u32"))
}

/// Sorts tracks by bitrate, as track selection requires.
fn by_bitrate(mut tracks: Vec<Track>) -> Vec<Track> {
    tracks.sort_by_key(|track| track.bitrate);
    tracks
}
