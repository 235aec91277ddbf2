//! Change detection for routes, interfaces and addresses.
//!
//! All three are needed because the kernel removes IPv4 routes without a route event when an
//! interface goes down or an address is removed.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv};

use super::kernel::{failed, open};
use super::message::{RTM_DELROUTE, RTM_NEWROUTE};
use super::{Error, Route};
use crate::diag::dump::retried;
use crate::diag::netlink::{Body, Frames};

/// Bit mask of `RTNLGRP_LINK` (1), `RTNLGRP_IPV4_IFADDR` (5), `RTNLGRP_IPV4_ROUTE` (7),
/// `RTNLGRP_IPV6_IFADDR` (9) and `RTNLGRP_IPV6_ROUTE` (11).
const GROUPS: u32 = 1 << 0 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of reads per call.
const READS_MAX: usize = 1 << 16;

/// A subscription to changes in one network namespace. Needs no privileges.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Watch {
    /// Subscribes to changes in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = open(GROUPS, SocketFlags::NONBLOCK)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// Returns whether an interface, an address, or a route accepted by `concerns` has changed
    /// since the last call. Also returns true if the kernel dropped events. Does not block.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if a system call fails.
    pub fn has_changed(&mut self, concerns: impl Fn(&Route) -> bool) -> Result<bool, Error> {
        let mut has_changed = false;
        for _ in 0..READS_MAX {
            match retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)) {
                Ok((_, length_bytes)) => {
                    let bytes = self.buffer.get(..length_bytes);
                    has_changed |= bytes.is_none_or(|bytes| reports_change(bytes, &concerns));
                }
                Err(Errno::NOBUFS) => has_changed = true,
                Err(Errno::AGAIN) => break,
                Err(other) => return Err(failed("receive route changes")(other)),
            }
        }
        Ok(has_changed)
    }
}

fn reports_change(bytes: &[u8], concerns: impl Fn(&Route) -> bool) -> bool {
    Frames::new(bytes).any(|frame| match frame.map(|frame| frame.body) {
        Ok(Body::Message { kind: RTM_NEWROUTE | RTM_DELROUTE, payload }) => {
            Route::decode(payload).map_or(true, |route| route.is_some_and(|route| concerns(&route)))
        }
        _ => true,
    })
}
