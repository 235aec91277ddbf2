//! A file read whole, with a stamp of its length and modification time that detects changes.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

/// Maximum bytes of a file; MaxMind's largest database is smaller.
pub const FILE_BYTES_MAX: u64 = 2 << 30;

/// Identifies the state of a file, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    length_bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Returns the current stamp of a file, if it exists.
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
/// The system's error, or an error if the file exceeds [`FILE_BYTES_MAX`].
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
