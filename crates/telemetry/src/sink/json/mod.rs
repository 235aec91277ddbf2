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

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thalweg_record::{Batch, Source};

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

/// How far the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    host: String,
    epoch: u64,
    /// Number of the first record that is not in a file.
    position: u64,
    /// The first number of the last file, and the length of that.
    first: u64,
    length_bytes: u64,
}

impl JsonSink {
    /// Opens a directory, which is made if it is not there, and cuts off what a kill has left.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(dir: &Path, rotation: Rotation) -> Result<Self, SinkError> {
        let open = || {
            fs::create_dir_all(dir)?;
            let note = Note::read(&dir.join("position"))?;
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
        let (host, epoch) = (source.host.clone(), source.epoch);
        let note = Note { host, epoch, position: first, first, length_bytes: 0 };
        self.put(note.clone())?;
        Ok(note)
    }

    fn put(&mut self, note: Note) -> io::Result<()> {
        let passing = self.dir.join("position.new");
        fs::write(&passing, note.text())?;
        fs::rename(passing, self.dir.join("position"))?;
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

impl Note {
    fn is_of(&self, source: &Source) -> bool {
        (&self.host, self.epoch) == (&source.host, source.epoch)
    }

    fn text(&self) -> String {
        let Self { host, epoch, position, first, length_bytes } = self;
        format!("{epoch} {position} {first} {length_bytes} {host}\n")
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => {
                let note = Self::parse(text.trim_end_matches('\n'));
                let told = "the file position is damaged: move the directory's files away";
                note.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, told))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ' ');
        let mut number = || parts.next()?.parse().ok();
        let (epoch, position, first, length_bytes) = (number()?, number()?, number()?, number()?);
        Some(Self { host: parts.next()?.to_owned(), epoch, position, first, length_bytes })
    }
}

fn path(dir: &Path, epoch: u64, first: u64) -> PathBuf {
    dir.join(format!("telemetry-{epoch}-{first:020}.jsonl"))
}

/// Removes what is not in the note: files from its position on, and what the last file has beyond the noted length.
fn cut_back(dir: &Path, note: &Note) -> io::Result<()> {
    let last = path(dir, note.epoch, note.first);
    if note.length_bytes > 0 {
        match OpenOptions::new().write(true).open(&last) {
            Ok(file) => file.set_len(note.length_bytes)?,
            // Somebody has taken it away, as they may.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    for entry in fs::read_dir(dir)? {
        let found = entry?.path();
        let number = |name: &str| {
            name.strip_prefix(&format!("telemetry-{}-", note.epoch))?.strip_suffix(".jsonl")?.parse().ok()
        };
        let first: Option<u64> = found.file_name().and_then(|name| name.to_str()).and_then(number);
        if first.is_some_and(|first| first >= note.position) {
            fs::remove_file(found)?;
        }
    }
    Ok(())
}

fn failed(what: &str, dir: &Path) -> impl FnOnce(io::Error) -> SinkError {
    let what = format!("cannot {what} {}", dir.display());
    move |cause| SinkError { what, is_passing: true, cause: cause.into() }
}
