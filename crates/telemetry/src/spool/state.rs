//! State shared by a spool's writer and readers: the spool segments, and each reader's position.
//! Does no I/O.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::segment::Segment;

/// Spool segments and their readers.
#[derive(Debug)]
pub(super) struct State {
    /// Spool segments in order, without overlap. The last segment is always kept, because its end
    /// is the next record number. The last segment with records is also kept, because it contains
    /// the edge positions.
    pub(super) segments: VecDeque<Segment>,
    /// Reader positions, by reader index.
    pub(super) cursors: Vec<Cursor>,
    /// Record number up to which the saved socket totals are complete. At the next start, later
    /// records are added to them.
    pub(super) saved: u64,
    /// Drain deadline, once the spool is closed.
    pub(super) closed: Option<Instant>,
}

/// A reader's position.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Name of the reader's sink.
    pub(super) name: &'static str,
    /// Number of the first record not finished by the sink; 0 until the sink has reported a
    /// position.
    pub(super) position: u64,
    /// First record number of the segment that the sink is reading, if any.
    pub(super) held: Option<u64>,
}

impl State {
    /// Creates a state without readers.
    pub(super) fn new(segments: Vec<Segment>, saved: u64) -> Self {
        Self { segments: segments.into(), cursors: Vec::new(), saved, closed: None }
    }

    /// Returns the total size of all spool segments in bytes.
    pub(super) fn total_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length_bytes).sum()
    }

    /// Returns the first spool segment that contains records from `next` on.
    pub(super) fn segment(&self, next: u64) -> Option<Segment> {
        let at = self.segments.partition_point(|segment| segment.end <= next);
        self.segments.get(at).copied()
    }

    /// Returns the number of records from `next` on, and their approximate size in bytes. A partly
    /// read segment counts in proportion to its remaining records.
    pub(super) fn from(&self, next: u64) -> (u64, u64) {
        let at = self.segments.partition_point(|segment| segment.end <= next);
        self.segments.range(at..).fold((0, 0), |(records, bytes), segment| {
            let (all, left) = (segment.end - segment.first, segment.end - segment.first.max(next));
            let part = u128::from(segment.length_bytes) * u128::from(left) / u128::from(all.max(1));
            (records + left, bytes + u64::try_from(part).unwrap_or(u64::MAX))
        })
    }

    /// Returns the ranges of numbers from `next` on that are in no spool segment, because they were
    /// deleted or never assigned.
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

    /// Removes and returns the spool segments that every reader has finished. Returns none if there
    /// are no readers.
    pub(super) fn take_passed(&mut self) -> Vec<Segment> {
        let position = self.cursors.iter().map(|cursor| cursor.position).min().unwrap_or(0).min(self.saved);
        let passed = self.segments.iter().take_while(|segment| segment.end <= position).count();
        self.segments.drain(..passed.min(self.last_with_records())).collect()
    }

    /// Removes and returns the oldest spool segment that may be deleted: a segment that no reader
    /// is reading and that is not the last segment with records.
    pub(super) fn take_oldest(&mut self) -> Option<Segment> {
        let last = self.last_with_records();
        let at = self.segments.range(..last).position(|segment| !self.is_held(segment))?;
        self.segments.remove(at)
    }

    /// Returns the total size, in bytes, of the spool segments that
    /// [`take_oldest`](Self::take_oldest) cannot return.
    pub(super) fn staying_bytes(&self) -> u64 {
        let last = self.last_with_records();
        let staying =
            self.segments.iter().enumerate().filter(|(at, segment)| *at >= last || self.is_held(segment));
        staying.map(|(_, segment)| segment.length_bytes).sum()
    }

    /// Returns the index of the last spool segment with records, or 0 if all are empty.
    fn last_with_records(&self) -> usize {
        self.segments.iter().rposition(|segment| segment.end > segment.first).unwrap_or(0)
    }

    fn is_held(&self, segment: &Segment) -> bool {
        self.cursors.iter().any(|cursor| cursor.held == Some(segment.first))
    }
}
