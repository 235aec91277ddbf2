//! The file sink: JSON lines, one object a row, in files of a directory that begin anew by size and by age.
//!
//! ```text
//! DIR/telemetry-EPOCH-FIRST.jsonl   records from number FIRST on
//! DIR/jsonl.position                how far they are: host, epoch, number, and the last file with its length
//! ```
//!
//! **Invariant:** what is in the files up to the noted length is kept, and on the disk; what a kill or a loss of power left behind
//! that is cut off when the sink begins again, so no line is torn or there twice once it runs.

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
use crate::{Sink, SinkError, disk};

/// How the files' names in the directory begin.
const KIND: &str = "telemetry";

/// When a file is not written on, and the next one begins; and when the oldest goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// It has as many bytes.
    pub file_bytes: u64,
    /// It is as old, or was made before the process.
    pub age: Duration,
    /// All files together, if there is a bound: the oldest go so that there is room for a new one.
    pub total_bytes: Option<u64>,
}

/// Keeps records as lines of files.
#[derive(Debug)]
pub struct JsonSink {
    files: Files,
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
        new.for_each(|entry| line::put(&batch.source, entry, &mut self.lines));
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
        // At the noted length: what an attempt before this one has written is written over.
        file.write_all_at(&self.lines, note.length_bytes)?;
        disk::sync(file)?;
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

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.write(batch).map_err(|cause| {
            // What it has that is not noted is cut off before the next one begins.
            self.file = None;
            failed("write to", self.files.dir())(cause)
        })
    }
}

/// Removes what is not in the note: files from its position on, and what the last file has beyond the noted length.
fn cut_back(files: &Files, note: &Note) -> io::Result<()> {
    let last = files.path(KIND, note.epoch, note.first);
    if note.length_bytes > 0 {
        match OpenOptions::new().write(true).open(&last) {
            Ok(file) => {
                file.set_len(note.length_bytes.min(file.metadata()?.len()))?;
                disk::sync(&file)?;
            }
            // Somebody has taken it away, as they may.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.remove_later(note)
}
