//! Files read completely into memory, with a stamp (length and modification time) that detects
//! changes.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

/// Maximum file size in bytes, larger than MaxMind's largest database.
pub const FILE_BYTES_MAX: u64 = 2 << 30;

/// Identifies a version of a file's content by its length and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    length_bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Returns a file's current stamp, or `None` if its metadata cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self { length_bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// Reads a file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or exceeds [`FILE_BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<(Vec<u8>, Stamp)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, Stamp::from(&metadata)))
}
