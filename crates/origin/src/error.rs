//! Errors that prevent an origin from starting.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::storage::MediaLocation;

/// A resource that the origin could not acquire at startup.
#[derive(Debug)]
pub enum BindError {
    /// The listen address for edges and clients.
    Listen(SocketAddr, io::Error),
    /// The listen address for ingest sources.
    Ingest(SocketAddr, io::Error),
    /// The listen address of the admin interface.
    Admin(SocketAddr, io::Error),
    /// A library of presentations.
    Media(MediaLocation, io::Error),
    /// Memory for live channels, with its size in bytes.
    Memory(u64, io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) | Self::Ingest(address, error) | Self::Admin(address, error) => {
                write!(f, "cannot listen on {address}: {error}")
            }
            Self::Media(location @ MediaLocation::Directory(_), error) => {
                write!(f, "cannot read the media directory {location}: {error}")
            }
            Self::Media(location, error) => write!(f, "cannot use the library {location}: {error}"),
            Self::Memory(bytes, error) => {
                write!(f, "cannot allocate {bytes} bytes for live channels: {error}")
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error)
            | Self::Ingest(_, error)
            | Self::Admin(_, error)
            | Self::Media(_, error)
            | Self::Memory(_, error) => Some(error),
        }
    }
}
