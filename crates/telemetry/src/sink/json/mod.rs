//! JSON lines sink: writes one object per row to files that are rotated by size and age.
//!
//! ```text
//! DIR/telemetry-EPOCH-FIRST.jsonl   records from number FIRST on
//! DIR/jsonl.position                host, epoch, position, and the last file with its length
//! ```
//!
//! **Invariant:** the files are complete and synced up to the length in the position file. The next
//! start truncates data past that length, which a crash or power loss may have left, so no line is
//! incomplete or repeated while the sink runs.

mod line;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_record::{Batch, Source};

use super::files::{Files, Note, failed};
use crate::disk;
use crate::error::SinkError;
use crate::sink::Sink;

/// Prefix of data file names.
const KIND: &str = "telemetry";

/// Limits at which a new file is started and the oldest files are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Length in bytes at which a new file is started.
    pub file_bytes: u64,
    /// Age at which a new file is started. A restart of the sink starts a new file too.
    pub age: Duration,
    /// Maximum total size of all files in bytes, if limited. The oldest files are deleted to make
    /// room for a new file.
    pub total_bytes: Option<u64>,
}

/// The JSON lines sink.
#[derive(Debug)]
pub struct JsonSink {
    files: Files,
    rotation: Rotation,
    note: Option<Note>,
    file: Option<(File, Instant)>,
    lines: Vec<u8>,
}

impl JsonSink {
    /// Opens a directory, creating it if missing, and truncates incomplete data left by a crash.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read or written.
    pub fn open(dir: &Path, rotation: Rotation) -> Result<Self, SinkError> {
        let open = || -> io::Result<_> {
            let files = Files::open(dir, "jsonl")?;
            let note = files.note()?;
            note.iter().try_for_each(|note| cut_back(&files, note))?;
            Ok((files, note))
        };
        let (files, note) = open().map_err(failed("open", dir))?;
        Ok(Self { files, rotation, note, file: None, lines: Vec::new() })
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        let (Some(begin), Some(last)) = (batch.entries.first(), batch.entries.last()) else { return Ok(()) };
        let mut note = self.begin(&batch.source, begin.number)?;
        self.lines.clear();
        let new = batch.entries.iter().filter(|entry| entry.number >= note.position);
        new.for_each(|entry| line::append(&batch.source, entry, &mut self.lines));
        let file = match &self.file {
            Some((file, _)) => file,
            None => {
                cut_back(&self.files, &note)?;
                (note.first, note.length_bytes) = (note.position, 0);
                let Rotation { file_bytes, total_bytes, .. } = self.rotation;
                self.files.trim(total_bytes.map(|total_bytes| total_bytes.saturating_sub(file_bytes)));
                let file = disk::create(&self.files.path(KIND, note.epoch, note.first))?;
                disk::sync_dir(self.files.dir())?;
                &self.file.insert((file, Instant::now())).0
            }
        };
        // Write at the noted length, which is the end of the complete data.
        file.write_all_at(&self.lines, note.length_bytes)?;
        disk::sync(file)?;
        note.length_bytes += self.lines.len() as u64;
        note.position = note.position.max(last.number + 1);
        self.write_note(note)
    }

    /// Returns the note to continue from, or a new note if the batch belongs to a new epoch. The
    /// position file is written before an epoch's first data file.
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
        self.write_note(note.clone())?;
        Ok(note)
    }

    fn write_note(&mut self, note: Note) -> io::Result<()> {
        self.files.write_note(&note)?;
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

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.write(batch).map_err(|cause| {
            // Data past the noted length is truncated before the next file is started.
            self.file = None;
            failed("write to", self.files.dir())(cause)
        })
    }
}

/// Deletes data not covered by the note: files that start at its position or later, and the part of
/// the last file past the noted length.
fn cut_back(files: &Files, note: &Note) -> io::Result<()> {
    let last = files.path(KIND, note.epoch, note.first);
    if note.length_bytes > 0 {
        match OpenOptions::new().write(true).open(&last) {
            Ok(file) => {
                file.set_len(note.length_bytes.min(file.metadata()?.len()))?;
                disk::sync(&file)?;
            }
            // An operator may have moved the file to another directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.remove_later(note)
}
