//! Kernel routes that set a congestion control and initial windows (`ip route … congctl`,
//! `initcwnd`, `initrwnd`), for servers that do not choose a congestion control themselves.
//!
//! - [`route`] models one rtnetlink route, `message` encodes it, and [`plan`] computes the required
//!   changes; these three do no I/O. [`kernel`] reads and changes routes, [`watch`] detects
//!   changes, and [`shown`] formats a route for users.
//! - Each of our routes copies all settings of the kernel's current route to its prefix, except the
//!   algorithm, and the initial windows if they are set.
//!
//! Our routes are not locked (`congctl lock`). The kernel gives each new connection the route's
//! algorithm (`tcp_ca_openreq_child`, `tcp_ca_dst_init`), which overrides the listening socket's. A
//! program may still choose another algorithm for a connection. On a locked route, its
//! `setsockopt(TCP_CONGESTION)` would fail with EPERM (`tcp_set_congestion_control`).
//!
//! **Invariant:** every route set here has protocol [`PROTOCOL`], and no route with another
//! protocol is ever changed or removed.
//! **Invariant:** removals are applied first and never undone. If the kernel refuses the route to
//! one prefix, our routes to the other prefixes are still set.

pub mod kernel;
mod message;
pub mod plan;
pub mod route;
pub mod shown;
pub mod watch;

pub use kernel::{Changed, Refused, Routes};
pub use plan::{Change, Plan, Skipped, Steering, Wanted, plan};
pub use route::{Nexthop, Route};
pub use watch::Watch;

use std::fmt;
use std::io;

use crate::diag::Malformed;

/// `rtm_protocol` of each route set here. The number is unused in `rtnetlink.h` (up to Linux 6.18),
/// in iproute2's `rt_protos` (up to 6.15), and by FRR (186 to 199), Calico (80), OVN (84) and
/// Open/R (99). The kernel leaves numbers from 5 up to user space and accepts any of them.
pub const PROTOCOL: u8 = 116;

/// `RTA_PRIORITY` of each route set here (`metric` in `ip route`). The value is so high that any
/// other route to the same prefix takes precedence.
pub const PRIORITY: u32 = 4_000_000_000;

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_LOCAL`: the machine's own addresses.
pub const TABLE_LOCAL: u32 = 255;

/// A failure to read or change routes.
#[derive(Debug)]
pub enum Error {
    /// Changing routes needs CAP_NET_ADMIN.
    NotPermitted,
    /// A system call failed, or the kernel refused a request.
    Io {
        /// The failed operation, as in "cannot OPERATION".
        operation: &'static str,
        /// The system error.
        cause: io::Error,
    },
    /// A reply is longer than the buffer.
    Truncated {
        /// Length of the reply.
        length_bytes: usize,
        /// Size of the buffer.
        buffer_bytes: usize,
    },
    /// A reply did not end within the maximum number of reads.
    Endless {
        /// The number of reads.
        reads: usize,
    },
    /// The routing table changed during each of several dumps.
    Unsteady,
    /// A reply does not match `netlink.h` and `rtnetlink.h`.
    Malformed(Malformed),
    /// A message is too short for `struct rtmsg`.
    Short {
        /// Number of bytes received.
        bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("changing routes needs CAP_NET_ADMIN: run thalweg as root"),
            Self::Io { operation, .. } => write!(f, "cannot {operation}"),
            Self::Truncated { length_bytes, buffer_bytes } => {
                write!(f, "kernel reply of {length_bytes} bytes exceeds the buffer of {buffer_bytes} bytes")
            }
            Self::Endless { reads } => write!(f, "kernel reply did not end within {reads} reads"),
            Self::Unsteady => f.write_str("kernel routes kept changing while being read: try again"),
            Self::Malformed(_) => f.write_str("malformed reply from the kernel"),
            Self::Short { bytes } => {
                write!(f, "route message must have at least {} bytes, got {bytes}", message::MESSAGE_BYTES)
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { cause, .. } => Some(cause),
            Self::Malformed(cause) => Some(cause),
            Self::NotPermitted
            | Self::Unsteady
            | Self::Truncated { .. }
            | Self::Endless { .. }
            | Self::Short { .. } => None,
        }
    }
}

impl From<Malformed> for Error {
    fn from(cause: Malformed) -> Self {
        Self::Malformed(cause)
    }
}

#[cfg(test)]
mod tests;
