//! sock_diag client: lists all TCP sockets in a network namespace, regardless of the owning
//! process.
//!
//! - [`dump`] lists all sockets that match a [`Filter`]. [`events`] reports each destroyed socket
//!   with its final `tcp_info`. A socket has the same cookie in dumps and events.
//! - [`netlink`], [`message`], [`capture`], [`state`] and [`filter`] only convert bytes and text;
//!   they do no I/O.
//!
//! An unprivileged process may list every socket in its network namespace. Reading `SO_MARK` or
//! requesting a large event queue needs CAP_NET_ADMIN; entering another namespace needs
//! CAP_SYS_ADMIN.

pub mod capture;
pub mod dump;
pub mod events;
pub mod filter;
pub mod message;
pub mod netlink;
mod open;
pub mod state;

pub use capture::{BadCapture, append_to_capture, decode_capture, end_capture};
pub use dump::{Diag, Dumped, Extensions};
pub use events::{Events, EventsRead};
pub use filter::{Filter, FilterError};
pub use message::{Bbr, Family, Memory, Queues, Socket, Timer, TimerKind};
pub use netlink::{Body, Frame, Frames};
pub use state::{State, States};

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

/// Returns the network formed by the first `bits` bits of `address`, or by the full address if it
/// has fewer bits. An IPv4-mapped IPv6 address is treated as IPv4.
pub fn network(address: IpAddr, bits: u8) -> IpNet {
    let whole = IpNet::from(address.to_canonical());
    let bits = bits.min(whole.max_prefix_len());
    IpNet::new(whole.addr(), bits).expect("bits are limited to the address length").trunc()
}

/// A sock_diag failure.
#[derive(Debug)]
pub enum Error {
    /// The kernel lacks sock_diag or its TCP module.
    Unsupported(io::Error),
    /// The network namespace cannot be entered.
    Namespace {
        /// Path of the namespace's file.
        path: PathBuf,
        /// The system error.
        cause: io::Error,
    },
    /// The kernel refused a request, or a system call failed.
    Io(io::Error),
    /// A reply is longer than the buffer.
    Truncated {
        /// Length of the reply.
        length_bytes: usize,
        /// Size of the buffer.
        buffer_bytes: usize,
    },
    /// A reply does not match `inet_diag.h`.
    Malformed(Malformed),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(_) => f.write_str(
                "this kernel cannot list TCP sockets: load the module tcp_diag, or build it in (CONFIG_INET_DIAG)",
            ),
            Error::Namespace { path, .. } => {
                write!(f, "cannot enter network namespace {}", path.display())
            }
            Error::Io(_) => f.write_str("cannot list the kernel's TCP sockets"),
            Error::Truncated { length_bytes, buffer_bytes } => {
                write!(f, "kernel reply of {length_bytes} bytes exceeds the buffer of {buffer_bytes} bytes")
            }
            Error::Malformed(_) => f.write_str("malformed reply from the kernel"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unsupported(cause) | Error::Io(cause) | Error::Namespace { cause, .. } => Some(cause),
            Error::Malformed(cause) => Some(cause),
            Error::Truncated { .. } => None,
        }
    }
}

impl From<Malformed> for Error {
    fn from(cause: Malformed) -> Self {
        Error::Malformed(cause)
    }
}

/// The reason a sock_diag reply is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Too few bytes for a netlink message header.
    FrameShort {
        /// Number of bytes available.
        bytes: usize,
    },
    /// A netlink message claims a length below its header size or beyond the end of the buffer.
    FrameLength {
        /// The claimed length.
        length_bytes: usize,
        /// Number of bytes left in the buffer.
        left_bytes: usize,
    },
    /// A netlink error message lacks the error number.
    ErrorShort {
        /// Number of bytes available.
        bytes: usize,
    },
    /// Too few bytes for `struct inet_diag_msg`.
    MessageShort {
        /// Number of bytes available.
        bytes: usize,
    },
    /// An address family that is neither IPv4 nor IPv6.
    Family(u8),
    /// An unknown TCP state.
    State(u8),
    /// Too few bytes for an attribute header.
    AttributeShort {
        /// Number of bytes available.
        bytes: usize,
    },
    /// An attribute claims a length below its header size or beyond the end of the message.
    AttributeLength {
        /// The claimed length.
        length_bytes: usize,
        /// Number of bytes left in the message.
        left_bytes: usize,
    },
    /// An attribute value is shorter than in any supported kernel.
    ValueShort {
        /// The attribute type, `INET_DIAG_*`.
        kind: u16,
        /// Length of the value.
        bytes: usize,
        /// Minimum length, as sent by the oldest supported kernel.
        bytes_min: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameShort { bytes } => {
                write!(f, "expected a netlink header of {} bytes, got {bytes}", netlink::HEADER_BYTES)
            }
            Self::FrameLength { length_bytes, left_bytes } => {
                write!(f, "netlink message claims {length_bytes} bytes, but {left_bytes} are left")
            }
            Self::ErrorShort { bytes } => write!(f, "netlink error must have at least 4 bytes, got {bytes}"),
            Self::MessageShort { bytes } => {
                write!(f, "expected an inet_diag_msg of {} bytes, got {bytes}", message::MESSAGE_BYTES)
            }
            Self::Family(number) => write!(f, "address family must be IPv4 or IPv6, got {number}"),
            Self::State(number) => write!(f, "unknown TCP state {number}"),
            Self::AttributeShort { bytes } => {
                write!(f, "expected an attribute header of 4 bytes, got {bytes}")
            }
            Self::AttributeLength { length_bytes, left_bytes } => {
                write!(f, "attribute claims {length_bytes} bytes, but {left_bytes} are left")
            }
            Self::ValueShort { kind, bytes, bytes_min } => {
                write!(f, "attribute {kind} must have at least {bytes_min} bytes, got {bytes}")
            }
        }
    }
}

impl std::error::Error for Malformed {}
