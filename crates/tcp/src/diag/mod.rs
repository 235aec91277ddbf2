//! sock_diag: what the kernel tells of all TCP sockets of a network namespace, whoever has them.
//!
//! - [`dump`] asks for all sockets that a [`Filter`] holds for; [`events`] hears of each that is destroyed, with its
//!   last `tcp_info`. The cookie is the same in both.
//! - [`netlink`], [`message`], [`capture`], [`state`], [`filter`] and [`prefix`] are pure: bytes and texts in, values out.
//!
//! A process without rights may ask for every socket of its namespace; `SO_MARK` and a large buffer for events need
//! CAP_NET_ADMIN, another namespace CAP_SYS_ADMIN.

pub mod capture;
pub mod dump;
pub mod events;
pub mod filter;
pub mod message;
pub mod netlink;
mod open;
pub mod prefix;
pub mod state;

pub use capture::{BadCapture, append_to_capture, decode_capture, end_capture};
pub use dump::{Diag, Dumped, Extensions};
pub use events::{Events, Heard};
pub use filter::{Filter, FilterError};
pub use message::{Bbr, Family, Memory, Socket, Timer, TimerKind};
pub use netlink::{Body, Frame, Frames};
pub use prefix::Prefix;
pub use state::{State, States};

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What can go wrong between this process and the kernel's sock_diag.
#[derive(Debug)]
pub enum Error {
    /// The kernel lacks sock_diag, or that of TCP.
    Unsupported(io::Error),
    /// A network namespace cannot be entered.
    Namespace {
        /// Its file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The kernel refused a request, or a system call failed.
    Io(io::Error),
    /// An answer is longer than the buffer for it.
    Truncated {
        /// The answer's length.
        length_bytes: usize,
        /// The buffer's.
        buffer_bytes: usize,
    },
    /// An answer is not as `inet_diag.h` has it.
    Malformed(Malformed),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(_) => f.write_str(
                "this kernel does not tell of its TCP sockets: load the module tcp_diag, or build it in (CONFIG_INET_DIAG)",
            ),
            Error::Namespace { path, .. } => {
                write!(f, "cannot enter the network namespace {}", path.display())
            }
            Error::Io(_) => f.write_str("cannot ask the kernel for its TCP sockets"),
            Error::Truncated { length_bytes, buffer_bytes } => {
                write!(f, "the kernel told {length_bytes} bytes of sockets at once, and there is room for {buffer_bytes}")
            }
            Error::Malformed(_) => f.write_str("the kernel's answer is not understood"),
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

/// Why bytes are no answer of sock_diag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Too few for the header of a netlink message.
    FrameShort {
        /// How many there are.
        bytes: usize,
    },
    /// A netlink message is shorter than its header, or longer than what there is.
    FrameLength {
        /// What it says of itself.
        length_bytes: usize,
        /// What there is.
        left_bytes: usize,
    },
    /// An error has no number.
    ErrorShort {
        /// How many bytes it has.
        bytes: usize,
    },
    /// Too few for a `struct inet_diag_msg`.
    MessageShort {
        /// How many there are.
        bytes: usize,
    },
    /// A family that is neither IPv4 nor IPv6.
    Family(u8),
    /// A state that TCP does not have.
    State(u8),
    /// Too few for the header of an attribute.
    AttributeShort {
        /// How many there are.
        bytes: usize,
    },
    /// An attribute is shorter than its header, or longer than what there is.
    AttributeLength {
        /// What it says of itself.
        length_bytes: usize,
        /// What there is.
        left_bytes: usize,
    },
    /// An attribute's value is shorter than on any kernel.
    ValueShort {
        /// The attribute, `INET_DIAG_*`.
        kind: u16,
        /// How many bytes it has.
        bytes: usize,
        /// What it has on the oldest kernel.
        bytes_min: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameShort { bytes } => {
                write!(f, "a netlink header has {} bytes, here are {bytes}", netlink::HEADER_BYTES)
            }
            Self::FrameLength { length_bytes, left_bytes } => {
                write!(f, "a netlink message says that it has {length_bytes} bytes, here are {left_bytes}")
            }
            Self::ErrorShort { bytes } => write!(f, "a netlink error has 4 bytes or more, here are {bytes}"),
            Self::MessageShort { bytes } => {
                write!(f, "an inet_diag_msg has {} bytes, here are {bytes}", message::MESSAGE_BYTES)
            }
            Self::Family(number) => write!(f, "address family {number} is neither IPv4 nor IPv6"),
            Self::State(number) => write!(f, "TCP has no state {number}"),
            Self::AttributeShort { bytes } => {
                write!(f, "an attribute's header has 4 bytes, here are {bytes}")
            }
            Self::AttributeLength { length_bytes, left_bytes } => {
                write!(f, "an attribute says that it has {length_bytes} bytes, here are {left_bytes}")
            }
            Self::ValueShort { kind, bytes, bytes_min } => {
                write!(f, "attribute {kind} has {bytes_min} bytes or more, here are {bytes}")
            }
        }
    }
}

impl std::error::Error for Malformed {}
