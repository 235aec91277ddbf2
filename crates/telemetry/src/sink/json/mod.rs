//! The file sink: JSON lines, one object a row, in files of a directory that begin anew by size and by age.
//!
//! ```text
//! DIR/telemetry-EPOCH-FIRST.jsonl   records from number FIRST on
//! DIR/position                      how far they are: host, epoch, number, and the last file with its length
//! ```
//!
//! **Invariant:** what is in the files up to the noted length is kept; what a kill left behind that is cut off when the sink begins
//! again, so no line is torn or there twice once it runs.

mod line;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thalweg_record::{Batch, Source};

use super::files::{self, Note, failed};
use crate::{Sink, SinkError};

/// When a file is not written on, and the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// It has as many bytes.
    pub file_bytes: u64,
    /// It is as old, or was made before the process.
    pub age: Duration,
}

/// Keeps records as lines of files.
#[derive(Debug)]
pub struct JsonSink {
    dir: PathBuf,
    rotation: Rotation,
    note: Option<Note>,
    file: Option<(File, Instant)>,
    lines: Vec<u8>,
}

impl JsonSink {
    /// Opens a directory, which is made if it is not there, and cuts off what a kill has left.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(dir: &Path, rotation: Rotation) -> Result<Self, SinkError> {
        let open = || -> io::Result<_> {
            let note = Note::open(dir)?;
            note.iter().try_for_each(|note| cut_back(dir, note))?;
            Ok(note)
        };
        let note = open().map_err(failed("open", dir))?;
        Ok(Self { dir: dir.to_owned(), rotation, note, file: None, lines: Vec::new() })
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        let (Some(begin), Some(last)) = (batch.entries.first(), batch.entries.last()) else { return Ok(()) };
        let mut note = self.begin(&batch.source, begin.number)?;
        self.lines.clear();
        let new = batch.entries.iter().filter(|entry| entry.number >= note.position);
        new.for_each(|entry| line::put(&batch.source, entry, &mut self.lines));
        let file = match &self.file {
            Some((file, _)) => file,
            None => {
                cut_back(&self.dir, &note)?;
                (note.first, note.length_bytes) = (note.position, 0);
                let options = OpenOptions::new().write(true).create(true).truncate(true).to_owned();
                let file = options.open(path(&self.dir, note.epoch, note.first))?;
                &self.file.insert((file, Instant::now())).0
            }
        };
        // At the noted length: what an attempt before this one has written is written over.
        file.write_all_at(&self.lines, note.length_bytes)?;
        note.length_bytes += self.lines.len() as u64;
        note.position = note.position.max(last.number + 1);
        self.put(note)
    }

    /// The note that a batch goes on from; one of another numbering begins anew. There is none of a file without a note before it.
    fn begin(&mut self, source: &Source, first: u64) -> io::Result<Note> {
        if let Some(note) = self.note.clone().filter(|note| note.is_of(source)) {
            let is_due = |since: &Instant| {
                note.length_bytes >= self.rotation.file_bytes || since.elapsed() >= self.rotation.age
            };
            self.file = self.file.take().filter(|(_, since)| !is_due(since));
            return Ok(note);
        }
        self.file = None;
        let note = Note::new(source, first);
        self.put(note.clone())?;
        Ok(note)
    }

    fn put(&mut self, note: Note) -> io::Result<()> {
        note.write(&self.dir)?;
        self.note = Some(note);
        Ok(())
    }
}

impl Sink for JsonSink {
    fn name(&self) -> &'static str {
        "file"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        Ok(self.note.as_ref().filter(|note| note.is_of(source)).map(|note| note.position))
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.write(batch).map_err(|cause| {
            // What it has that is not noted is cut off before the next one begins.
            self.file = None;
            failed("write to", &self.dir)(cause)
        })
    }
}

fn path(dir: &Path, epoch: u64, first: u64) -> PathBuf {
    files::path(dir, "telemetry", epoch, first, "jsonl")
}

/// Removes what is not in the note: files from its position on, and what the last file has beyond the noted length.
fn cut_back(dir: &Path, note: &Note) -> io::Result<()> {
    let last = path(dir, note.epoch, note.first);
    if note.length_bytes > 0 {
        match OpenOptions::new().write(true).open(&last) {
            Ok(file) => file.set_len(note.length_bytes.min(file.metadata()?.len()))?,
            // Somebody has taken it away, as they may.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    note.remove_later(dir)
}
