//! Presentation storage: listings and ranged reads.
//!
//! A key is a path below the root, with `/` between its segments. **Invariant:** keys come only
//! from listings, so no request can name a file that is not a track in a presentation's directory.

mod local;

use bytes::Bytes;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Maximum tracks of one presentation; a directory with more is refused.
pub(crate) const OBJECTS_MAX: usize = 256;
/// Maximum levels of subdirectories searched below a presentation's directory.
pub(crate) const DEPTH_MAX: usize = 3;

/// A file in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    /// Path below the root.
    pub(crate) key: String,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Last modification time.
    pub(crate) modified: SystemTime,
    /// Part of entity tags; differs whenever the content differs.
    pub(crate) validator: String,
    /// Short version for URLs, made of letters and digits. A copy with the same size and
    /// modification time has the same version.
    pub(crate) version: String,
}

/// Reasons why storage fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageError {
    /// Reading failed.
    Io { key: String, kind: io::ErrorKind, message: String },
    /// The object no longer matches its listing.
    Changed { key: String },
    /// The presentation has more than [`OBJECTS_MAX`] tracks.
    TooMany { key: String },
    /// A file read as a whole exceeds its limit.
    TooLarge { key: String, bytes_max: u64 },
}

impl StorageError {
    fn io(key: &str, error: &io::Error) -> StorageError {
        StorageError::Io { key: key.to_owned(), kind: error.kind(), message: error.to_string() }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io { key, message, .. } => write!(f, "{key}: {message}"),
            StorageError::Changed { key } => write!(f, "{key}: changed while it was being read"),
            StorageError::TooMany { key } => {
                write!(f, "{key}: too many tracks: a presentation has at most {OBJECTS_MAX}")
            }
            StorageError::TooLarge { key, bytes_max } => {
                write!(f, "{key}: too large: the file may have at most {bytes_max} bytes")
            }
        }
    }
}

impl std::error::Error for StorageError {}

/// Kinds of storage.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// A directory.
    Local(local::Local),
}

impl Storage {
    /// Opens the existing directory `root`.
    pub(crate) fn local(root: &Path) -> io::Result<Storage> {
        local::Local::new(root).map(Storage::Local)
    }

    /// Describes the file at `path`, whatever its name, as an object with the given key.
    pub(crate) fn local_object(path: &Path, key: String) -> io::Result<Object> {
        Ok(local::object(key, &std::fs::metadata(path)?))
    }

    /// Returns the names of all presentations, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>, StorageError> {
        match self {
            Storage::Local(local) => local.names().await,
        }
    }

    /// Returns the tracks of a presentation, sorted by key; `None` if no presentation is called
    /// `name`.
    pub(crate) async fn tracks(&self, name: &str) -> Result<Option<Vec<Object>>, StorageError> {
        match self {
            Storage::Local(local) => local.tracks(name).await,
        }
    }

    /// Reads the small file called `file` in the directory of presentation `name`; `None` if there
    /// is no such file. `file` must not come from a request.
    pub(crate) async fn text(
        &self,
        name: &str,
        file: &'static str,
        bytes_max: u64,
    ) -> Result<Option<Bytes>, StorageError> {
        match self {
            Storage::Local(local) => local.text(name, file, bytes_max).await,
        }
    }

    /// Opens an object for ranged reads if it still matches its listing.
    pub(crate) async fn open(&self, object: &Object) -> Result<ObjectReader, StorageError> {
        match self {
            Storage::Local(local) => local.open(object).await.map(ObjectReader::Local),
        }
    }
}

/// An open object.
#[derive(Debug)]
pub(crate) enum ObjectReader {
    /// A file.
    Local(local::LocalReader),
}

impl ObjectReader {
    /// Reads the `len` bytes at `offset`, which must be within the object.
    pub(crate) async fn read(&self, offset: u64, len: u64) -> Result<Bytes, StorageError> {
        match self {
            ObjectReader::Local(reader) => reader.read(offset, len).await,
        }
    }
}
