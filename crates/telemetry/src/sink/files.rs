//! What the sinks that write files have in common: which files of a directory are a sink's, their names with the number that a file
//! begins with, a note of how far they are, and a bound on them. Sinks may share a directory.
//!
//! **Invariant:** what a note says is on the disk before the note is, and that before the spool hears of it: a loss of power takes
//! nothing that the spool has let go.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_record::Source;

use super::SinkError;
use crate::disk;

/// The files of a sink: `DIR/KIND-EPOCH-FIRST.EXTENSION`, with a note `DIR/EXTENSION.position`.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    extension: &'static str,
}

/// How far the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) host: String,
    pub(super) epoch: u64,
    /// Number of the first record that is not in a file.
    pub(super) position: u64,
    /// The first number of the file that is written on, and its length; the position and 0 where none is.
    pub(super) first: u64,
    pub(super) length_bytes: u64,
}

impl Files {
    /// Makes the directory if it is not there.
    pub(super) fn open(dir: &Path, extension: &'static str) -> io::Result<Self> {
        disk::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), extension })
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of a kind that begins with the record `first`.
    pub(super) fn path(&self, kind: &str, epoch: u64, first: u64) -> PathBuf {
        self.dir.join(format!("{kind}-{epoch}-{first:020}.{}", self.extension))
    }

    /// What a file is called while it is written.
    pub(super) fn passing(path: &Path) -> PathBuf {
        path.with_added_extension("new")
    }

    fn note_path(&self) -> PathBuf {
        self.dir.join(format!("{}.position", self.extension))
    }

    /// Reads the note.
    pub(super) fn note(&self) -> io::Result<Option<Note>> {
        match fs::read_to_string(self.note_path()) {
            Ok(text) => {
                let note = Note::parse(text.trim_end_matches('\n'));
                let told = || {
                    let told = "is damaged: move it and the files that it is of away";
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{} {told}", self.note_path().display()),
                    )
                };
                note.map(Some).ok_or_else(told)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the note. What it says has to be on the disk.
    pub(super) fn write_note(&self, note: &Note) -> io::Result<()> {
        let Note { host, epoch, position, first, length_bytes } = note;
        let text = format!("{epoch} {position} {first} {length_bytes} {host}\n");
        disk::replace(&self.note_path(), &Self::passing(&self.note_path()), text.as_bytes())
    }

    /// Removes the files of the note's numbering that begin with its position or later: nothing notes them.
    pub(super) fn remove_later(&self, note: &Note) -> io::Result<()> {
        for (epoch, first, path) in self.list()? {
            if epoch == note.epoch && first >= note.position {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Removes the oldest files until the rest take no more than `total_bytes`, if there is a bound. What cannot be removed is told; it is tried again
    /// the next time.
    pub(super) fn trim(&self, total_bytes: Option<u64>) {
        if let Some(bytes) = total_bytes
            && let Err(error) = self.try_trim(bytes)
        {
            tracing::warn!(dir = %self.dir.display(), %error, "old files of telemetry are not removed");
        }
    }

    fn try_trim(&self, total_bytes: u64) -> io::Result<()> {
        let mut files = self.list()?;
        files.sort();
        let mut left_bytes = 0_u64;
        for (.., path) in files.iter().rev() {
            left_bytes = match fs::metadata(path) {
                Ok(file) => left_bytes.saturating_add(file.len()),
                // Somebody has taken it away, as they may.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if left_bytes > total_bytes {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The files, whole and passing ones, with epoch and first number.
    fn list(&self) -> io::Result<Vec<(u64, u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if let Some((epoch, first)) = self.parse(&path) {
                files.push((epoch, first, path));
            }
        }
        Ok(files)
    }

    fn parse(&self, path: &Path) -> Option<(u64, u64)> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".new").unwrap_or(name);
        let mut parts = name.strip_suffix(self.extension)?.strip_suffix('.')?.rsplitn(3, '-');
        let (first, epoch, _kind) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        Some((epoch, first))
    }
}

impl Note {
    /// That nothing is kept before `position`.
    pub(super) fn new(source: &Source, position: u64) -> Self {
        Self { host: source.host.clone(), epoch: source.epoch, position, first: position, length_bytes: 0 }
    }

    pub(super) fn is_of(&self, source: &Source) -> bool {
        (&self.host, self.epoch) == (&source.host, source.epoch)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ' ');
        let mut number = || parts.next()?.parse().ok();
        let (epoch, position, first, length_bytes) = (number()?, number()?, number()?, number()?);
        Some(Self { host: parts.next()?.to_owned(), epoch, position, first, length_bytes })
    }
}

/// What failed with a directory: a map for `map_err`.
pub(super) fn failed<E>(what: &str, dir: &Path) -> impl FnOnce(E) -> SinkError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = format!("cannot {what} {}", dir.display());
    move |cause| SinkError { what, is_passing: true, cause: cause.into() }
}
