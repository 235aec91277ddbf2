//! Hears that routes, interfaces or their addresses have changed.
//!
//! All three: the IPv4 routes of an interface that goes down, or of an address that is removed, go without a word of them.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv};

use super::kernel::{failed, open};
use super::message::{RTM_DELROUTE, RTM_NEWROUTE};
use super::{Error, Route};
use crate::diag::dump::retried;
use crate::diag::netlink::{Body, Frames};

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_IFADDR` and `RTNLGRP_IPV6_ROUTE`: 1, 5, 7, 9 and 11,
/// as bits.
const GROUPS: u32 = 1 << 0 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;
const BUFFER_BYTES: usize = 64 << 10;
/// Messages that one call reads at most.
const READS_MAX: usize = 1 << 16;

/// Hears of changes in the network namespace of the thread that made it, from then on. Needs no rights.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Watch {
    /// From now on.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system says.
    pub fn open() -> Result<Self, Error> {
        let socket = open(GROUPS, SocketFlags::NONBLOCK)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// Whether an interface, an address, or a route that `concerns` holds for, has changed since the last call. Does not wait. Where the kernel
    /// could not tell all, something may have.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system says.
    pub fn has_changed(&mut self, concerns: impl Fn(&Route) -> bool) -> Result<bool, Error> {
        let mut has_changed = false;
        for _ in 0..READS_MAX {
            match retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)) {
                Ok((_, length_bytes)) => {
                    let bytes = self.buffer.get(..length_bytes);
                    has_changed |= bytes.is_none_or(|bytes| tells_of_change(bytes, &concerns));
                }
                Err(Errno::NOBUFS) => has_changed = true,
                Err(Errno::AGAIN) => break,
                Err(other) => return Err(failed(other)),
            }
        }
        Ok(has_changed)
    }
}

fn tells_of_change(bytes: &[u8], concerns: impl Fn(&Route) -> bool) -> bool {
    Frames::new(bytes).any(|frame| match frame.map(|frame| frame.body) {
        Ok(Body::Message { kind: RTM_NEWROUTE | RTM_DELROUTE, payload }) => {
            Route::decode(payload).map_or(true, |route| route.is_some_and(|route| concerns(&route)))
        }
        _ => true,
    })
}
