//! A sink's way through the spool: the next batch, done with it, how far behind.
//!
//! **Invariant:** what is gone before it was read is counted in the note in which the position goes past it: together, once.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use thalweg_record::Batch;

use super::frame::{Damaged, HEADER_BYTES};
use super::note::{self, Gap, Note};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, read_header};
use super::state::Cursor;
use super::{READERS_MAX, Spool, writer};
use crate::Error;

/// Between two tries to read what the system does not let be read just now.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A sink's place in a spool.
#[derive(Debug)]
pub struct Reader {
    spool: Arc<Spool>,
    index: usize,
    note_path: PathBuf,
    note: Note,
    /// Number of the next record to be given.
    next: u64,
    /// Where in which segment that is.
    place: Option<Place>,
    /// Records that are gone, behind some that the sink is not done with. No more than there were segments.
    gaps: VecDeque<Gap>,
    payload: Vec<u8>,
    is_note_failing: bool,
    /// Whether the last read failed, so that an operator is told once.
    is_failing: bool,
}

#[derive(Debug)]
struct Place {
    first: u64,
    file: File,
    offset: u64,
}

impl Reader {
    pub(super) fn new(spool: Arc<Spool>, name: &'static str) -> Result<Self, Error> {
        let note_path = note::path(&spool.dir, name);
        let noted = match note::read(&note_path) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let path = note_path.display();
                tracing::warn!(%path, %error, "position cannot be read, the sink is given all that is there");
                None
            }
            noted => noted.map_err(Error::file("read", &note_path))?,
        };
        let mut state = spool.state();
        if state.cursors.len() == READERS_MAX || state.cursors.iter().any(|cursor| cursor.name == name) {
            return Err(Error::refused(format!("the spool has too many sinks, or two called {name}")));
        }
        let first = state.segments.front().map_or(0, |first| first.first);
        let is_new = noted.is_none();
        let note = noted.unwrap_or(Note::at(first));
        let index = state.cursors.len();
        // What it may go back to is not known yet: nothing is let go meanwhile but for room.
        state.cursors.push(Cursor { name, position: 0, held: None });
        drop(state);
        let next = note.position;
        let mut reader = Self {
            spool,
            index,
            note_path,
            note,
            next,
            place: None,
            gaps: VecDeque::new(),
            payload: Vec::new(),
            is_note_failing: false,
            is_failing: false,
        };
        reader.spool.writer().go_on_from(next);
        if is_new {
            reader.write_note();
        }
        Ok(reader)
    }

    /// Goes on at what the sink itself says that it has not kept, whatever the note has. Further: what it has kept of numbers that
    /// the spool does not know of, since power was lost, is not given again to other records. Back, since power was lost or a
    /// backup was put in its place: it is given what the spool still has, and the rest is lost to it.
    pub fn resume(&mut self, position: u64) {
        self.spool.writer().go_on_from(position);
        // What is known to be gone is no reason to go back.
        let position = self.note.after_gap(position);
        if position < self.note.position {
            let (name, noted) = (self.note_path.display(), self.note.position);
            tracing::info!(note = %name, noted, position, "the sink has less than was noted, going back");
            self.note.position = position;
            self.gaps.clear();
        }
        self.done(position);
        (self.next, self.place) = (self.note.position, None);
    }

    /// The next batch, once there is one; `None` when the spool was closed and there is no more, or no more time. What the
    /// sink is not [`done`](Self::done) with comes again when the spool is opened again, in the same batches.
    pub fn next_batch(&mut self) -> Option<Batch> {
        loop {
            let segment = self.find()?;
            match self.read(&segment) {
                Ok(batch) => {
                    self.is_failing = false;
                    return Some(batch);
                }
                Err(error) if is_gone(&error) => self.skip(&segment, &error),
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        let path = Segment::path(&self.spool.dir, segment.first);
                        tracing::error!(path = %path.display(), %error, "spool segment cannot be read, trying again");
                    }
                    self.spool.wait(RETRY_PAUSE);
                }
            }
        }
    }

    /// All records before `position` are kept.
    pub fn done(&mut self, position: u64) {
        self.note.position = self.note.position.max(position);
        while let Some(gap) = self.gaps.pop_front_if(|gap| gap.first <= self.note.position) {
            self.note.pass(gap);
        }
        self.write_note();
        let mut state = self.spool.state();
        state.cursors[self.index].position = self.note.position;
        let passed = state.take_passed();
        drop(state);
        writer::remove(&self.spool, &passed);
    }

    /// Records that were gone before it read them, since the directory was made.
    pub fn lost(&self) -> u64 {
        self.note.lost + self.gaps.iter().map(|gap| gap.records).sum::<u64>()
    }

    /// Number of the first record that it is not done with.
    pub fn position(&self) -> u64 {
        self.note.position
    }

    /// Number of the next record that it is given.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Waits for a segment with records from `next` on, and holds it.
    fn find(&mut self) -> Option<Segment> {
        let spool = Arc::clone(&self.spool);
        let mut state = spool.state();
        state.cursors[self.index].position = self.note.position;
        let segment = loop {
            if state.closed.is_some_and(|end| end <= Instant::now()) {
                return None;
            }
            if let Some(segment) = state.segment(self.next) {
                break segment;
            }
            if state.closed.is_some() {
                return None;
            }
            state = spool.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.cursors[self.index].held = Some(segment.first);
        drop(state);
        if segment.first > self.next {
            let gone = segment.follows.saturating_sub(self.next);
            self.lose(gone.saturating_sub(spool.unused(self.next, segment.follows)), segment.first);
        }
        Some(segment)
    }

    /// Counts records as lost, those that are not counted yet, and goes on at `end`.
    fn lose(&mut self, records: u64, end: u64) {
        let records = records.saturating_sub(self.note.counted(self.next, end));
        if records > 0 {
            tracing::warn!(records, first = self.next, "records were gone before they were read");
        }
        self.gaps.push_back(Gap { first: self.next, end, records });
        self.next = end;
        self.done(self.note.position);
    }

    /// Goes on after what a segment has by now, none of which can be found after a damaged frame.
    fn skip(&mut self, segment: &Segment, error: &std::io::Error) {
        let path = Segment::path(&self.spool.dir, segment.first);
        tracing::error!(path = %path.display(), %error, "spool segment cannot be read on, its rest is skipped");
        self.lose(segment.end - self.next, segment.end);
        self.place.take_if(|place| place.first != segment.first);
        if let Some(place) = &mut self.place {
            place.offset = segment.length_bytes;
        }
    }

    /// The batch that has `next`, without what is before that.
    fn read(&mut self, segment: &Segment) -> std::io::Result<Batch> {
        let place = match &mut self.place {
            Some(place) if place.first == segment.first => place,
            place => {
                let file = File::open(Segment::path(&self.spool.dir, segment.first))?;
                place.insert(Place { first: segment.first, file, offset: SEGMENT_HEADER_BYTES })
            }
        };
        loop {
            let header = match read_header(&place.file, place.offset, segment.length_bytes)? {
                Some(header) => header.map_err(damage)?,
                None => return Err(damage(Damaged("a segment ends before its records do"))),
            };
            let begin = place.offset + HEADER_BYTES as u64;
            let end = begin + u64::from(header.payload_bytes);
            if header.end() <= self.next {
                place.offset = end;
                continue;
            }
            if end > segment.length_bytes || header.first > self.next {
                return Err(damage(Damaged("a frame is not where it ought to be")));
            }
            self.payload.resize(header.payload_bytes as usize, 0);
            place.file.read_exact_at(&mut self.payload, begin)?;
            let mut batch = header.batch(&self.payload).map_err(damage)?;
            batch.entries.retain(|entry| entry.number >= self.next);
            (self.next, place.offset) = (header.end(), end);
            return Ok(batch);
        }
    }

    fn write_note(&mut self) {
        match note::write(&self.note_path, &self.note) {
            Ok(()) => self.is_note_failing = false,
            Err(error) if !std::mem::replace(&mut self.is_note_failing, true) => {
                let path = self.note_path.display();
                tracing::error!(%path, %error, "position cannot be noted: after a restart records may come again");
            }
            Err(_) => {}
        }
    }
}

/// Whether what was to be read is damaged or removed, so that no later try can find it.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
}

fn damage(damaged: Damaged) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, damaged.0)
}
