//! What a viewer reads of an MPD or of playlists: tracks, and which segment of them holds what media time. Pure.
//!
//! [`dash`] and [`hls`] read the two formats into this one model. It has the tracks of one kind only, video where there is
//! any: the load of a viewer, and what makes it stall, is nearly all there. *Media time* counts from the beginning of the
//! presentation; a live one says by the wall clock when that was.
//!
//! **Invariant:** nothing in a manifest makes a reader panic, and what it may ask to be kept has limits.

use std::fmt;
use std::time::Duration;

use thalweg_http::{Authority, Target, reference};

pub mod dash;
pub mod hls;
#[cfg(test)]
mod tests;

/// Longest manifest that is read, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Segments that a manifest may list, in all its tracks: two days of 2 s in one.
pub const SEGMENTS_MAX: usize = 100_000;
/// Periods of a presentation.
pub const PERIODS_MAX: usize = 1000;
/// Tracks of a period.
pub const TRACKS_MAX: usize = 100;

/// Why a manifest cannot be played, in words for the one who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What is wrong, and where.
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

/// Where a manifest came from: what its references count from.
#[derive(Debug, Clone)]
pub struct Base {
    /// The server.
    pub authority: Authority,
    /// Path and query.
    pub target: Target,
}

impl Base {
    /// What a reference names. A viewer has one connection, so that must be the same server's.
    fn resolve(&self, reference: &str) -> Result<Target, Error> {
        reference::resolve(&self.authority, &self.target, reference).ok_or_else(|| {
            Error::new(format!("{reference:?} names no target of {}", self.authority.as_str()))
        })
    }

    fn join(&self, reference: &str) -> Result<Base, Error> {
        Ok(Base { authority: self.authority.clone(), target: self.resolve(reference)? })
    }
}

/// A presentation as its manifest has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Presentation {
    /// `None` where it is on demand.
    pub live: Option<Live>,
    /// Media that the manifest wants buffered before playback starts; zero where it does not say.
    pub buffer: Duration,
    /// In order, at least one.
    pub periods: Vec<Period>,
}

/// What is special to a live presentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Whether its media playlists are read one by one, each when nothing in it is left (HLS), and not the one manifest in time.
    pub is_hls: bool,
    /// The wall clock at media time 0, since 1970.
    pub began: Duration,
    /// Whether the manifest says so; else it is a guess.
    pub is_dated: bool,
    /// How often to read the manifest again; `None` for never.
    pub refresh: Option<Duration>,
    /// How far behind the live edge players are to stay.
    pub latency: Duration,
    /// How far behind the live edge media can be had.
    pub window: Duration,
    /// A target that answers with the server's time, in ISO 8601.
    pub clock: Option<String>,
}

/// A time with the same tracks throughout.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// Its beginning in media time.
    pub start: Duration,
    /// Its end, where that is known.
    pub end: Option<Duration>,
    /// By rising bitrate, at least one.
    pub tracks: Vec<Track>,
}

/// One of the tracks that show the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// What the MPD calls it, or the target of its media playlist.
    pub name: String,
    /// Bits per second; 0 where the manifest does not say.
    pub bitrate: u64,
    /// Where its segments are.
    pub segments: Segments,
}

/// The segments of a track.
#[derive(Debug, Clone, PartialEq)]
pub enum Segments {
    /// Each computed from its number.
    Numbered(Box<Numbered>),
    /// Each listed, in order of time.
    Listed(Vec<Segment>),
    /// Listed in a media playlist at this target.
    Playlist(String),
}

/// Segments of one length that are named by numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// The target of a segment, with `$Number$` in it.
    pub media: String,
    /// The CMAF header.
    pub header: Option<Header>,
    /// The number of the period's first segment.
    pub first: u64,
    /// Length of each, in units of the timescale; not 0.
    pub length: u64,
    /// Units per second; not 0.
    pub timescale: u64,
    /// The period's beginning in media time.
    pub start: Duration,
    /// The period's end in media time, where it is known.
    pub end: Option<Duration>,
    /// How long before its end a segment can be asked for, its first chunk being complete.
    pub early: Duration,
    /// How decode times become media times.
    pub line: Line,
}

/// A track's decode times on the line of media time: media time = decode time − `offset` + `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Beginning of the period.
    pub start: Duration,
    /// The decode time there.
    pub offset: Duration,
}

/// Where a CMAF header is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The target.
    pub target: String,
    /// First byte and length, if it is a part of what the target names.
    pub range: Option<(u64, u64)>,
}

/// What to ask for, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The target.
    pub target: String,
    /// First byte and length, if it is a part of what the target names.
    pub range: Option<(u64, u64)>,
    /// Its CMAF header.
    pub header: Option<Header>,
    /// Media time.
    pub start: Duration,
    /// Media time.
    pub duration: Duration,
    /// From what media time at the live edge it can be asked for; its end, or earlier where it is sent chunk by chunk.
    pub available: Duration,
    /// How its decode times become media times. Without one it begins at `start`, whatever these say.
    pub line: Option<Line>,
}

impl Segment {
    /// Its end in media time.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }

    fn middle(&self) -> Duration {
        self.start.saturating_add(self.duration / 2)
    }
}

/// What there is at a media time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This.
    Segment(Segment),
    /// A live manifest does not list it yet.
    NotYet,
    /// The presentation has ended.
    End,
    /// This media playlist is to be read first.
    Playlist(String),
}

impl Presentation {
    /// The period at a media time, and its number.
    #[must_use]
    pub fn period(&self, at: Duration) -> (usize, &Period) {
        let number = self.periods.partition_point(|period| period.start <= at).saturating_sub(1);
        (number, &self.periods[number])
    }

    /// The segment of a track that begins at `end`, where another ended, give or take half its length: the timescales of
    /// tracks round differently. Where nothing begins there, the next.
    #[must_use]
    pub fn following(&self, track: usize, end: Duration) -> Found {
        self.find(track, end, |segment| segment.middle() > end)
    }

    /// The segment of a track that holds `at`, else the next one after it.
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
        // The one that holds it, or as the last nanoseconds round, one of its neighbours.
        (before.saturating_sub(1)..=before.saturating_add(2))
            .filter_map(|index| self.segment(index))
            .find(is_it)
    }

    /// The segment so many after the first.
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
            line: Some(self.line),
        })
    }
}

/// So many units of a timescale as time; a timescale of 0 counts as 1.
#[must_use]
pub fn units(count: u64, timescale: u64) -> Duration {
    let timescale = timescale.max(1);
    let rest = u128::from(count % timescale) * 1_000_000_000 / u128::from(timescale);
    Duration::new(count / timescale, u32::try_from(rest).expect("less than a second"))
}

/// Sorts by bitrate, which the choice of a track builds on.
fn by_bitrate(mut tracks: Vec<Track>) -> Vec<Track> {
    tracks.sort_by_key(|track| track.bitrate);
    tracks
}
