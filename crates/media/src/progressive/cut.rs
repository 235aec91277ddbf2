//! Segments of a track: where they begin, and their sizes and times.
//!
//! Video is cut at sync samples by the rules for fragments ([`crate::index`]'s grouping), where a
//! group of pictures takes the part of a fragment. Audio and text are cut at the sample boundaries
//! nearest to the video's segment boundaries. Without video, they are cut at multiples of the
//! target duration.

use super::fragment::Layout;
use super::limits::{MOVIE_SEGMENTS_MAX, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX};
use super::table::{Sample, SampleTable};
use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::index::grouping::{Grouping, Rule, Unit};
use crate::presentation::rescale;
use crate::track::{Media, Segment, TrackInfo};

/// A last segment shorter than this part of the target duration is joined to the previous one.
const TAIL_DIVISOR: u64 = 8;

/// A track to be cut.
#[derive(Clone, Copy)]
pub(super) struct Uncut<'a> {
    pub(super) table: &'a SampleTable,
    pub(super) info: &'a TrackInfo,
    /// Delay by an empty edit, in the track's timescale.
    pub(super) delay: u64,
    pub(super) segment_target_ms: u32,
}

/// Boundaries of a video track, to which other tracks are cut, as presentation times.
#[derive(Debug)]
pub(super) struct Boundaries {
    timescale: u32,
    /// Start of each segment, and then the end of the track.
    times: Vec<i128>,
    /// Target duration, by which boundaries follow after the end of the track.
    target: u64,
}

/// The samples of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// First sample, counted from 0.
    pub(super) first: u32,
    /// Decode time of the first sample, with the delay.
    pub(super) decode_time: u64,
    /// Position of the first sample in the file.
    pub(super) position: u64,
}

impl Boundaries {
    /// Returns the boundaries of a video track.
    pub(super) fn of(video: &Uncut<'_>, segments: &[Segment]) -> Self {
        let shown = |time: u64| i128::from(time) - i128::from(video.info.edit_media_time);
        let end = segments.last().map_or(0, |last| last.time + last.duration);
        let times = segments.iter().map(|s| shown(s.time)).chain([shown(end)]).collect();
        let target = rescale(u64::from(video.segment_target_ms.max(1)), 1000, video.info.timescale);
        Self { timescale: video.info.timescale, times, target: target.max(1) }
    }

    /// Returns the first boundary after `number` that is later than `twice / 2`, which is a time in
    /// units of 1 / (`scale` × the video's timescale).
    fn after(&self, mut number: usize, twice: i128, scale: i128) -> usize {
        while self.times.get(number).is_some_and(|time| 2 * time * scale <= twice) {
            number += 1;
        }
        let last = self.times.len() - 1;
        if number <= last {
            return number;
        }
        let beyond = (twice - 2 * self.times[last] * scale) / (2 * i128::from(self.target) * scale);
        number.max(last + 1 + usize::try_from(beyond).unwrap_or(usize::MAX / 2))
    }

    /// Returns the time of a boundary.
    fn get(&self, number: usize) -> i128 {
        let last = self.times.len() - 1;
        match self.times.get(number) {
            Some(time) => *time,
            None => self.times[last] + i128::from(self.target) * (number - last) as i128,
        }
    }
}

/// A track cut into segments.
pub(super) struct CutTrack {
    pub(super) segments: Vec<Segment>,
    pub(super) cuts: Vec<Cut>,
    /// Bytes from the start of each segment to the end of its first sample, for video.
    pub(super) key_sizes: Vec<u32>,
}

impl Uncut<'_> {
    /// Returns the first samples of the segments, at `boundaries` if given.
    pub(super) fn firsts(&self, boundaries: Option<&Boundaries>) -> Vec<u32> {
        match (&self.info.media, boundaries) {
            (Media::Video { .. }, _) => self.by_groups(Sample::is_sync),
            (_, Some(boundaries)) => self.at_boundaries(boundaries),
            (_, None) => self.by_groups(|_| true),
        }
    }

    /// Groups units, each of which begins with a sample for which `begins` holds.
    fn by_groups(&self, begins: impl Fn(Sample) -> bool) -> Vec<u32> {
        let mut grouping = Grouping::new(Rule::of(&self.info.media), self.info, self.segment_target_ms);
        let mut unit: Option<Unit> = None;
        let mut decode_time = 0u64;
        for (number, sample) in (0u64..).zip(self.table.samples_from(0)) {
            let duration = u64::from(sample.duration);
            let presented = decode_time.saturating_add_signed(i64::from(sample.composition_offset));
            match &mut unit {
                Some(unit) if !begins(sample) => {
                    unit.end = number + 1;
                    unit.duration += duration;
                    unit.presentation_time = unit.presentation_time.min(presented);
                }
                _ => {
                    let begun = unit.replace(Unit {
                        // Segments are counted in samples here, not bytes.
                        offset: number,
                        end: number + 1,
                        decode_time,
                        presentation_time: presented,
                        duration,
                        sample_duration: duration,
                        sync: true,
                        key_size: None,
                    });
                    begun.iter().for_each(|unit| grouping.push(unit));
                }
            }
            decode_time += duration;
        }
        unit.iter().for_each(|unit| grouping.push(unit));
        let sample_number = |s: Segment| u32::try_from(s.offset).expect("SAMPLES_MAX fits in a u32");
        let (segments, _) = grouping.finish(0);
        segments.into_iter().map(sample_number).collect()
    }

    /// Cuts at the samples nearest to `boundaries`.
    fn at_boundaries(&self, boundaries: &Boundaries) -> Vec<u32> {
        let (scale, video_scale) = (i128::from(self.info.timescale), i128::from(boundaries.timescale));
        let start = i128::from(self.delay) - i128::from(self.info.edit_media_time);
        let length: u64 = self.table.samples_from(0).map(|s| u64::from(s.duration)).sum();
        let end = (start + i128::from(length)) * video_scale;
        let is_tail = |number: usize| {
            let left = end - boundaries.get(number) * scale;
            number >= boundaries.times.len() - 1
                && left * i128::from(TAIL_DIVISOR) < i128::from(boundaries.target) * scale
        };
        let (mut firsts, mut number, mut decode_time) = (vec![0], 1, start);
        for (sample_number, sample) in (0u32..).zip(self.table.samples_from(0)) {
            let presented = decode_time + i128::from(sample.composition_offset);
            let middle = (2 * presented + i128::from(sample.duration)) * video_scale;
            let next = boundaries.after(number, middle, scale);
            if next > number && sample_number > 0 && !is_tail(next - 1) {
                firsts.push(sample_number);
            }
            number = next;
            decode_time += i128::from(sample.duration);
        }
        firsts
    }

    /// Returns the segments that begin with the samples `firsts`, in a file that begins with a
    /// header of `header_size` bytes.
    pub(super) fn segments(&self, stbl: &Mp4Box<'_>, firsts: &[u32], header_size: u64) -> Result<CutTrack> {
        let found = firsts.len() as u64;
        if found > MOVIE_SEGMENTS_MAX {
            let fault = Fault::OverLimit { limit: "MOVIE_SEGMENTS_MAX", max: MOVIE_SEGMENTS_MAX, found };
            return Err(stbl.fault(fault));
        }
        let (mut segments, mut cuts, mut key_sizes) = (Vec::<Segment>::new(), Vec::new(), Vec::new());
        let mut samples = self.table.samples_from(0);
        let mut positions = self.table.extents().walk(0, self.table.extents().start());
        let (mut decode_time, mut offset) = (self.delay, header_size);
        let ends = firsts.iter().skip(1).copied().chain([self.table.count()]);
        for (first, end) in firsts.iter().copied().zip(ends) {
            let mut layout = Layout::default();
            let mut cut = Cut { first, decode_time, position: 0 };
            let mut earliest = u64::MAX;
            for sample in samples.by_ref().take((end - first) as usize) {
                let position = positions.next_sample(sample.size).start;
                if layout.count() == 0 {
                    cut.position = position;
                }
                layout.add(sample);
                let presented = decode_time.saturating_add_signed(i64::from(sample.composition_offset));
                earliest = earliest.min(presented);
                decode_time += u64::from(sample.duration);
            }
            if layout.count() > SEGMENT_SAMPLES_MAX || layout.segment_bytes() > SEGMENT_BYTES_MAX {
                return Err(stbl.invalid(TOO_LARGE));
            }
            if let Some(before) = segments.last_mut() {
                if earliest <= before.time {
                    return Err(stbl.invalid("a segment must not be presented before the previous one"));
                }
                before.duration = earliest - before.time;
            }
            let (size, duration) = (layout.segment_bytes(), decode_time - cut.decode_time);
            if matches!(self.info.media, Media::Video { .. }) {
                // SEGMENT_BYTES_MAX fits in a u32.
                key_sizes.push(u32::try_from(layout.first_sample_end()).unwrap_or(u32::MAX));
            }
            segments.push(Segment { offset, size, time: earliest, duration });
            cuts.push(cut);
            offset += size;
        }
        Ok(CutTrack { segments, cuts, key_sizes })
    }

    /// Returns frames per second of video, if all samples but the last have the same duration.
    pub(super) fn frame_rate(&self) -> Option<(u32, u32)> {
        let mut durations = self.table.samples_from(0).map(|s| s.duration);
        let first = durations.next().filter(|duration| *duration > 0)?;
        let mut compared = durations.take(self.table.count().saturating_sub(2) as usize);
        let is_video = matches!(self.info.media, Media::Video { .. });
        let is_constant = is_video && compared.all(|duration| duration == first);
        is_constant.then(|| crate::index::rate::reduced(self.info.timescale, first))
    }

    /// Returns how many samples are decoded before the media time `end`, up to the last one
    /// presented before it.
    pub(super) fn count_before(&self, end: u64) -> u32 {
        let (mut count, mut decode_time) = (0, 0u64);
        for (number, sample) in (1u32..).zip(self.table.samples_from(0)) {
            if decode_time.saturating_add_signed(i64::from(sample.composition_offset)) < end {
                count = number;
            }
            decode_time += u64::from(sample.duration);
        }
        count
    }
}

const TOO_LARGE: &str = "a segment would have more than SEGMENT_SAMPLES_MAX (65536) samples or SEGMENT_BYTES_MAX (2 GiB) \
                         of media: encode the file again with a key frame at least every few seconds";

const _: () = assert!(SEGMENT_SAMPLES_MAX == 65_536 && SEGMENT_BYTES_MAX == 2 << 30, "stated in TOO_LARGE");
