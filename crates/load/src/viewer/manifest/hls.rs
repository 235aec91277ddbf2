//! HLS playlist parser (draft-pantos-hls-rfc8216bis) for the features used by our origin and
//! ffmpeg: multivariant and media playlists, on demand and live, with whole segments.

use std::time::Duration;

use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::Tag;
use quick_m3u8::{HlsLine, Reader};

use super::{
    Base, Error, Header, Live, Period, Presentation, SEGMENTS_MAX, Segment, Segments, TRACKS_MAX, Track,
    by_bitrate,
};

/// Distance behind the end of a live playlist at which players start, in target durations (§6.3.3).
pub const LATENCY_TARGET_DURATIONS: u32 = 3;

/// A parsed playlist.
#[derive(Debug, Clone, PartialEq)]
pub enum Playlist {
    /// A multivariant playlist: tracks, each with its own media playlist.
    Multivariant(Vec<Track>),
    /// A media playlist: segments.
    Media(Media),
}

/// A media playlist.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// Segments in order. Media times count from 1970 if dated, otherwise from the first segment.
    pub segments: Vec<Segment>,
    /// Number of the first segment.
    pub sequence: u64,
    /// EXT-X-TARGETDURATION: maximum segment duration, rounded to seconds.
    pub target: Duration,
    /// Whether no more segments will be added.
    pub is_complete: bool,
    /// Whether media times come from EXT-X-PROGRAM-DATE-TIME.
    pub is_dated: bool,
}

/// Parses a playlist located at `base`.
///
/// # Errors
///
/// Returns an error if the playlist is malformed or uses a feature that viewers do not support.
pub fn read(text: &str, base: &Base) -> Result<Playlist, Error> {
    let mut reading = Reading::default();
    let mut reader = Reader::from_str(text, ParsingOptionsBuilder::new().with_parsing_for_all_tags().build());
    let mut is_first = true;
    loop {
        let line = reader.read_line().map_err(|error| Error::new(format!("playlist: {}", error.error)))?;
        let Some(line) = line else { break };
        if is_first && !matches!(line, HlsLine::KnownTag(KnownTag::Hls(Tag::M3u(_)))) {
            return Err(Error::new("playlist: first line is not #EXTM3U"));
        }
        is_first = false;
        match line {
            HlsLine::KnownTag(KnownTag::Hls(tag)) => reading.tag(&tag, base)?,
            HlsLine::Uri(uri) => reading.uri(uri.trim(), base)?,
            _ => {}
        }
    }
    reading.finish()
}

/// Parser state.
#[derive(Default)]
struct Reading {
    tracks: Vec<Track>,
    segments: Vec<Segment>,
    sequence: u64,
    target: Option<Duration>,
    is_complete: bool,
    is_dated: bool,
    /// Properties of the next URI.
    variant: Option<u64>,
    duration: Option<Duration>,
    range: Option<(u64, Option<u64>)>,
    /// Properties of all following segments.
    header: Option<Header>,
    time: Duration,
    /// End of the previous segment's byte range.
    range_end: u64,
}

impl Reading {
    fn tag(&mut self, tag: &Tag<'_>, base: &Base) -> Result<(), Error> {
        match tag {
            Tag::StreamInf(variant) => self.variant = Some(variant.bandwidth()),
            Tag::Inf(inf) => {
                let duration = Duration::try_from_secs_f64(inf.duration());
                self.duration =
                    Some(duration.map_err(|_| Error::new("playlist: EXTINF is not a valid duration"))?);
            }
            Tag::Byterange(range) => self.range = Some((range.length(), range.offset())),
            Tag::Targetduration(target) => self.target = Some(Duration::from_secs(target.target_duration())),
            Tag::MediaSequence(sequence) => self.sequence = sequence.media_sequence(),
            Tag::Endlist(_) => self.is_complete = true,
            Tag::Map(map) => {
                let target = base.resolve(map.uri())?.as_str().to_owned();
                let range = map.byterange().map(|range| (range.offset, range.length));
                self.header = Some(Header { target, range });
            }
            Tag::ProgramDateTime(date) => {
                let us = date.program_date_time().timestamp_micros();
                // Ignore dates unless the first segment has one.
                if let Ok(us) = u64::try_from(us)
                    && (self.is_dated || self.segments.is_empty())
                {
                    self.is_dated = true;
                    self.time = Duration::from_micros(us);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn uri(&mut self, uri: &str, base: &Base) -> Result<(), Error> {
        if uri.is_empty() {
            return Ok(());
        }
        let target = base.resolve(uri)?.as_str().to_owned();
        if let Some(bitrate) = self.variant.take() {
            if self.tracks.len() < TRACKS_MAX {
                self.tracks.push(Track {
                    name: target.clone(),
                    bitrate,
                    segments: Segments::Playlist(target),
                });
            }
            return Ok(());
        }
        let duration =
            self.duration.take().ok_or_else(|| Error::new(format!("playlist: {uri:?} has no EXTINF")))?;
        if self.segments.len() >= SEGMENTS_MAX {
            return Err(Error::new(format!("playlist: more than {SEGMENTS_MAX} segments")));
        }
        let range = self.range.take().map(|(length, offset)| (offset.unwrap_or(self.range_end), length));
        self.range_end = range.map_or(0, |(offset, length)| offset.saturating_add(length));
        let (start, header) = (self.time, self.header.clone());
        self.time = self.time.saturating_add(duration);
        let available = Duration::ZERO;
        self.segments.push(Segment { target, range, header, start, duration, available, mapping: None });
        Ok(())
    }

    fn finish(self) -> Result<Playlist, Error> {
        if !self.tracks.is_empty() {
            return Ok(Playlist::Multivariant(by_bitrate(self.tracks)));
        }
        let target = self
            .target
            .ok_or_else(|| Error::new("playlist: has neither variants nor EXT-X-TARGETDURATION"))?;
        if self.segments.is_empty() && self.is_complete {
            return Err(Error::new("playlist: ended without segments"));
        }
        let Self { segments, sequence, is_complete, is_dated, .. } = self;
        // Look-ups need start times in order. A date slightly before the end of the previous
        // segment is accepted.
        if !segments.is_sorted_by_key(|segment| segment.start) {
            return Err(Error::new("playlist: EXT-X-PROGRAM-DATE-TIME goes backwards"));
        }
        Ok(Playlist::Media(Media { segments, sequence, target, is_complete, is_dated }))
    }
}

/// Creates a presentation whose media playlists have not been read. It counts as on demand until
/// one of them shows whether it is live.
#[must_use]
pub fn unread(tracks: Vec<Track>) -> Presentation {
    Presentation {
        live: None,
        buffer: Duration::ZERO,
        periods: vec![Period { start: Duration::ZERO, end: None, tracks }],
    }
}

impl Media {
    /// Assigns media times to undated segments. `before` has earlier versions of the playlist and
    /// the playlists of other tracks. Segments are aligned with the latest of these playlists by
    /// segment number, as in players; if no numbers match, the segments follow that playlist's end.
    /// If `before` has no segments, the last segment of a live playlist ends at `edge`, the wall
    /// clock. RFC 8216 §6.3.4 offers nothing better.
    pub fn place<'a>(&mut self, before: impl IntoIterator<Item = &'a Media>, edge: Duration) {
        if self.is_dated {
            return;
        }
        let latest =
            before.into_iter().filter(|media| !media.segments.is_empty()).max_by_key(|media| media.next());
        let length = self.segments.last().map_or(Duration::ZERO, Segment::end);
        let shift = match latest {
            Some(latest) => self.shift_to(latest),
            // On demand, media time starts with the first segment.
            None if self.is_complete => return,
            None => edge.saturating_sub(length),
        };
        for segment in &mut self.segments {
            segment.start = segment.start.saturating_add(shift);
        }
    }

    /// Returns the time by which to shift these segments, which start at zero, to align them with
    /// `other`.
    fn shift_to(&self, other: &Media) -> Duration {
        let in_common = self.segments.iter().enumerate().find_map(|(i, segment)| {
            let number = self.sequence.saturating_add(i as u64).checked_sub(other.sequence)?;
            let same = other.segments.get(usize::try_from(number).ok()?)?;
            same.start.checked_sub(segment.start)
        });
        in_common.unwrap_or_else(|| {
            // Continue after the end of `other`, with one target duration per missing number.
            let missing = u32::try_from(self.sequence.saturating_sub(other.next())).unwrap_or(u32::MAX);
            let end = other.segments.last().map_or(Duration::ZERO, Segment::end);
            end.saturating_add(self.target.saturating_mul(missing))
        })
    }

    /// Returns the number that follows the last segment's number.
    pub(super) fn next(&self) -> u64 {
        self.sequence.saturating_add(self.segments.len() as u64)
    }

    /// Returns the live properties, or `None` if the playlist is complete.
    #[must_use]
    pub fn live(&self) -> Option<Live> {
        let first = self.segments.first().map_or(Duration::ZERO, |segment| segment.start);
        let last = self.segments.last().map_or(Duration::ZERO, Segment::end);
        (!self.is_complete).then(|| Live {
            is_hls: true,
            began: Duration::ZERO,
            is_dated: self.is_dated,
            refresh: Some(self.target),
            latency: self.target.saturating_mul(LATENCY_TARGET_DURATIONS),
            window: last.saturating_sub(first),
            clock: None,
        })
    }
}
