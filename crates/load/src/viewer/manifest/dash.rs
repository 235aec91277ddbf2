//! MPD parser (ISO/IEC 23009-1) for the features used by our origin and ffmpeg: SegmentTemplate by
//! number or timeline, SegmentList, on demand and live, several periods.

use std::cell::Cell;
use std::time::Duration;

use dash_mpd_core::{AdaptationSet, BaseURL, MPD, Representation, SegmentList, SegmentTemplate};

use super::{
    Base, Error, Header, Live, Numbered, PERIODS_MAX, Period, Presentation, SEGMENTS_MAX, Segment, Segments,
    TRACKS_MAX, TimeMapping, Track, by_bitrate, units,
};

/// Default live latency, in multiples of the buffer, as in dash.js.
const LATENCY_BUFFERS: u32 = 3;
/// Buffer if the MPD does not specify one.
const BUFFER: Duration = Duration::from_secs(2);

/// Parses an MPD located at `base`.
///
/// # Errors
///
/// Returns an error if the MPD is malformed or uses a feature that viewers do not support.
pub fn read(text: &str, base: &Base) -> Result<Presentation, Error> {
    let mpd = dash_mpd_core::parse(text).map_err(|error| Error::new(format!("MPD: {error}")))?;
    let base = with_base(base, &mpd.base_url)?;
    let buffer = mpd.minBufferTime.unwrap_or_default();
    let live =
        if mpd.mpdtype.as_deref() == Some("dynamic") { Some(live(&mpd, &base, buffer)?) } else { None };
    if mpd.periods.len() > PERIODS_MAX {
        return Err(Error::new(format!("MPD: more than {PERIODS_MAX} Periods")));
    }
    let spans = spans(&mpd);
    let mut periods = Vec::new();
    let listed = Cell::new(0);
    for (period, (start, end)) in mpd.periods.iter().zip(spans) {
        let scope = Scope {
            base: with_base(&base, &period.BaseURL)?,
            start,
            end,
            is_live: live.is_some(),
            listed: &listed,
        };
        let Some(set) = main_set(&period.adaptations) else { continue };
        let inherited = Inherited {
            template: set.SegmentTemplate.as_ref().or(period.SegmentTemplate.as_ref()),
            list: set.SegmentList.as_ref().or(period.SegmentList.as_ref()),
        };
        periods.push(Period { start, end, tracks: tracks(set, &inherited, &scope)? });
    }
    if periods.is_empty() {
        return Err(Error::new("MPD: no Period has an AdaptationSet of video or audio"));
    }
    periods.sort_by_key(|period| period.start);
    Ok(Presentation { live, buffer, periods })
}

fn live(mpd: &MPD, base: &Base, buffer: Duration) -> Result<Live, Error> {
    let began = mpd
        .availabilityStartTime
        .and_then(|began| u64::try_from(began.timestamp_micros()).ok())
        .ok_or_else(|| Error::new("MPD: live, but without an availabilityStartTime after 1970"))?;
    let target = mpd
        .ServiceDescription
        .iter()
        .flat_map(|description| &description.Latency)
        .find_map(|latency| latency.target)
        .and_then(|target_ms| Duration::try_from_secs_f64(target_ms / 1e3).ok());
    let buffer = if buffer.is_zero() { BUFFER } else { buffer };
    let clock = mpd
        .UTCTiming
        .iter()
        .filter(|timing| {
            timing.schemeIdUri.starts_with("urn:mpeg:dash:utc:http-iso:")
                || timing.schemeIdUri.starts_with("urn:mpeg:dash:utc:http-xsdate:")
        })
        .find_map(|timing| base.resolve(timing.value.as_deref()?).ok());
    Ok(Live {
        is_hls: false,
        is_dated: true,
        began: Duration::from_micros(began),
        refresh: mpd.minimumUpdatePeriod,
        latency: target.or(mpd.suggestedPresentationDelay).unwrap_or(buffer.saturating_mul(LATENCY_BUFFERS)),
        window: mpd.timeShiftBufferDepth.unwrap_or(Duration::MAX),
        clock: clock.map(|clock| clock.as_str().to_owned()),
    })
}

/// Computes the start and end of each period (§5.3.2.1).
fn spans(mpd: &MPD) -> Vec<(Duration, Option<Duration>)> {
    let mut starts = Vec::new();
    let mut next = Duration::ZERO;
    for period in &mpd.periods {
        let start = period.start.unwrap_or(next);
        next = start.saturating_add(period.duration.unwrap_or_default());
        starts.push(start);
    }
    let end = |i: usize| {
        let own = mpd.periods[i].duration.map(|duration| starts[i].saturating_add(duration));
        own.or(starts.get(i + 1).copied()).or(mpd.mediaPresentationDuration)
    };
    starts.iter().enumerate().map(|(i, start)| (*start, end(i))).collect()
}

/// Properties shared by all tracks of a period.
struct Scope<'a> {
    base: Base,
    start: Duration,
    end: Option<Duration>,
    is_live: bool,
    /// Number of segments listed so far in the whole MPD.
    listed: &'a Cell<usize>,
}

impl Scope<'_> {
    /// Counts one segment towards [`SEGMENTS_MAX`]. Without this limit, a few bytes of an MPD could
    /// describe millions of segments.
    fn count_segment(&self) -> Result<(), Error> {
        self.listed.set(self.listed.get() + 1);
        if self.listed.get() > SEGMENTS_MAX {
            return Err(Error::new(format!("MPD: lists more than {SEGMENTS_MAX} segments")));
        }
        Ok(())
    }
}

/// Values inherited by a Representation that does not have its own.
struct Inherited<'a> {
    template: Option<&'a SegmentTemplate>,
    list: Option<&'a SegmentList>,
}

/// Returns the AdaptationSet to play: the first with video, otherwise the first with audio.
fn main_set(sets: &[AdaptationSet]) -> Option<&AdaptationSet> {
    let of = |kind: &str| {
        sets.iter().find(|set| {
            let of_first =
                |name: fn(&Representation) -> Option<&str>| set.representations.first().and_then(name);
            [
                set.contentType.as_deref(),
                set.mimeType.as_deref(),
                of_first(|first| first.contentType.as_deref()),
                of_first(|first| first.mimeType.as_deref()),
            ]
            .into_iter()
            .flatten()
            .any(|name| name.starts_with(kind))
        })
    };
    of("video").or_else(|| of("audio"))
}

fn tracks(set: &AdaptationSet, inherited: &Inherited<'_>, scope: &Scope<'_>) -> Result<Vec<Track>, Error> {
    let base = with_base(&scope.base, &set.BaseURL)?;
    let mut tracks = Vec::new();
    for representation in set.representations.iter().take(TRACKS_MAX) {
        let base = with_base(&base, &representation.BaseURL)?;
        let early =
            set.BaseURL.iter().chain(&representation.BaseURL).find_map(|url| url.availability_time_offset);
        let segments = if let Some(template) = representation.SegmentTemplate.as_ref().or(inherited.template)
        {
            let merged = merge(template, inherited.template);
            templated(&merged, representation, &base, early, scope)?
        } else if let Some(list) = representation.SegmentList.as_ref().or(inherited.list) {
            listed(list, &base, scope)?
        } else {
            return Err(Error::new(
                "MPD: Representation has neither SegmentTemplate nor SegmentList (SegmentBase is not supported)",
            ));
        };
        let name = representation.id.clone().unwrap_or_default();
        tracks.push(Track { name, bitrate: representation.bandwidth.unwrap_or(0), segments });
    }
    if tracks.is_empty() {
        return Err(Error::new("MPD: AdaptationSet has no Representation"));
    }
    Ok(by_bitrate(tracks))
}

/// Fills a template's missing attributes from its parent template (§5.3.9.1).
fn merge(own: &SegmentTemplate, above: Option<&SegmentTemplate>) -> SegmentTemplate {
    let mut merged = own.clone();
    let Some(above) = above else { return merged };
    merged.media = merged.media.or_else(|| above.media.clone());
    merged.initialization = merged.initialization.or_else(|| above.initialization.clone());
    merged.startNumber = merged.startNumber.or(above.startNumber);
    merged.duration = merged.duration.or(above.duration);
    merged.timescale = merged.timescale.or(above.timescale);
    merged.presentationTimeOffset = merged.presentationTimeOffset.or(above.presentationTimeOffset);
    merged.availabilityTimeOffset = merged.availabilityTimeOffset.or(above.availabilityTimeOffset);
    merged.SegmentTimeline = merged.SegmentTimeline.or_else(|| above.SegmentTimeline.clone());
    merged
}

fn templated(
    template: &SegmentTemplate,
    of: &Representation,
    base: &Base,
    early: Option<f64>,
    scope: &Scope<'_>,
) -> Result<Segments, Error> {
    let timescale = template.timescale.unwrap_or(1).max(1);
    let media = template.media.as_deref().ok_or_else(|| Error::new("MPD: SegmentTemplate has no @media"))?;
    let header =
        template.initialization.as_deref().map(|text| header(&fill_in(text, of), None, base)).transpose()?;
    let media = fill_in(media, of);
    let mapping = TimeMapping {
        start: scope.start,
        offset: units(template.presentationTimeOffset.unwrap_or(0), timescale),
    };
    let first = template.startNumber.unwrap_or(1);
    if template.SegmentTimeline.is_some() {
        let shape = Shape { base, header, timescale, mapping, first };
        return timeline(template, &media, &shape, scope);
    }
    let length = template.duration.filter(|units| *units >= 1.0).map(|units| units as u64);
    let length =
        length.ok_or_else(|| Error::new("MPD: SegmentTemplate has no @duration or SegmentTimeline"))?;
    if scope.end.is_none() && !scope.is_live {
        return Err(Error::new("MPD: no Period@duration or @mediaPresentationDuration"));
    }
    let early = template.availabilityTimeOffset.or(early).unwrap_or(0.0).max(0.0);
    Ok(Segments::Numbered(Box::new(Numbered {
        media: target(&media, base)?,
        header,
        first,
        length,
        timescale,
        start: scope.start,
        end: scope.end,
        // INF means that segments are available immediately.
        early: Duration::try_from_secs_f64(early).unwrap_or(Duration::MAX),
        mapping,
    })))
}

/// Properties shared by listed segments.
struct Shape<'a> {
    base: &'a Base,
    header: Option<Header>,
    timescale: u64,
    mapping: TimeMapping,
    first: u64,
}

fn timeline(
    template: &SegmentTemplate,
    media: &str,
    shape: &Shape<'_>,
    scope: &Scope<'_>,
) -> Result<Segments, Error> {
    let entries = template.SegmentTimeline.as_ref().map_or(&[][..], |timeline| &timeline.segments);
    // Resolve once, because targets differ only in number and time.
    let media = target(media, shape.base)?;
    let mut segments = Vec::new();
    let mut time = 0u64;
    for (i, entry) in entries.iter().enumerate() {
        time = entry.t.unwrap_or(time);
        let repeat = match entry.r.unwrap_or(0) {
            // A negative count repeats until the next `S` element or the end of the period.
            ..0 => {
                let to = entries.get(i + 1).and_then(|next| next.t).or_else(|| shape.decode_time(scope.end?));
                to.unwrap_or(time).saturating_sub(time).div_ceil(entry.d.max(1)).max(1)
            }
            repeat => u64::try_from(repeat).unwrap_or(0).saturating_add(1),
        };
        for _ in 0..repeat {
            scope.count_segment()?;
            let number = shape.first.saturating_add(segments.len() as u64);
            let target = with_number(&with(&media, "Time", time), number);
            segments.push(shape.segment(target, None, time, entry.d));
            time = time.saturating_add(entry.d);
        }
    }
    Ok(Segments::Listed(segments))
}

fn listed(list: &SegmentList, base: &Base, scope: &Scope<'_>) -> Result<Segments, Error> {
    let timescale = list.timescale.unwrap_or(1).max(1);
    let header = list.Initialization.as_ref().map(|initialization| {
        header(initialization.sourceURL.as_deref().unwrap_or(""), initialization.range.as_deref(), base)
    });
    let header = header.transpose()?;
    let mapping = TimeMapping { start: scope.start, offset: Duration::ZERO };
    let shape = Shape { base, header, timescale, mapping, first: 1 };
    let length = list.duration.ok_or_else(|| Error::new("MPD: SegmentList has no @duration"))?;
    let mut segments = Vec::new();
    for (i, url) in list.segment_urls.iter().enumerate() {
        scope.count_segment()?;
        let target = target(url.media.as_deref().unwrap_or(""), base)?;
        let range = url.mediaRange.as_deref().map(byte_range).transpose()?;
        segments.push(shape.segment(target, range, length.saturating_mul(i as u64), length));
    }
    Ok(Segments::Listed(segments))
}

impl Shape<'_> {
    /// Converts a media time to a decode time.
    fn decode_time(&self, at: Duration) -> Option<u64> {
        let mapped = at.saturating_sub(self.mapping.start).saturating_add(self.mapping.offset);
        let units = mapped.as_nanos().checked_mul(u128::from(self.timescale))? / 1_000_000_000;
        u64::try_from(units).ok()
    }

    fn segment(&self, target: String, range: Option<(u64, u64)>, time: u64, length: u64) -> Segment {
        let begin = units(time, self.timescale);
        let end = units(time.saturating_add(length), self.timescale);
        let start = begin.saturating_add(self.mapping.start).saturating_sub(self.mapping.offset);
        let duration = end - begin;
        let header = self.header.clone();
        Segment {
            target,
            range,
            header,
            start,
            duration,
            available: Duration::ZERO,
            mapping: Some(self.mapping),
        }
    }
}

/// Parses `FIRST-LAST` into first byte and length.
fn byte_range(text: &str) -> Result<(u64, u64), Error> {
    let parsed = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some((first, last.checked_sub(first)?.checked_add(1)?))
    });
    parsed.ok_or_else(|| Error::new(format!("MPD: expected a byte range, got {text:?}")))
}

fn with_base(base: &Base, urls: &[BaseURL]) -> Result<Base, Error> {
    urls.first().map_or_else(|| Ok(base.clone()), |url| base.join(url.base.trim()))
}

fn target(reference: &str, base: &Base) -> Result<String, Error> {
    Ok(base.resolve(reference)?.as_str().to_owned())
}

fn header(reference: &str, range: Option<&str>, base: &Base) -> Result<Header, Error> {
    Ok(Header { target: target(reference, base)?, range: range.map(byte_range).transpose()? })
}

/// Replaces the identifiers that are constant across segments (§5.3.9.4.4).
fn fill_in(template: &str, of: &Representation) -> String {
    let named = template.replace("$RepresentationID$", of.id.as_deref().unwrap_or(""));
    // The percent sign in a width format must not be parsed as URL encoding.
    let wide = with(&named, "Bandwidth", of.bandwidth.unwrap_or(0));
    wide.replace("$Number%0", "$Number:0").replace("$Time%0", "$Time:0")
}

/// Returns the target of segment `number`.
pub(super) fn with_number(template: &str, number: u64) -> String {
    with(template, "Number", number).replace("$$", "$")
}

/// Replaces `$NAME$` and `$NAME%0WIDTHd$`, including the form with a colon produced by [`fill_in`].
fn with(template: &str, name: &str, value: u64) -> String {
    /// Maximum width; wider numbers are implausible in file names.
    const WIDTH_MAX: usize = 32;
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out += before;
        let Some(end) = from[1..].find('$') else { break };
        let (inside, after) = (&from[1..=end], &from[end + 2..]);
        let width = match inside.strip_prefix(name) {
            Some("") => Some(1),
            Some(format) => {
                format.strip_prefix(['%', ':']).and_then(|f| f.strip_suffix('d')).and_then(|w| w.parse().ok())
            }
            None => None,
        };
        match width {
            Some(width) => out += &format!("{value:0width$}", width = width.min(WIDTH_MAX)),
            None => out += &from[..end + 2],
        }
        rest = after;
    }
    if let Some(at) = rest.find('$') {
        rest = &rest[at..];
    }
    out + rest
}
