//! Spool reader: returns a sink's batches in order, and tracks the sink's position and losses.
//!
//! **Invariant:** records deleted before they are read are counted once, by the same position file
//! update that moves the position past them.

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
use crate::error::Error;

/// Pause before retrying a read after a temporary failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A sink's reader of the spool.
#[derive(Debug)]
pub struct Reader {
    spool: Arc<Spool>,
    index: usize,
    note_path: PathBuf,
    note: Note,
    /// Number of the next record to read.
    next: u64,
    /// The open spool segment and the read offset in it.
    place: Option<ReadPosition>,
    /// Gaps not yet in the position file, because the sink has not finished the records before
    /// them. At most one gap per spool segment.
    gaps: VecDeque<Gap>,
    payload: Vec<u8>,
    is_note_failing: bool,
    /// Whether the last read failed. Used to log consecutive failures only once.
    is_failing: bool,
}

#[derive(Debug)]
struct ReadPosition {
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
                tracing::warn!(%path, %error, "cannot read position, starting at the oldest record");
                None
            }
            noted => noted.map_err(Error::file("read", &note_path))?,
        };
        let mut state = spool.state();
        if state.cursors.len() == READERS_MAX || state.cursors.iter().any(|cursor| cursor.name == name) {
            return Err(Error::refused(format!(
                "spool must have at most {READERS_MAX} sinks with distinct names; cannot add {name}"
            )));
        }
        let first = state.segments.front().map_or(0, |first| first.first);
        let is_new = noted.is_none();
        let note = noted.unwrap_or(Note::at(first));
        let index = state.cursors.len();
        // The sink has not reported its position yet. Until it does, spool segments are deleted
        // only to make room.
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
        reader.spool.writer().skip_to(next);
        if is_new {
            reader.write_note();
        }
        Ok(reader)
    }

    /// Resumes at the position reported by the sink itself, whatever the position file contains. A
    /// sink that is ahead has stored records that a power loss then destroyed in the spool; their
    /// numbers are not assigned again. A sink that is behind, after a power loss or a restored
    /// backup, gets the records still in the spool, and the other records count as lost.
    pub fn resume(&mut self, position: u64) {
        self.spool.writer().skip_to(position);
        // Do not go back to records already counted as deleted.
        let position = self.note.after_gap(position);
        if position < self.note.position {
            let (name, noted) = (self.note_path.display(), self.note.position);
            tracing::info!(note = %name, noted, position, "sink is behind its recorded position, going back");
            self.note.position = position;
            self.gaps.clear();
        }
        self.done(position);
        (self.next, self.place) = (self.note.position, None);
    }

    /// Waits for the next batch. Returns `None` once the spool is closed and either fully read or
    /// past its drain deadline. Batches not marked as [`done`](Self::done) are returned again,
    /// unchanged, after the spool is reopened.
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
                        tracing::error!(path = %path.display(), %error, "cannot read spool segment, retrying");
                    }
                    self.spool.wait(RETRY_PAUSE);
                }
            }
        }
    }

    /// Marks all records before `position` as stored.
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

    /// Returns the number of records deleted before this sink read them, counted since the sink's
    /// position file was created.
    pub fn lost(&self) -> u64 {
        self.note.lost + self.gaps.iter().map(|gap| gap.records).sum::<u64>()
    }

    /// Returns the number of the first record not finished by the sink.
    pub fn position(&self) -> u64 {
        self.note.position
    }

    /// Returns the number of the next record to read.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Waits for a spool segment that contains records from `next` on, and pins it.
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

    /// Counts records as lost unless they have already been counted, and continues at `end`.
    fn lose(&mut self, records: u64, end: u64) {
        let records = records.saturating_sub(self.note.counted(self.next, end));
        if records > 0 {
            tracing::warn!(records, first = self.next, "records deleted before they were read");
        }
        self.gaps.push_back(Gap { first: self.next, end, records });
        self.next = end;
        self.done(self.note.position);
    }

    /// Skips the rest of a spool segment, because the start of the next frame is unknown after a
    /// damaged frame.
    fn skip(&mut self, segment: &Segment, error: &std::io::Error) {
        let path = Segment::path(&self.spool.dir, segment.first);
        tracing::error!(path = %path.display(), %error, "damaged spool segment, skipping its rest");
        self.lose(segment.end - self.next, segment.end);
        self.place.take_if(|place| place.first != segment.first);
        if let Some(place) = &mut self.place {
            place.offset = segment.length_bytes;
        }
    }

    /// Reads the batch that contains the record `next`, omitting earlier records.
    fn read(&mut self, segment: &Segment) -> std::io::Result<Batch> {
        let place = match &mut self.place {
            Some(place) if place.first == segment.first => place,
            place => {
                let file = File::open(Segment::path(&self.spool.dir, segment.first))?;
                place.insert(ReadPosition { first: segment.first, file, offset: SEGMENT_HEADER_BYTES })
            }
        };
        loop {
            let header = match read_header(&place.file, place.offset, segment.length_bytes)? {
                Some(header) => header.map_err(damage)?,
                None => return Err(damage(Damaged("spool segment ends before its last record"))),
            };
            let begin = place.offset + HEADER_BYTES as u64;
            let end = begin + u64::from(header.payload_bytes);
            if header.end() <= self.next {
                place.offset = end;
                continue;
            }
            if end > segment.length_bytes || header.first > self.next {
                return Err(damage(Damaged("frame has unexpected record numbers or length")));
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
                tracing::error!(%path, %error, "cannot write position, records may repeat after a restart");
            }
            Err(_) => {}
        }
    }
}

/// Returns whether the data is damaged or deleted, so that retrying is useless.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
}

fn damage(damaged: Damaged) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, damaged.0)
}
