//! Destroy events: one per destroyed socket, with its final `tcp_info`. They cover connections that
//! open and close between two dumps.
//!
//! The kernel queues one event per destroyed socket. If the queue is full, the event is lost and
//! the netlink socket counts it. [`Events::read`] returns this count, so events and losses add up
//! to the number of sockets destroyed. An event lacks the congestion control's name and model; a
//! dump of the same socket has both, under the same cookie. Listening sockets and sockets that were
//! never connected produce events too.
//!
//! **Invariant:** every event is reported, counted as lost, or still queued.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv, sockopt};

use super::dump::{SOCK_DIAG_BY_FAMILY, retried};
use super::netlink::{Body, Frames};
use super::{Error, Memory, Socket, open};

/// Bit mask of `SKNLGRP_INET_TCP_DESTROY` (1) and `SKNLGRP_INET6_TCP_DESTROY` (3).
const GROUPS: u32 = 1 << 0 | 1 << 2;

/// Size of the receive buffer. Events have a few hundred bytes; an event larger than the buffer is
/// an error.
const BUFFER_BYTES: usize = 8 << 10;

/// Maximum number of events read per call, so that the caller can do other work between calls.
pub const READ_EVENTS_MAX: u64 = 65_536;

/// A subscription to a network namespace's destroy events. Reads do not block: poll the descriptor
/// returned by [`AsFd`].
#[derive(Debug)]
pub struct Events {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    /// The kernel's count of lost events at the last read, or `None` if the kernel does not report
    /// it.
    drops: Option<u32>,
}

/// Statistics of one [`Events::read`] call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventsRead {
    /// Number of events reported.
    pub events: u64,
    /// Number of events lost since the last call, as counted by the kernel. `None` before Linux
    /// 4.12, where the kernel does not report it.
    pub lost: Option<u64>,
    /// Number of queue overflows reported. Each overflow loses at least one event.
    pub overruns: u64,
    /// Whether the call stopped at [`READ_EVENTS_MAX`], so that more events may be ready.
    pub is_cut: bool,
}

impl Events {
    /// Subscribes in this thread's network namespace, with an event queue of about `queue_bytes`.
    /// An event takes about 1.3 kB of the queue. Without CAP_NET_ADMIN, the kernel limits the queue
    /// to `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if the kernel lacks sock_diag, or [`Error::Io`] if a system
    /// call fails.
    pub fn open(queue_bytes: usize) -> Result<Self, Error> {
        Self::on(open::here(GROUPS, SocketFlags::NONBLOCK)?, queue_bytes)
    }

    /// Subscribes in the network namespace given by the file `path`, such as `/run/netns/edge` or
    /// `/proc/42/ns/net`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Namespace`] if the namespace cannot be entered, which needs CAP_SYS_ADMIN,
    /// and otherwise the errors of [`Events::open`].
    pub fn open_in(path: &Path, queue_bytes: usize) -> Result<Self, Error> {
        Self::on(open::within(path, GROUPS, SocketFlags::NONBLOCK)?, queue_bytes)
    }

    fn on(socket: OwnedFd, queue_bytes: usize) -> Result<Self, Error> {
        match sockopt::set_socket_recv_buffer_size_force(&socket, queue_bytes) {
            Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(&socket, queue_bytes),
            other => other,
        }
        .map_err(open::failed)?;
        let mut events = Self { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), drops: None };
        events.drops = events.read_drops()?;
        Ok(events)
    }

    /// Reads the actual queue size from the kernel, in bytes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the system call fails.
    pub fn queue_bytes(&self) -> Result<usize, Error> {
        sockopt::socket_recv_buffer_size(&self.socket).map_err(open::failed)
    }

    /// Calls `each` with every socket destroyed since the last call, in order. Does not block. The
    /// sockets are usually in state [`super::State::Close`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`], [`Error::Truncated`] or [`Error::Malformed`] if an event cannot be
    /// read. The next call continues with the following event.
    pub fn read(&mut self, mut each: impl FnMut(&Socket)) -> Result<EventsRead, Error> {
        let mut statistics = EventsRead::default();
        while statistics.events < READ_EVENTS_MAX {
            match retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)) {
                Ok((_, length_bytes)) => statistics.events += self.decode_events(length_bytes, &mut each)?,
                Err(Errno::NOBUFS) => statistics.overruns += 1,
                Err(Errno::AGAIN) => break,
                Err(other) => return Err(open::failed(other)),
            }
        }
        statistics.is_cut = statistics.events >= READ_EVENTS_MAX;
        let drops = self.read_drops()?;
        statistics.lost = drops.zip(self.drops).map(|(now, before)| now.wrapping_sub(before).into());
        self.drops = drops;
        Ok(statistics)
    }

    /// Decodes the events in the first `length_bytes` of the buffer and returns their number.
    fn decode_events(&self, length_bytes: usize, each: &mut impl FnMut(&Socket)) -> Result<u64, Error> {
        let buffer_bytes = self.buffer.len();
        let bytes = self.buffer.get(..length_bytes).ok_or(Error::Truncated { length_bytes, buffer_bytes })?;
        let mut events = 0;
        for frame in Frames::new(bytes) {
            if let Body::Message { kind: SOCK_DIAG_BY_FAMILY, payload } = frame?.body {
                each(&Socket::decode(payload)?);
                events += 1;
            }
        }
        Ok(events)
    }

    /// Reads the kernel's count of events lost because the queue was full (`SK_MEMINFO_DROPS`).
    fn read_drops(&self) -> Result<Option<u32>, Error> {
        let mut buffer = [0; 64];
        match crate::sockopt::get(self.socket.as_fd(), (libc::SOL_SOCKET, libc::SO_MEMINFO), &mut buffer) {
            Ok(answer) => Ok(Memory::decode(answer).and_then(|memory| memory.drops)),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            Err(error) => Err(Error::Io(error)),
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
