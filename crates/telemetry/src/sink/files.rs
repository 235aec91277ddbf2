//! Shared parts of the file sinks: file names by first record number, the position file, and a
//! total size limit. Several sinks may share a directory.
//!
//! **Invariant:** data is synced before the position file that covers it, and the position file is
//! synced before the spool is notified. The spool may delete records once notified, so this order
//! prevents a power loss from destroying the only copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_record::Source;

use super::SinkError;
use crate::disk;

/// A sink's files: data in `DIR/KIND-EPOCH-FIRST.EXTENSION` and the position file
/// `DIR/EXTENSION.position`.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    extension: &'static str,
}

/// Content of the position file: the extent of complete data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) host: String,
    pub(super) epoch: u64,
    /// Number of the first record not yet in a file.
    pub(super) position: u64,
    /// First record number of the current file; equal to `position` if no file has been started.
    pub(super) first: u64,
    /// Length of the current file in bytes; 0 if no file has been started.
    pub(super) length_bytes: u64,
}

impl Files {
    /// Opens a directory, creating it if missing.
    pub(super) fn open(dir: &Path, extension: &'static str) -> io::Result<Self> {
        disk::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), extension })
    }

    /// Returns the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a file, given its kind, epoch and first record number.
    pub(super) fn path(&self, kind: &str, epoch: u64, first: u64) -> PathBuf {
        self.dir.join(format!("{kind}-{epoch}-{first:020}.{}", self.extension))
    }

    /// Returns the name under which a file is written before it is renamed to `path`.
    pub(super) fn temporary(path: &Path) -> PathBuf {
        path.with_added_extension("new")
    }

    fn note_path(&self) -> PathBuf {
        self.dir.join(format!("{}.position", self.extension))
    }

    /// Reads the position file.
    pub(super) fn note(&self) -> io::Result<Option<Note>> {
        match fs::read_to_string(self.note_path()) {
            Ok(text) => {
                let note = Note::parse(text.trim_end_matches('\n'));
                let damaged = || {
                    let what = "is damaged: move it and this sink's files away";
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{} {what}", self.note_path().display()),
                    )
                };
                note.map(Some).ok_or_else(damaged)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the position file. All data that it covers must already be synced.
    pub(super) fn write_note(&self, note: &Note) -> io::Result<()> {
        let Note { host, epoch, position, first, length_bytes } = note;
        let text = format!("{epoch} {position} {first} {length_bytes} {host}\n");
        disk::replace(&self.note_path(), text.as_bytes())
    }

    /// Deletes files of the noted epoch that start at or after the noted position. The position
    /// file does not cover them.
    pub(super) fn remove_later(&self, note: &Note) -> io::Result<()> {
        for (epoch, first, path) in self.list()? {
            if epoch == note.epoch && first >= note.position {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Deletes the oldest files until the total size of the rest is at most `total_bytes`, if
    /// limited. A failure is logged and retried in the next call.
    pub(super) fn trim(&self, total_bytes: Option<u64>) {
        if let Some(bytes) = total_bytes
            && let Err(error) = self.try_trim(bytes)
        {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot delete old telemetry files");
        }
    }

    fn try_trim(&self, total_bytes: u64) -> io::Result<()> {
        let mut files = self.list()?;
        files.sort();
        let mut left_bytes = 0_u64;
        for (.., path) in files.iter().rev() {
            left_bytes = match fs::metadata(path) {
                Ok(file) => left_bytes.saturating_add(file.len()),
                // An operator may have removed the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if left_bytes > total_bytes {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Lists the sink's complete and temporary files with their epochs and first record numbers.
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
    /// Creates a note that covers no file and starts at `position`.
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

/// Returns a `map_err` function for a failed operation on a directory.
pub(super) fn failed<E>(what: &str, dir: &Path) -> impl FnOnce(E) -> SinkError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = format!("cannot {what} {}", dir.display());
    move |cause| SinkError { what, is_passing: true, cause: cause.into() }
}
