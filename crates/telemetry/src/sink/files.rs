//! What the sinks that write files have in common: names with the number that a file begins with, and a note of how far the files
//! of a directory are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_record::Source;

use super::SinkError;

/// How far the files are: `DIR/position`.
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

impl Note {
    /// That nothing is kept before `position`.
    pub(super) fn new(source: &Source, position: u64) -> Self {
        Self { host: source.host.clone(), epoch: source.epoch, position, first: position, length_bytes: 0 }
    }

    pub(super) fn is_of(&self, source: &Source) -> bool {
        (&self.host, self.epoch) == (&source.host, source.epoch)
    }

    /// Makes the directory if it is not there, and reads its note.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        match fs::read_to_string(dir.join("position")) {
            Ok(text) => {
                let note = Self::parse(text.trim_end_matches('\n'));
                let told = "the file position is damaged: move the directory's files away";
                note.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, told))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the note of a directory.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let Self { host, epoch, position, first, length_bytes } = self;
        let passing = dir.join("position.new");
        fs::write(&passing, format!("{epoch} {position} {first} {length_bytes} {host}\n"))?;
        fs::rename(passing, dir.join("position"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ' ');
        let mut number = || parts.next()?.parse().ok();
        let (epoch, position, first, length_bytes) = (number()?, number()?, number()?, number()?);
        Some(Self { host: parts.next()?.to_owned(), epoch, position, first, length_bytes })
    }

    /// Removes the files of the numbering that begin with its position or later: nothing notes them.
    pub(super) fn remove_later(&self, dir: &Path) -> io::Result<()> {
        let part = format!("-{}-", self.epoch);
        for entry in fs::read_dir(dir)? {
            let found = entry?.path();
            let name = found.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let rest = name.split_once(&part).and_then(|(_, rest)| rest.split_once('.'));
            let first = rest.and_then(|(first, _)| first.parse::<u64>().ok());
            if first.is_some_and(|first| first >= self.position) {
                fs::remove_file(found)?;
            }
        }
        Ok(())
    }
}

/// The file of a kind that begins with the record `first`.
pub(super) fn path(dir: &Path, kind: &str, epoch: u64, first: u64, extension: &str) -> PathBuf {
    dir.join(format!("{kind}-{epoch}-{first:020}.{extension}"))
}

/// What failed with a directory: a map for `map_err`.
pub(super) fn failed<E>(what: &str, dir: &Path) -> impl FnOnce(E) -> SinkError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = format!("cannot {what} {}", dir.display());
    move |cause| SinkError { what, is_passing: true, cause: cause.into() }
}
