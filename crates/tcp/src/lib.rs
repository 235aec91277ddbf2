//! Linux TCP from user space: what the kernel says of a socket, which congestion control it runs, and how it sends.
//!
//! **Invariant:** nothing here guesses. A value is what the kernel answered for that socket, or it is absent.
//!
//! `unsafe` stands in one place of this crate, `sockopt.rs`, around `getsockopt(2)` and `setsockopt(2)`: the safe
//! wrappers of rustix and socket2 lack `TCP_INFO`, `SO_MEMINFO`, `SO_MAX_PACING_RATE` and `TCP_NOTSENT_LOWAT`, and
//! allocate a string for `TCP_CONGESTION`, which is read for each response.

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

/// What can go wrong with a socket's congestion control.
#[derive(Debug)]
pub enum Error {
    /// The name cannot be an algorithm's: empty, longer than [`congestion::NAME_BYTES_MAX`], or not plain
    /// ASCII.
    BadName {
        /// The name as given.
        name: String,
    },
    /// The kernel has no such algorithm (`ENOENT`).
    Unknown {
        /// The algorithm asked for.
        name: CongestionControl,
        /// What `net.ipv4.tcp_available_congestion_control` lists.
        available: Vec<CongestionControl>,
    },
    /// The algorithm is there, but a process without `CAP_NET_ADMIN` may not choose it (`EPERM`).
    NotAllowed {
        /// The algorithm asked for.
        name: CongestionControl,
        /// What `net.ipv4.tcp_allowed_congestion_control` lists.
        allowed: Vec<CongestionControl>,
    },
    /// The kernel took the algorithm and says that another one is in use.
    Kept {
        /// The algorithm asked for.
        name: CongestionControl,
        /// The one in use.
        now: CongestionControl,
    },
    /// A congestion window was asked for, which stock Linux lets nobody set on a running connection.
    NoCongestionWindow,
    /// The system call or the read of `/proc` failed for another reason.
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
                "congestion control {name:?} needs CAP_NET_ADMIN, or a place in the sysctl \
                 net.ipv4.tcp_allowed_congestion_control, which has {}",
                List(allowed)
            ),
            Error::Kept { name, now } => {
                write!(f, "congestion control {name:?} was asked for, and the kernel says {now:?}")
            }
            Error::NoCongestionWindow => f.write_str(
                "Linux has no socket option for the congestion window: set a pace, or `initcwnd` on the client's route",
            ),
            Error::Io(_) => f.write_str("cannot read or set the congestion control of a socket"),
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
            | Error::Kept { .. }
            | Error::NoCongestionWindow => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Self {
        Error::Io(cause)
    }
}

/// Names with commas between them.
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
