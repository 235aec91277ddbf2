//! Objects of a listing, and errors of storage.

use std::fmt;
use std::io;
use std::time::SystemTime;

use super::pool::{Failure, FailureKind};

/// Maximum tracks of one presentation; a directory with more is refused.
pub(crate) const OBJECTS_MAX: usize = 256;
/// Maximum levels of subdirectories searched below a presentation's directory.
pub(crate) const DEPTH_MAX: usize = 3;

/// A file in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    /// Position of its library in the settings.
    pub(crate) library: usize,
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
    /// Strong entity tag at a remote server.
    pub(crate) etag: Option<String>,
}

/// Reasons why storage fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageError {
    /// Reading failed.
    Io { key: String, kind: io::ErrorKind, message: String },
    /// Remote storage failed.
    Remote { key: String, failure: Failure },
    /// The object no longer matches its listing.
    Changed { key: String },
    /// The presentation has more than [`OBJECTS_MAX`] tracks.
    TooMany { key: String },
    /// A file read as a whole exceeds its limit.
    TooLarge { key: String, bytes_max: u64 },
}

impl StorageError {
    pub(super) fn io(key: &str, error: &io::Error) -> StorageError {
        StorageError::Io { key: key.to_owned(), kind: error.kind(), message: error.to_string() }
    }

    /// Wraps a failure concerning `key`.
    pub(super) fn remote(key: &str, failure: Failure) -> StorageError {
        match failure.kind {
            FailureKind::Changed | FailureKind::Version => StorageError::Changed { key: key.to_owned() },
            _ => StorageError::Remote { key: key.to_owned(), failure },
        }
    }

    /// Returns whether the failure may pass soon, so that the client should try again.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            StorageError::Changed { .. } => true,
            StorageError::Remote { failure, .. } => {
                failure.kind.may_pass() || failure.kind == FailureKind::Slot
            }
            StorageError::Io { .. } | StorageError::TooMany { .. } | StorageError::TooLarge { .. } => false,
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io { key, message, .. } => write!(f, "{key}: {message}"),
            StorageError::Remote { key, failure } => write!(f, "{key}: {failure}"),
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

/// Hashes bytes to 8 hexadecimal digits.
pub(super) fn short_hash(bytes: impl Iterator<Item = u8>) -> String {
    // FNV-1a with 64 bits, folded to 32. It is identical in every build, which std's hashers do not
    // guarantee.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}
