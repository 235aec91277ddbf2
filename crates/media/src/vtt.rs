//! WebVTT files (W3C WebVTT), served beside tracks: their index, and segments cut out of them.
//!
//! The index is that of a track: the header is the text before the first cue, and a segment is the
//! byte range of the cues shown during [`SEGMENT_MS`]. Times are in milliseconds from the start of
//! the presentation. Cues of other segments may lie in the range, because cues overlap and need not
//! be in order; [`segment`] drops them.

use std::fmt::Write;
use std::ops::Range;

use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::track::{Media, SampleDefaults, Segment, TrackIndex, TrackInfo};

/// Maximum length of a file, in bytes. Subtitles of a film have about 100 KiB.
pub const VTT_BYTES_MAX: u64 = 4 << 20;
/// Length of a segment. It is longer than those of media: players fetch subtitles ahead, and each
/// request has only a few hundred bytes to deliver.
pub const SEGMENT_MS: u64 = 30_000;
/// Maximum end of a cue, in milliseconds: 100 hours.
pub const CUE_END_MS_MAX: u64 = 100 * 3_600_000;
/// Maximum sum over all cues of the segments in which they are shown.
pub const SHOWN_MAX: usize = 1 << 20;

/// Extension of WebVTT files.
pub(crate) const EXTENSION: &str = "vtt";

/// Timescale of MPEG-2 timestamps.
pub const MPEG_TIMESCALE: u32 = 90_000;
const TIMESCALE: u32 = 1000;
/// Bits of an MPEG-2 timestamp.
const MPEG_TIME_BITS: u32 = 33;

/// Returns whether a file is WebVTT by its name.
#[must_use]
pub fn is_vtt_file(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case(EXTENSION))
}

/// Indexes a file. `language` is a tag of BCP 47.
///
/// # Errors
///
/// Returns an error if the text is not WebVTT, or exceeds a limit of this module.
pub fn index(file: &[u8], language: Option<String>) -> Result<TrackIndex> {
    let signature = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    if !signature.strip_prefix(b"WEBVTT").is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
    {
        return Err(invalid(0, "must begin with WEBVTT"));
    }
    over("VTT_BYTES_MAX", VTT_BYTES_MAX, file.len() as u64)?;
    let (mut ranges, mut shown, mut header) = (Vec::new(), 0, file.len());
    for cue in cues(file) {
        let cue = cue?;
        header = header.min(cue.bytes.start);
        let first = index_of(cue.start_ms);
        let end = index_of(cue.end_ms.max(cue.start_ms + 1) - 1) + 1;
        shown += end - first;
        over("SHOWN_MAX", SHOWN_MAX as u64, shown as u64)?;
        if ranges.len() < end {
            ranges.resize(end, 0..0);
        }
        for range in &mut ranges[first..end] {
            *range = join(range, &cue.bytes);
        }
    }
    ranges.resize(ranges.len().max(1), 0..0);
    let segment = |(i, range): (usize, &Range<usize>)| {
        let (offset, size) = (range.start as u64, range.len() as u64);
        Segment { offset, size, time: i as u64 * SEGMENT_MS, duration: SEGMENT_MS }
    };
    Ok(TrackIndex {
        info: TrackInfo {
            track_id: 1,
            timescale: TIMESCALE,
            codec: String::new(),
            language,
            media: Media::WebVtt,
            properties: Box::default(),
            sample_defaults: SampleDefaults::default(),
            edit_media_time: 0,
        },
        header_size: header as u64,
        frame_rate: None,
        has_base_data_offset: false,
        all_sync: true,
        delay: 0,
        key_sizes: Vec::new(),
        segments: ranges.iter().enumerate().map(segment).collect(),
    })
}

/// Fits the segments of a file to a presentation: players expect as many as the media has, even if
/// no cue is shown near its end.
pub(crate) fn fit(segments: &mut Vec<Segment>, presentation_ms: u64) {
    let count = presentation_ms.min(CUE_END_MS_MAX).div_ceil(SEGMENT_MS).max(1);
    segments.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    for i in segments.len() as u64..count {
        segments.push(Segment { offset: 0, size: 0, time: i * SEGMENT_MS, duration: SEGMENT_MS });
    }
    if let Some(last) = segments.last_mut() {
        last.duration = presentation_ms.saturating_sub(last.time).clamp(1, SEGMENT_MS);
    }
}

/// Writes a segment of a file as a file of its own: the header, the relation to the timestamps of
/// the media (rfc8216bis §3.1.4), and the cues shown in `times_ms`.
///
/// `header` and `cues` are the byte ranges in the index, and `start_90khz` is the time of the media
/// at the start of the presentation.
#[must_use]
pub fn segment(header: &[u8], cue_bytes: &[u8], times_ms: &Range<u64>, start_90khz: u64) -> String {
    let mut out = String::from("WEBVTT\n");
    let timestamp = start_90khz & ((1 << MPEG_TIME_BITS) - 1);
    let _ = writeln!(out, "X-TIMESTAMP-MAP=MPEGTS:{timestamp},LOCAL:00:00:00.000");
    // The signature and a mapping, if the file was itself a segment, are replaced.
    let kept = |line: &&[u8]| !line.starts_with(b"X-TIMESTAMP-MAP");
    for line in lines(header).skip(1).map(|range| &header[range]).filter(kept) {
        let _ = writeln!(out, "{}", String::from_utf8_lossy(line));
    }
    for cue in cues(cue_bytes).map_while(Result::ok) {
        if cue.start_ms < times_ms.end && cue.end_ms > times_ms.start {
            out.push('\n');
            for line in lines(&cue_bytes[cue.bytes.clone()]) {
                let line = &cue_bytes[cue.bytes.clone()][line];
                let _ = writeln!(out, "{}", String::from_utf8_lossy(line));
            }
        }
    }
    out
}

fn index_of(time_ms: u64) -> usize {
    usize::try_from(time_ms / SEGMENT_MS).unwrap_or(usize::MAX)
}

fn join(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    if a.is_empty() { b.clone() } else { a.start.min(b.start)..a.end.max(b.end) }
}

/// A cue, and its position in the text.
struct Cue {
    start_ms: u64,
    end_ms: u64,
    bytes: Range<usize>,
}

/// Iterates over the cues of a text: the blocks between empty lines with an arrow in one of the
/// first two lines. Other blocks are comments, styles and regions.
fn cues(text: &[u8]) -> impl Iterator<Item = Result<Cue>> {
    let mut lines = lines(text).peekable();
    std::iter::from_fn(move || {
        loop {
            let first = lines.find(|line| !text[line.clone()].trim_ascii().is_empty())?;
            let mut block = first.clone();
            let mut timing = is_timing(&text[first.clone()]).then_some(first);
            // Comments, styles and regions have no arrow by the standard, but some have by mistake.
            let other = [&b"NOTE"[..], b"STYLE", b"REGION"];
            let mut is_second = !other.iter().any(|word| text[block.clone()].starts_with(word));
            while let Some(line) = lines.next_if(|line| !text[line.clone()].trim_ascii().is_empty()) {
                if timing.is_none() && is_second && is_timing(&text[line.clone()]) {
                    timing = Some(line.clone());
                }
                is_second = false;
                block.end = line.end;
            }
            if let Some(line) = timing {
                return Some(parse_timing(text, &line).map(|(start_ms, end_ms)| Cue {
                    start_ms,
                    end_ms,
                    bytes: block,
                }));
            }
        }
    })
}

fn is_timing(line: &[u8]) -> bool {
    line.windows(3).any(|bytes| bytes == b"-->")
}

/// Reads `START --> END SETTINGS`.
fn parse_timing(text: &[u8], line: &Range<usize>) -> Result<(u64, u64)> {
    let words = std::str::from_utf8(&text[line.clone()]).ok().map(|line| line.split_once("-->"));
    let times = words.flatten().and_then(|(start, rest)| {
        Some((parse_time(start.trim())?, parse_time(rest.split_ascii_whitespace().next()?)?))
    });
    let offset = line.start as u64;
    let (start, end) = times.ok_or_else(|| invalid(offset, "cue must have times such as 00:01:02.500"))?;
    over("CUE_END_MS_MAX", CUE_END_MS_MAX, start.max(end))?;
    Ok((start, end))
}

/// Reads `HH:MM:SS.mmm` or `MM:SS.mmm`, in milliseconds.
fn parse_time(text: &str) -> Option<u64> {
    let (clock, fraction) = text.split_once('.')?;
    let number = |digits: &str| -> Option<u64> {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let fields: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match fields[..] {
        [minutes, seconds] => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => {
            hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?
        }
        _ => return None,
    };
    seconds.checked_mul(1000)?.checked_add(number(fraction).filter(|_| fraction.len() == 3)?)
}

/// Iterates over the lines of a text, without their ends: LF, CR LF or CR.
fn lines(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let len = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let line = at..at + len;
        at += len + if rest[len..].starts_with(b"\r\n") { 2 } else { 1 };
        Some(line)
    })
}

fn invalid(offset: u64, what: &'static str) -> Error {
    Error::new(offset, FourCc::WEBVTT, Fault::Invalid(what))
}

fn over(limit: &'static str, max: u64, found: u64) -> Result<()> {
    let fault = Fault::OverLimit { limit, max, found };
    if found > max { Err(Error::new(0, FourCc::WEBVTT, fault)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
