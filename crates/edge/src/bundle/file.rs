//! Watched file: checked periodically and read when it has changed. Other programs that watch for
//! bundles use the same check.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thalweg_bundle::BYTES_MAX;

use super::lock;

/// Identity of a file's content; changes when the file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    modified: (i64, i64),
    /// Time of the last inode change, which permission changes also update.
    changed: (i64, i64),
    bytes: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
        }
    }
}

/// Result of checking a watched file.
#[derive(Debug)]
pub enum FileState {
    /// The file has not changed.
    Same,
    /// There is still no readable file.
    StillNone,
    /// The file no longer exists, or did not exist at the first check.
    Gone,
    /// The file exists but cannot be read. Contains the reason.
    Unreadable(String),
    /// Content of a changed file; if the file is too long, only enough to detect that.
    Document(Vec<u8>),
}

/// A watched file, which need not exist yet.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    seen: Mutex<Option<Result<Stamp, io::ErrorKind>>>,
}

impl Watched {
    /// Watches the file at `path`, without checking it yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: Mutex::new(None) }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the file, and reads it if it has changed.
    pub fn check(&self) -> FileState {
        let found =
            std::fs::metadata(&self.path).map(|metadata| Stamp::of(&metadata)).map_err(|error| error.kind());
        if lock(&self.seen).replace(found) == Some(found) {
            return if found.is_ok() { FileState::Same } else { FileState::StillNone };
        }
        match found {
            Err(io::ErrorKind::NotFound) => FileState::Gone,
            Err(kind) => FileState::Unreadable(kind.to_string()),
            Ok(_) => read(&self.path).map_or_else(
                |error| {
                    // The read error may be temporary, so read the file again at the next check.
                    *lock(&self.seen) = None;
                    FileState::Unreadable(format!("cannot read file: {error}"))
                },
                FileState::Document,
            ),
        }
    }
}

/// Reads a regular file; if the file is too long, only enough to detect that.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without this flag, opening a named pipe would block until a writer opens it.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
