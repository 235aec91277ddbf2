//! The last good bundle in the edge's state directory, with which the next start begins.
//!
//! **Invariant:** a kill, or a loss of power, leaves the bundle before or this one, whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::file;
use crate::state::FILE_MODE;

/// The bundle's document as it is, so that `thalweg check` reads it.
const NAME: &str = "bundle.json";
const NEW: &str = "bundle.json.new";

/// The place of the last good bundle.
#[derive(Debug)]
pub(crate) struct Kept {
    directory: PathBuf,
    path: PathBuf,
}

impl Kept {
    /// In a directory that this process alone uses.
    pub(crate) fn within(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), path: directory.join(NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The document that was kept, if one was.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match file::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Keeps a document in the place of the one before.
    ///
    /// # Errors
    /// When it cannot be written; the one before is kept.
    pub(super) fn write(&self, document: &str) -> io::Result<()> {
        let new = self.directory.join(NEW);
        // What a kill has left, or a link that somebody has made.
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
        file.write_all(document.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(&self.directory)?.sync_all()
    }
}
