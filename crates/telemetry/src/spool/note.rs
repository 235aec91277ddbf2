//! A sink's note: how far it has kept the spool's records, and how many it has lost. A line of text, `POSITION LOST`, in a file
//! of its own.
//!
//! **Invariant:** a note is replaced as a whole: a killed process leaves a whole one. A loss of power may tear it, since it is
//! not synced, which would take longer than most batches; the sink is then given all that is in the spool.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How far a sink is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Number of the first record that it has not kept.
    pub(super) position: u64,
    /// Records before that which were gone before it read them.
    pub(super) lost: u64,
}

/// The file of a sink's note.
pub(super) fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.position"))
}

/// Reads a note, if there is one.
pub(super) fn read(path: &Path) -> io::Result<Option<Note>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(position)), Some(Ok(lost))) => Ok(Some(Note { position, lost })),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a position and a number of lost records")),
    }
}

/// Replaces a note.
pub(super) fn write(path: &Path, note: Note) -> io::Result<()> {
    let passing = path.with_extension("position.new");
    fs::write(&passing, format!("{} {}\n", note.position, note.lost))?;
    fs::rename(passing, path)
}
