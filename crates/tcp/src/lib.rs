//! Linux TCP from user space: a socket's `tcp_info`, congestion control and sending options,
//! sock_diag dumps of all sockets, and routes.
//!
//! **Invariant:** no value is inferred. Each is either reported by the kernel for that socket or
//! absent.
//!
//! All `unsafe` code in this crate is in `sockopt.rs`, around `getsockopt(2)`, `setsockopt(2)` and
//! `sendmsg(2)`. The safe wrappers in rustix and socket2 lack `TCP_INFO`, `SO_MEMINFO`,
//! `SO_MAX_PACING_RATE`, `TCP_NOTSENT_LOWAT` and options for one `sendmsg`, and they allocate a
//! string for `TCP_CONGESTION`, which is read for every response.

pub mod acks;
pub mod congestion;
pub mod diag;
pub mod info;
pub mod routes;
pub mod sending;
mod sockopt;
pub mod sysctl;

pub use congestion::CongestionControl;
pub use info::TcpInfo;

use std::fmt;
use std::io;

/// A failure to read or set a socket's congestion control.
#[derive(Debug)]
pub enum Error {
    /// The name is invalid: empty, longer than [`congestion::NAME_BYTES_MAX`], or not printable
    /// ASCII without spaces.
    BadName {
        /// The name as given.
        name: String,
    },
    /// The kernel has no such algorithm (`ENOENT`).
    Unknown {
        /// The requested algorithm.
        name: CongestionControl,
        /// The algorithms in `net.ipv4.tcp_available_congestion_control`.
        available: Vec<CongestionControl>,
    },
    /// The algorithm exists, but a process without `CAP_NET_ADMIN` may not choose it (`EPERM`).
    NotAllowed {
        /// The requested algorithm.
        name: CongestionControl,
        /// The algorithms in `net.ipv4.tcp_allowed_congestion_control`.
        allowed: Vec<CongestionControl>,
    },
    /// The kernel accepted the algorithm but reports that a different algorithm is in use.
    NotApplied {
        /// The requested algorithm.
        name: CongestionControl,
        /// The algorithm in use.
        now: CongestionControl,
    },
    /// A congestion window was requested; stock Linux cannot set it on an open connection.
    NoCongestionWindow,
    /// A system call or a read from `/proc` failed for another reason.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadName { name } => write!(f, "{name:?} is not the name of a congestion control"),
            Error::Unknown { name, available } => {
                write!(f, "this kernel has no congestion control {name:?}; it has {}", List(available))
            }
            Error::NotAllowed { name, allowed } => write!(
                f,
                "congestion control {name:?} needs CAP_NET_ADMIN, or must be added to the sysctl \
                 net.ipv4.tcp_allowed_congestion_control, which has {}",
                List(allowed)
            ),
            Error::NotApplied { name, now } => {
                write!(f, "requested congestion control {name:?}, but the kernel uses {now:?}")
            }
            Error::NoCongestionWindow => f.write_str(
                "Linux has no socket option for the congestion window: set a pace, or `initcwnd` on the client's route",
            ),
            Error::Io(_) => f.write_str("cannot read or set a socket's congestion control"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(cause) => Some(cause),
            Error::BadName { .. }
            | Error::Unknown { .. }
            | Error::NotAllowed { .. }
            | Error::NotApplied { .. }
            | Error::NoCongestionWindow => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Self {
        Error::Io(cause)
    }
}

/// Formats algorithm names as a comma-separated list.
struct List<'a>(&'a [CongestionControl]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name.as_str())?;
        }
        Ok(())
    }
}
