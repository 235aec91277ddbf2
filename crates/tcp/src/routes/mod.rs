//! Kernel routes that name a congestion control (`ip route … congctl`): for connections of servers that choose none themselves.
//!
//! - [`route`] is one route as rtnetlink has it, `message` its bytes, [`plan`] what is to change; all pure. [`kernel`] reads and
//!   changes them, [`watch`] hears that they changed, [`shown`] writes one for people.
//! - A route of ours goes as the kernel's present one to that prefix does, with all its settings but the algorithm.
//!
//! **Not locked** (`congctl lock`): the kernel gives a connection the route's algorithm when it is made (`tcp_ca_openreq_child`,
//! `tcp_ca_dst_init`), over one that the listening socket has. A program that chooses for a connection afterwards is the better
//! informed; on a locked route its `setsockopt(TCP_CONGESTION)` would fail with EPERM (`tcp_set_congestion_control`).
//!
//! **Invariant:** what is set has [`PROTOCOL`], and nothing without it is ever changed or removed.
//! **Invariant:** what is taken away goes first and stays away. What the kernel refuses has no route of ours; all others stand.

pub mod kernel;
mod message;
pub mod plan;
pub mod route;
pub mod shown;
pub mod watch;

pub use kernel::{Changed, Refused, Routes};
pub use plan::{Change, Plan, Skipped, Wanted, plan};
pub use route::{Nexthop, Route};
pub use watch::Watch;

use std::fmt;
use std::io;

use crate::diag::Malformed;

/// `rtm_protocol` of each route that is set here: free in `rtnetlink.h` (to Linux 6.18), in iproute2's `rt_protos` (to 6.15) and
/// of FRR (186 to 199), Calico (80), OVN (84) and Open/R (99). Numbers from 5 on are of user space, the kernel takes any.
pub const PROTOCOL: u8 = 116;

/// `RTA_PRIORITY` of each route that is set here, the metric of `ip route`: so late that whoever sets another route of the same
/// prefix has the precedence.
pub const PRIORITY: u32 = 4_000_000_000;

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_LOCAL`: addresses of the machine itself.
pub const TABLE_LOCAL: u32 = 255;

/// What can go wrong with routes.
#[derive(Debug)]
pub enum Error {
    /// Routes may only be changed with CAP_NET_ADMIN.
    NotPermitted,
    /// The kernel does not answer, or a system call failed.
    Io(io::Error),
    /// The table changed at each of several looks.
    Unsteady,
    /// An answer is not as `netlink.h` and `rtnetlink.h` have it.
    Malformed(Malformed),
    /// An answer is too short for a `struct rtmsg`.
    Short {
        /// What there is of it.
        bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("to change routes needs CAP_NET_ADMIN: run it as root"),
            Self::Io(_) => f.write_str("cannot ask the kernel for its routes"),
            Self::Unsteady => f.write_str("the kernel's routes changed each time that they were read"),
            Self::Malformed(_) => f.write_str("the kernel's answer is not understood"),
            Self::Short { bytes } => {
                write!(
                    f,
                    "a route of the kernel has {} bytes or more, here are {bytes}",
                    message::MESSAGE_BYTES
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(cause) => Some(cause),
            Self::Malformed(cause) => Some(cause),
            Self::NotPermitted | Self::Unsteady | Self::Short { .. } => None,
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
