//! Fragment grouping: combines fragments into segments for a track without a usable sidx.
//!
//! **Invariant:** the segments contain every unit, in order, and every video segment begins with a
//! sync sample.

use crate::track::{Media, Segment, TrackInfo};

/// A fragment, or a reference from a sidx.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Byte range: from the unit's first box to the end of its mdat.
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Times in the track's timescale.
    pub(crate) decode_time: u64,
    pub(crate) presentation_time: u64,
    pub(crate) duration: u64,
    /// Duration of one of the unit's samples, used as tolerance.
    pub(crate) sample_duration: u64,
    pub(crate) sync: bool,
    /// Bytes up to the end of the first sample, if it is a sync sample and its size is known.
    pub(crate) key_size: Option<u32>,
}

/// Rule that decides which eligible units begin a segment. For video, only units that begin with a
/// sync sample are eligible.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// Every unit, because each is already a segment.
    Each,
    /// A unit that starts at least the target duration, less a tolerance, after the segment's
    /// start. Used for video, where sync samples limit the possible cuts. The tolerance is
    /// [`GOP_TOLERANCE`] of the time since the previous sync sample, or half a sample if that is
    /// more. Key frames are often slightly early: forced every 2 s at 29.97 frames per second, they
    /// are 59 or 60 frames apart, so the shorter interval is 1.969 s.
    Elapsed,
    /// A unit that starts at the next multiple of the target duration since the track's start, less
    /// half a unit. Used for audio, which can be cut anywhere and so stays aligned with video.
    Grid,
}

impl Rule {
    /// Returns the rule for fragments of this media kind.
    pub(crate) fn of(media: &Media) -> Self {
        match media {
            Media::Video { .. } => Self::Elapsed,
            Media::Audio { .. } | Media::Text | Media::WebVtt => Self::Grid,
        }
    }
}

/// Tolerance of [`Rule::Elapsed`], as a share of the group of pictures (numerator, denominator).
/// With a half, the cut would be the sync sample nearest to the target; with less, it is the later
/// one if both are about equally near, so that rounding in another timescale cannot change it.
const GOP_TOLERANCE: (u64, u64) = (3, 8);

/// A last segment shorter than this part of the target duration is joined to the previous one: an
/// eighth. Otherwise, an audio track that ends a few milliseconds after a multiple of the target
/// would cost players a request for a single frame.
const TAIL_DIVISOR: u128 = 8;

/// Groups units as they arrive.
#[derive(Debug, Clone)]
pub(crate) struct Grouping {
    rule: Rule,
    /// Target duration in thousandths of the track's units, so that it is an integer.
    target: u128,
    /// Multiples of the target passed so far.
    passed: u128,
    start: u64,
    open: Option<Open>,
    segments: Vec<Segment>,
    /// Sizes of the segments' key frames, as long as all are known.
    key_sizes: Option<Vec<u32>>,
}

/// The segment being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    offset: u64,
    end: u64,
    decode_time: u64,
    decode_end: u64,
    presentation_time: u64,
    duration: u64,
    /// Decode time of the newest sync unit.
    sync_time: u64,
}

impl Grouping {
    pub(crate) fn new(rule: Rule, info: &TrackInfo, segment_target_ms: u32) -> Self {
        let target = u128::from(segment_target_ms.max(1)) * u128::from(info.timescale);
        Self {
            rule,
            target,
            passed: 0,
            start: 0,
            open: None,
            segments: Vec::new(),
            key_sizes: Some(Vec::new()),
        }
    }

    pub(crate) fn push(&mut self, unit: &Unit) {
        let Some(open) = self.open else {
            self.start = unit.decode_time;
            self.begin(unit);
            return;
        };
        if unit.sync && self.cuts(&open, unit) {
            self.close(&open, Some(unit));
            self.begin(unit);
            return;
        }
        self.open = Some(Open {
            end: unit.end,
            decode_end: unit.decode_time.saturating_add(unit.duration),
            presentation_time: open.presentation_time.min(unit.presentation_time),
            duration: open.duration.saturating_add(unit.duration),
            sync_time: if unit.sync { unit.decode_time } else { open.sync_time },
            ..open
        });
    }

    /// Returns the segments, presented later by `delay`, and the sizes of their key frames.
    pub(crate) fn finish(mut self, delay: u64) -> (Vec<Segment>, Vec<u32>) {
        if let Some(open) = self.open {
            self.close(&open, None);
            self.join_tail();
        }
        for segment in &mut self.segments {
            segment.time = segment.time.saturating_add(delay);
        }
        (self.segments, self.key_sizes.unwrap_or_default())
    }

    /// Joins a very short last segment to the previous one, unless a gap separates them.
    fn join_tail(&mut self) {
        let [.., before, tail] = &mut self.segments[..] else { return };
        let is_short = u128::from(tail.duration) * 1000 * TAIL_DIVISOR < self.target;
        if is_short && before.time + before.duration == tail.time {
            before.size = tail.offset + tail.size - before.offset;
            before.duration += tail.duration;
            self.segments.pop();
            if let Some(sizes) = &mut self.key_sizes {
                sizes.pop();
            }
        }
    }

    fn cuts(&self, open: &Open, unit: &Unit) -> bool {
        match self.rule {
            Rule::Each => true,
            Rule::Elapsed => {
                let elapsed = unit.decode_time.saturating_sub(open.decode_time);
                let gop = unit.decode_time.saturating_sub(open.sync_time);
                let tolerance = (gop / GOP_TOLERANCE.1 * GOP_TOLERANCE.0 * 2).max(unit.sample_duration);
                milli_halves(elapsed, tolerance) >= 2 * self.target
            }
            Rule::Grid => {
                let elapsed = unit.decode_time.saturating_sub(self.start);
                milli_halves(elapsed, unit.duration) >= 2 * self.target * (self.passed + 1)
            }
        }
    }

    fn begin(&mut self, unit: &Unit) {
        let elapsed = unit.decode_time.saturating_sub(self.start);
        self.passed = milli_halves(elapsed, unit.duration) / (2 * self.target);
        match (&mut self.key_sizes, unit.key_size) {
            (Some(sizes), Some(size)) => sizes.push(size),
            (sizes, _) => *sizes = None,
        }
        self.open = Some(Open {
            offset: unit.offset,
            end: unit.end,
            decode_time: unit.decode_time,
            decode_end: unit.decode_time.saturating_add(unit.duration),
            presentation_time: unit.presentation_time,
            duration: unit.duration,
            sync_time: unit.decode_time,
        });
    }

    /// Closes a segment. Its duration extends to the presentation of the next segment, so that no
    /// false gap is reported. At the end of the track, or before a real gap, its duration is the
    /// sum of its samples' durations.
    fn close(&mut self, open: &Open, next: Option<&Unit>) {
        let until_next = next
            .filter(|next| next.decode_time == open.decode_end)
            .and_then(|next| next.presentation_time.checked_sub(open.presentation_time))
            .filter(|duration| *duration > 0);
        self.segments.push(Segment {
            offset: open.offset,
            size: open.end - open.offset,
            time: open.presentation_time,
            duration: until_next.unwrap_or(open.duration),
        });
    }
}

/// Returns `time` plus half of `tolerance`, multiplied by 2000 so that the result is an integer.
fn milli_halves(time: u64, tolerance: u64) -> u128 {
    (2 * u128::from(time) + u128::from(tolerance)) * 1000
}
