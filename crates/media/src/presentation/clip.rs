//! Clip: a range of a presentation, widened to segment boundaries of its video.

use std::fmt;
use std::ops::Range;

use super::{Kind, NamedTrack, OnDemand, Role, micros};
use crate::track::Media;

/// Tolerance for a clip time that is meant to be a segment boundary, in microseconds: half a frame
/// at 25 frames per second.
const TOLERANCE_US: u64 = 20_000;

/// A range of a presentation, in microseconds from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clip {
    /// Start of the range.
    pub start_us: u64,
    /// End of the range, or `None` for the presentation's end.
    pub end_us: Option<u64>,
}

/// A clip that begins after the presentation's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondEnd {
    /// Duration of the presentation, in microseconds.
    pub duration_us: u64,
}

impl fmt::Display for BeyondEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the clip begins after the end, which is at {} s", self.duration_us as f64 / 1e6)
    }
}

impl std::error::Error for BeyondEnd {}

impl OnDemand {
    /// Returns the segments of every track that overlap the range, and the range on the
    /// presentation's timeline in microseconds. The range is widened to segments of the main video
    /// or, without video, of the first audio track. Tracks without a segment in it are left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the range begins after the presentation's end.
    pub fn clip(&self, clip: Clip) -> Result<(OnDemand, Range<u64>), BeyondEnd> {
        let origin_us = micros(self.start.0, self.start.1);
        let from = origin_us.saturating_add(clip.start_us);
        let to = clip.end_us.map_or(u64::MAX, |end| origin_us.saturating_add(end));
        let beyond = BeyondEnd { duration_us: self.duration_us() };
        let reference = self.reference().ok_or(beyond)?;
        let timescale = reference.index.info.timescale;
        let mut covered = reference.segments().filter(|placed| {
            let times = range_us(placed.time, placed.duration, timescale);
            times.end > from.saturating_add(TOLERANCE_US) && times.start < to.saturating_sub(TOLERANCE_US)
        });
        let first = covered.next().ok_or(beyond)?;
        let last = covered.next_back().unwrap_or(first);
        let start_us = micros(first.time, timescale);
        let range = start_us..micros(last.time + last.duration, timescale);
        let mut clipped = self.clone();
        clipped.start = (first.time, timescale);
        for track in &mut clipped.tracks {
            keep_overlapping(track, &range);
        }
        let is_empty: Vec<bool> = clipped.tracks.iter().map(|t| t.index.segments.is_empty()).collect();
        let mut empty = is_empty.iter();
        clipped.tracks.retain(|_| empty.next() != Some(&true));
        let mut empty = is_empty.iter();
        clipped.roles.retain(|_| empty.next() != Some(&true));
        Ok((clipped, range))
    }

    /// Returns the track whose segment boundaries clips have.
    fn reference(&self) -> Option<&NamedTrack> {
        let mut main = self.tracks.iter().zip(&self.roles).filter(|(_, role)| **role == Role::Main);
        let video = main.find(|(track, _)| Kind::of(&track.index.info) == Kind::Video);
        let mut timed = self.tracks.iter().filter(|track| Kind::of(&track.index.info) != Kind::Text);
        video.map(|(track, _)| track).or_else(|| timed.next())
    }
}

/// Removes the segments of a track outside the range. The times of a WebVTT file count from the
/// start of the presentation, so a clip has none of it.
fn keep_overlapping(track: &mut NamedTrack, range: &Range<u64>) {
    let timescale = track.index.info.timescale;
    let is_file = track.index.info.media == Media::WebVtt;
    let overlaps = |placed: &super::Placed| {
        let times = range_us(placed.time, placed.duration, timescale);
        !is_file && times.end > range.start + TOLERANCE_US && times.start + TOLERANCE_US < range.end
    };
    let segments = track.segments().filter(overlaps).map(|placed| placed.segment).collect();
    track.index.segments = segments;
    // The sizes would have to be cut alike; clips have no I-frame playlists.
    track.index.key_sizes.clear();
}

fn range_us(time: u64, duration: u64, timescale: u32) -> Range<u64> {
    micros(time, timescale)..micros(time + duration, timescale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presentation::tests::{audio, video};

    const SECOND: u64 = 1_000_000;

    /// Returns the range in milliseconds, and the start times of the segments of both tracks.
    fn clip(start_us: u64, end_us: Option<u64>) -> (Range<u64>, Vec<u64>, Vec<u64>) {
        // Segments of 2 s, and audio segments of 2.048 s.
        let tracks = vec![video("v", 180, &[25_600; 4]), audio("a", None, &[98_304, 98_304, 98_304, 89_088])];
        let (clipped, range) = OnDemand::new(tracks).unwrap().clip(Clip { start_us, end_us }).unwrap();
        let times = |name: &str| clipped.track(name).unwrap().segments().map(|s| s.time).collect();
        assert_eq!(clipped.start_in(1000), range.start / 1000);
        (range.start / 1000..range.end / 1000, times("v"), times("a"))
    }

    #[test]
    fn clip_is_widened_to_segments_of_the_video() {
        let (all, from_2) = (vec![0, 98_304, 196_608, 294_912], vec![98_304, 196_608]);
        assert_eq!(clip(0, None), (0..8000, vec![0, 25_600, 51_200, 76_800], all));
        let (range, video, audio) = clip(2 * SECOND, Some(4 * SECOND));
        assert_eq!((range, video, audio), (2000..4000, vec![25_600], vec![0, 98_304]));
        let (range, video, audio) = clip(2_100_000, Some(4_100_000));
        assert_eq!((range, video), (2000..6000, vec![25_600, 51_200]));
        assert_eq!(audio, [&[0][..], &from_2].concat());
        // Half a frame does not select another segment.
        assert_eq!(clip(1_990_000, Some(4_010_000)).0, 2000..4000);
        assert_eq!(clip(0, Some(99 * SECOND)).0, 0..8000);
    }

    #[test]
    fn clip_after_the_end_is_refused() {
        let presentation = OnDemand::new(vec![video("v", 180, &[25_600; 4])]).unwrap();
        let refused = presentation.clip(Clip { start_us: 8 * SECOND, end_us: None }).unwrap_err();
        assert_eq!(refused.to_string(), "the clip begins after the end, which is at 8 s");
    }
}
