//! Where presentations lie: listings and ranged reads.
//!
//! A key is a path below the root, with `/` between its parts. **Invariant:** keys come from listings alone, so no
//! request can name a file that is not a track in a presentation's directory.

mod local;

use bytes::Bytes;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Files of one presentation; a directory with more is not one.
pub(crate) const OBJECTS_MAX: usize = 256;
/// Directories below a presentation's that are looked into.
pub(crate) const DEPTH_MAX: usize = 3;

/// A file as it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    /// Where it lies below the root.
    pub(crate) key: String,
    /// Bytes.
    pub(crate) size: u64,
    /// When it was last changed.
    pub(crate) modified: SystemTime,
    /// Another value whenever the content is another: part of entity tags.
    pub(crate) validator: String,
    /// Short form of it that stands in URLs: letters and digits.
    pub(crate) version: String,
}

/// Why storage could not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageError {
    /// Reading failed.
    Io { key: String, kind: io::ErrorKind, message: String },
    /// The object is not what was listed any more.
    Changed { key: String },
    /// [`OBJECTS_MAX`].
    TooMany { key: String },
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
                write!(f, "{key}: more than {OBJECTS_MAX} tracks in one presentation")
            }
        }
    }
}

impl std::error::Error for StorageError {}

/// The kinds of storage.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// A directory.
    Local(local::Local),
}

impl Storage {
    /// The directory `root`, which is there.
    pub(crate) fn local(root: &Path) -> io::Result<Storage> {
        local::Local::new(root).map(Storage::Local)
    }

    /// Names of all presentations, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<String>, StorageError> {
        match self {
            Storage::Local(local) => local.names().await,
        }
    }

    /// The tracks of a presentation, sorted by key; `None` if there is none of that name.
    pub(crate) async fn tracks(&self, name: &str) -> Result<Option<Vec<Object>>, StorageError> {
        match self {
            Storage::Local(local) => local.tracks(name).await,
        }
    }

    /// Opens an object for ranged reads, provided that it is still what was listed.
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
    /// The `len` bytes at `offset`, which lie in the object.
    pub(crate) async fn read(&self, offset: u64, len: u64) -> Result<Bytes, StorageError> {
        match self {
            ObjectReader::Local(reader) => reader.read(offset, len).await,
        }
    }
}
