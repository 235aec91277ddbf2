//! What a spool has in its directory, and where its readers are. Pure.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::segment::Segment;

/// The segments, and who reads them.
#[derive(Debug)]
pub(super) struct State {
    /// In order, without overlap. The last one stays: it has the number with which the next one goes on. So does the last one
    /// with records: it says how far edges have been heard.
    pub(super) segments: VecDeque<Segment>,
    /// The readers, each by its index.
    pub(super) cursors: Vec<Cursor>,
    /// The number as of which sockets are saved: what is after that is added to it at the next start.
    pub(super) saved: u64,
    /// When reading ends, once the spool was closed.
    pub(super) closed: Option<Instant>,
}

/// Where a reader is.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Whose it is.
    pub(super) name: &'static str,
    /// Number of the first record that it is not done with; 0 until it has said so.
    pub(super) position: u64,
    /// The first number of the segment that it reads.
    pub(super) held: Option<u64>,
}

impl State {
    /// No reader yet.
    pub(super) fn new(segments: Vec<Segment>, saved: u64) -> Self {
        Self { segments: segments.into(), cursors: Vec::new(), saved, closed: None }
    }

    /// Length of all segments.
    pub(super) fn total_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length_bytes).sum()
    }

    /// The first segment that has records from `next` on.
    pub(super) fn segment(&self, next: u64) -> Option<Segment> {
        let at = self.segments.partition_point(|segment| segment.end <= next);
        self.segments.get(at).copied()
    }

    /// Records from `next` on, and their bytes; a part of a segment counts by its part of the records.
    pub(super) fn from(&self, next: u64) -> (u64, u64) {
        let at = self.segments.partition_point(|segment| segment.end <= next);
        self.segments.range(at..).fold((0, 0), |(records, bytes), segment| {
            let (all, left) = (segment.end - segment.first, segment.end - segment.first.max(next));
            let part = u128::from(segment.length_bytes) * u128::from(left) / u128::from(all.max(1));
            (records + left, bytes + u64::try_from(part).unwrap_or(u64::MAX))
        })
    }

    /// Numbers from `next` on that no segment has any more, or ever had.
    pub(super) fn gone(&self, next: u64) -> Vec<Range<u64>> {
        let (mut end, mut gone) = (next, Vec::new());
        for segment in self.segments.iter().filter(|segment| segment.end > next) {
            if segment.follows > end {
                gone.push(end..segment.follows);
            }
            end = segment.end;
        }
        gone
    }

    /// Takes out the segments that every reader is done with; without readers none is.
    pub(super) fn take_passed(&mut self) -> Vec<Segment> {
        let position = self.cursors.iter().map(|cursor| cursor.position).min().unwrap_or(0).min(self.saved);
        let passed = self.segments.iter().take_while(|segment| segment.end <= position).count();
        self.segments.drain(..passed.min(self.last_with_records())).collect()
    }

    /// Takes out the oldest segment that nobody reads just now and that is not the last.
    pub(super) fn take_oldest(&mut self) -> Option<Segment> {
        let last = self.last_with_records();
        let at = self.segments.range(..last).position(|segment| !self.is_held(segment))?;
        self.segments.remove(at)
    }

    /// Length of the segments that [`take_oldest`](Self::take_oldest) does not take.
    pub(super) fn staying_bytes(&self) -> u64 {
        let last = self.last_with_records();
        let staying =
            self.segments.iter().enumerate().filter(|(at, segment)| *at >= last || self.is_held(segment));
        staying.map(|(_, segment)| segment.length_bytes).sum()
    }

    /// The place of the last segment with records, without one of the first.
    fn last_with_records(&self) -> usize {
        self.segments.iter().rposition(|segment| segment.end > segment.first).unwrap_or(0)
    }

    fn is_held(&self, segment: &Segment) -> bool {
        self.cursors.iter().any(|cursor| cursor.held == Some(segment.first))
    }
}
