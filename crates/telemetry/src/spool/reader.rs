//! A sink's way through the spool: the next batch, done with it, how far behind.
//!
//! **Invariant:** what is gone before it was read is counted in the note in which the position goes past it: together, once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use thalweg_record::Batch;

use super::frame::{Damaged, HEADER_BYTES};
use super::note::{self, Note};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, read_header};
use super::state::Cursor;
use super::{READERS_MAX, Spool, writer};
use crate::Error;

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
    payload: Vec<u8>,
    is_note_failing: bool,
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
        let noted = note::read(&note_path).map_err(Error::file("read", &note_path))?;
        let mut state = spool.state();
        if state.cursors.len() == READERS_MAX || state.cursors.iter().any(|cursor| cursor.name == name) {
            return Err(Error::refused(format!("the spool has too many sinks, or two called {name}")));
        }
        let first = state.segments.front().map_or(0, |first| first.first);
        let note = noted.unwrap_or(Note { position: first, lost: 0 });
        let index = state.cursors.len();
        state.cursors.push(Cursor { name, position: note.position, held: None });
        drop(state);
        let next = note.position;
        let mut reader = Self {
            spool,
            index,
            note_path,
            note,
            next,
            place: None,
            payload: Vec::new(),
            is_note_failing: false,
        };
        reader.spool.writer().go_on_from(next);
        if noted.is_none() {
            reader.write_note();
        }
        Ok(reader)
    }

    /// Goes on at what the sink itself says that it has not kept, if that is further than the note. What it has kept of numbers
    /// that the spool does not know of, since power was lost, is not given again to other records.
    pub fn resume(&mut self, position: u64) {
        if position > self.note.position {
            self.spool.writer().go_on_from(position);
            self.done(position);
            (self.next, self.place) = (position, None);
        }
    }

    /// The next batch, once there is one; `None` when the spool was closed and there is no more, or no more time. It is the
    /// same batch until the sink is [`done`](Self::done) with it, but for records that it has said to have kept.
    pub fn next_batch(&mut self) -> Option<Batch> {
        self.rewind();
        loop {
            let segment = self.find()?;
            match self.read(&segment) {
                Ok(batch) => return Some(batch),
                Err(error) => self.skip(&segment, &error),
            }
        }
    }

    /// All records before `position` are kept.
    pub fn done(&mut self, position: u64) {
        self.note.position = self.note.position.max(position);
        self.write_note();
        let mut state = self.spool.state();
        state.cursors[self.index].position = self.note.position;
        let passed = state.take_passed();
        drop(state);
        writer::remove(&self.spool, &passed);
    }

    /// Records that were gone before it read them, since the directory was made.
    pub fn lost(&self) -> u64 {
        self.note.lost
    }

    /// Number of the first record that it is not done with.
    pub fn position(&self) -> u64 {
        self.note.position
    }

    /// Back to what was given and is not kept.
    fn rewind(&mut self) {
        if self.next != self.note.position {
            (self.next, self.place) = (self.note.position, None);
        }
    }

    /// Waits for a segment with records from `next` on, and holds it.
    fn find(&mut self) -> Option<Segment> {
        let spool = Arc::clone(&self.spool);
        let mut state = spool.state();
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
            self.lose(segment.follows.saturating_sub(self.next), segment.first);
        }
        Some(segment)
    }

    /// Counts records as lost and goes on at `position`.
    fn lose(&mut self, records: u64, position: u64) {
        if records > 0 {
            tracing::warn!(records, first = self.next, "records were gone before they were read");
        }
        self.note.lost += records;
        self.next = position;
        self.done(position);
    }

    /// Goes on after what a segment has by now, none of which can be found after a damaged frame.
    fn skip(&mut self, segment: &Segment, error: &std::io::Error) {
        let path = Segment::path(&self.spool.dir, segment.first);
        tracing::error!(path = %path.display(), %error, "spool segment cannot be read on, its rest is skipped");
        self.lose(segment.end - self.next, segment.end);
        self.place = File::open(path).ok().map(|file| Place {
            first: segment.first,
            file,
            offset: segment.length_bytes,
        });
    }

    /// The batch that has `next`, without what is before that.
    fn read(&mut self, segment: &Segment) -> std::io::Result<Batch> {
        let mut place = match self.place.take() {
            Some(place) if place.first == segment.first => place,
            _ => {
                let file = File::open(Segment::path(&self.spool.dir, segment.first))?;
                Place { first: segment.first, file, offset: SEGMENT_HEADER_BYTES }
            }
        };
        loop {
            let header = match read_header(&place.file, place.offset, segment.length_bytes)? {
                Some(header) => header.map_err(damage)?,
                None => return Err(damage(Damaged("a segment ends before its records do"))),
            };
            let begin = place.offset + HEADER_BYTES as u64;
            place.offset = begin + u64::from(header.payload_bytes);
            if header.end() <= self.next {
                continue;
            }
            if place.offset > segment.length_bytes || header.first > self.next {
                return Err(damage(Damaged("a frame is not where it ought to be")));
            }
            self.payload.resize(header.payload_bytes as usize, 0);
            place.file.read_exact_at(&mut self.payload, begin)?;
            let mut batch = header.batch(&self.payload).map_err(damage)?;
            batch.entries.retain(|entry| entry.number >= self.next);
            self.next = header.end();
            self.place = Some(place);
            return Ok(batch);
        }
    }

    fn write_note(&mut self) {
        match note::write(&self.note_path, self.note) {
            Ok(()) => self.is_note_failing = false,
            Err(error) if !std::mem::replace(&mut self.is_note_failing, true) => {
                let path = self.note_path.display();
                tracing::error!(%path, %error, "position cannot be noted: after a restart records may come again");
            }
            Err(_) => {}
        }
    }
}

fn damage(damaged: Damaged) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, damaged.0)
}
