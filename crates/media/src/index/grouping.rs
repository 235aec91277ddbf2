//! Fragments to segments: where a track without a telling sidx is cut.
//!
//! Invariant: the segments hold every unit, in order, and a segment of video begins with a sync sample.

use crate::track::{Media, Segment, TrackInfo};

/// A fragment, or a reference of a sidx.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Its bytes: from its first box to the end of its mdat.
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Times in the track's timescale.
    pub(crate) decode_time: u64,
    pub(crate) presentation_time: u64,
    pub(crate) duration: u64,
    /// Duration of one of its samples, for the tolerance.
    pub(crate) sample_duration: u64,
    pub(crate) sync: bool,
}

/// Which units begin a segment, given that they may (video: with a sync sample).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// All of them: they are segments already.
    Each,
    /// Once the target has passed since the segment began, but for half a sample: video, where sync
    /// samples decide how far apart cuts can be.
    Elapsed,
    /// At multiples of the target since the track began, but for half a unit: audio, which can be cut
    /// anywhere and so keeps step with video.
    Grid,
}

impl Rule {
    /// The rule for fragments of this kind of media.
    pub(crate) fn of(media: &Media) -> Self {
        match media {
            Media::Video { .. } => Self::Elapsed,
            Media::Audio { .. } | Media::Text => Self::Grid,
        }
    }
}

/// Groups units as they come.
#[derive(Debug, Clone)]
pub(crate) struct Grouping {
    rule: Rule,
    /// The target in units of 1/1000 of the track's, so that it is whole.
    target: u128,
    /// Multiples of the target that have been passed.
    passed: u128,
    start: u64,
    open: Option<Open>,
    segments: Vec<Segment>,
}

/// The segment that is being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    offset: u64,
    end: u64,
    decode_time: u64,
    decode_end: u64,
    presentation_time: u64,
    duration: u64,
}

impl Grouping {
    pub(crate) fn new(rule: Rule, info: &TrackInfo, segment_target_ms: u32) -> Self {
        let target = u128::from(segment_target_ms.max(1)) * u128::from(info.timescale);
        Self { rule, target, passed: 0, start: 0, open: None, segments: Vec::new() }
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
            ..open
        });
    }

    pub(crate) fn finish(mut self) -> Vec<Segment> {
        if let Some(open) = self.open {
            self.close(&open, None);
        }
        self.segments
    }

    fn cuts(&self, open: &Open, unit: &Unit) -> bool {
        match self.rule {
            Rule::Each => true,
            Rule::Elapsed => {
                let elapsed = unit.decode_time.saturating_sub(open.decode_time);
                milli_halves(elapsed, unit.sample_duration) >= 2 * self.target
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
        self.open = Some(Open {
            offset: unit.offset,
            end: unit.end,
            decode_time: unit.decode_time,
            decode_end: unit.decode_time.saturating_add(unit.duration),
            presentation_time: unit.presentation_time,
            duration: unit.duration,
        });
    }

    /// A segment lasts until the next is presented, so that no gap is told where none is. At the end,
    /// or before a real gap, it lasts as long as its samples.
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

/// `time` and half of `tolerance`, in halves of thousandths.
fn milli_halves(time: u64, tolerance: u64) -> u128 {
    (2 * u128::from(time) + u128::from(tolerance)) * 1000
}
