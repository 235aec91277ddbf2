//! What an origin cannot start without.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What could not be had before the origin starts.
#[derive(Debug)]
pub enum BindError {
    /// The address to listen on.
    Listen(SocketAddr, io::Error),
    /// The directory of presentations.
    Media(PathBuf, io::Error),
    /// The memory for live channels.
    Memory(u64, io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Media(path, error) => {
                write!(f, "cannot read the media directory {}: {error}", path.display())
            }
            Self::Memory(bytes, error) => {
                write!(f, "cannot have {bytes} bytes of memory for live channels: {error}")
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Media(_, error) | Self::Memory(_, error) => Some(error),
        }
    }
}
