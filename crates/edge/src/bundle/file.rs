//! A file that is looked at again and again, and read once it is another. What else follows bundles looks as the edge does.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thalweg_bundle::BYTES_MAX;

use super::lock;

/// What a file was when it was last looked at: one that is replaced, or written to, has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    modified: (i64, i64),
    /// Also of who may read it.
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

/// What a look has found.
#[derive(Debug)]
pub enum Look {
    /// The file that was found before.
    Same,
    /// None that can be read, as before.
    StillNone,
    /// There is none, and there was one, or this is the first look.
    Gone,
    /// There is one that cannot be read; why.
    Unreadable(String),
    /// What another file has, and no more of it than shows that it is too long for a bundle.
    Document(Vec<u8>),
}

/// A file that is looked at. There may be none yet.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    seen: Mutex<Option<Result<Stamp, io::ErrorKind>>>,
}

impl Watched {
    /// One that was not looked at yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks, and reads what is new.
    pub fn look(&self) -> Look {
        let found =
            std::fs::metadata(&self.path).map(|metadata| Stamp::of(&metadata)).map_err(|error| error.kind());
        if lock(&self.seen).replace(found) == Some(found) {
            return if found.is_ok() { Look::Same } else { Look::StillNone };
        }
        match found {
            Err(io::ErrorKind::NotFound) => Look::Gone,
            Err(kind) => Look::Unreadable(kind.to_string()),
            Ok(_) => read(&self.path).map_or_else(
                |error| {
                    // The file may be right: it is tried again.
                    *lock(&self.seen) = None;
                    Look::Unreadable(format!("cannot read it: {error}"))
                },
                Look::Document,
            ),
        }
    }
}

/// A regular file, and no more of it than shows that it is too long.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Not to wait for a writer, should it be a pipe.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
