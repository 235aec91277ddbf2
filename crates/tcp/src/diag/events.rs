//! Sockets that are destroyed, each with its last `tcp_info`: what a connection that lived between two dumps has done.
//!
//! The kernel queues an event for each socket. Where its queue is full the event is lost, and the queue's socket counts
//! it: that count is told with what was read, so that events and losses add up to the sockets that were destroyed.
//! An event has no congestion control's name and no model; the cookie leads to the dump that has them. A socket that
//! was never connected, or that listens, has an event too.
//!
//! **Invariant:** what is not read is told as lost, or read later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv, sockopt};

use super::dump::{SOCK_DIAG_BY_FAMILY, retried};
use super::netlink::{Body, Frames};
use super::{Error, Memory, Socket, open};

/// `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`, 1 and 3, as bits.
const GROUPS: u32 = 1 << 0 | 1 << 2;

/// An event has some hundred bytes; what is longer is told as an error.
const BUFFER_BYTES: usize = 8 << 10;

/// Events that one call reads at most, so that who reads does other things as well.
pub const READ_EVENTS_MAX: u64 = 65_536;

/// Hears of destroyed sockets in one network namespace. Not blocking: [`AsFd`] gives what to wait for.
#[derive(Debug)]
pub struct Events {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    /// The queue's count of lost events when it was read last; none where the kernel does not tell.
    drops: Option<u32>,
}

/// What was read at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// Events told.
    pub events: u64,
    /// Events lost since the last call, counted by the kernel; none on kernels before 4.12, which do not tell.
    pub lost: Option<u64>,
    /// Times that the queue was found to have overflowed: at least one event was lost for each.
    pub overruns: u64,
    /// There may be more to read at once: [`READ_EVENTS_MAX`] was reached.
    pub is_cut: bool,
}

impl Events {
    /// In the namespace of this thread, with a queue of about `queue_bytes`: the kernel counts about 1.3 KB for an event,
    /// and without CAP_NET_ADMIN makes it no larger than `net.core.rmem_max`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no sock_diag; [`Error::Io`] with what the system says.
    pub fn open(queue_bytes: usize) -> Result<Self, Error> {
        Self::on(open::here(GROUPS, SocketFlags::NONBLOCK)?, queue_bytes)
    }

    /// In the network namespace of the file `path`, such as `/run/netns/edge` or `/proc/42/ns/net`.
    ///
    /// # Errors
    /// [`Error::Namespace`] where it cannot be entered, which needs CAP_SYS_ADMIN; otherwise as [`Events::open`].
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

    /// What the queue may hold, as the kernel has it.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system says.
    pub fn queue_bytes(&self) -> Result<usize, Error> {
        sockopt::socket_recv_buffer_size(&self.socket).map_err(open::failed)
    }

    /// Calls `each` with every socket that was destroyed since, in that order, and does not wait for more. Its state is
    /// [`super::State::Close`] as a rule.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Truncated`] or [`Error::Malformed`] where an event cannot be read; the next call goes on
    /// behind it.
    pub fn read(&mut self, mut each: impl FnMut(&Socket)) -> Result<Heard, Error> {
        let mut heard = Heard::default();
        while heard.events < READ_EVENTS_MAX {
            match retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)) {
                Ok((_, length_bytes)) => heard.events += self.tell(length_bytes, &mut each)?,
                Err(Errno::NOBUFS) => heard.overruns += 1,
                Err(Errno::AGAIN) => break,
                Err(other) => return Err(open::failed(other)),
            }
        }
        heard.is_cut = heard.events >= READ_EVENTS_MAX;
        let drops = self.read_drops()?;
        heard.lost = drops.zip(self.drops).map(|(now, before)| now.wrapping_sub(before).into());
        self.drops = drops;
        Ok(heard)
    }

    /// Tells of the events in the first bytes of the buffer; how many there are.
    fn tell(&self, length_bytes: usize, each: &mut impl FnMut(&Socket)) -> Result<u64, Error> {
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

    /// What the kernel counts of events that found no room (`SK_MEMINFO_DROPS`).
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
