//! The kernel's routes, read and changed by rtnetlink, in the network namespace of this thread.
//!
//! Anyone may read them; to change them needs CAP_NET_ADMIN.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use super::message::{MESSAGE_BYTES, RTM_GETROUTE, RTM_NEWROUTE, header, with_length};
use super::plan::Change;
use super::{Error, Route};
use crate::diag::dump::retried;
use crate::diag::netlink::{Body, Frame, Frames, HEADER_BYTES, split_attribute};
use crate::sockopt;

/// What an answer may have at once: the kernel makes parts of a dump of 32 KiB at most.
const BUFFER_BYTES: usize = 64 << 10;
/// How often an answer is read at most: some hundred routes come with each.
const READS_MAX: usize = 1 << 20;
/// How often a table is read anew that changed while it was read.
const DUMPS_MAX: usize = 5;

/// `NLM_F_REQUEST`.
const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`.
const ACK: u16 = 0x4;
/// `NLM_F_DUMP`.
const DUMP: u16 = 0x300;
/// `NLM_F_REPLACE`.
const REPLACE: u16 = 0x100;
/// `NLM_F_EXCL`.
const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`.
const CREATE: u16 = 0x400;
/// `NLMSGERR_ATTR_MSG`.
const ATTRIBUTE_SAID: u16 = 1;

/// Asks the kernel for its routes, and changes them.
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// What came of changes.
#[derive(Debug, Default)]
pub struct Changed {
    /// Those that were made. Where a replacement was refused, the removal of what there was.
    pub made: Vec<Change>,
    /// Those that the kernel refused.
    pub refused: Vec<Refused>,
}

/// A change that the kernel refused; its text is why.
#[derive(Debug)]
pub struct Refused {
    /// What was to be.
    pub change: Change,
    /// The error number.
    pub cause: io::Error,
    /// The kernel's own words, where it has any.
    pub said: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.as_ref().map_or(Ok(()), |said| write!(f, "{said}: "))?;
        write!(f, "{}", self.cause)
    }
}

/// A socket of rtnetlink that hears the multicast groups of `groups`, a bit for each.
pub(super) fn open(groups: u32, flags: SocketFlags) -> Result<OwnedFd, Error> {
    let flags = flags | SocketFlags::CLOEXEC;
    // Without a protocol it is NETLINK_ROUTE, which has the number 0.
    let opened = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
    let socket = opened.map_err(failed)?;
    // The kernel chooses a port: there may be several in one process.
    bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed)?;
    Ok(socket)
}

pub(super) fn failed(errno: Errno) -> Error {
    Error::Io(errno.into())
}

impl Routes {
    /// Those of the network namespace of this thread.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system says.
    pub fn open() -> Result<Self, Error> {
        let socket = open(0, SocketFlags::empty())?;
        // The kernel's words on what it refuses, and of the request only its header (Linux 4.12).
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let set = sockopt::set(socket.as_fd(), (libc::SOL_NETLINK, option), &1i32.to_ne_bytes());
            set.map_err(Error::Io)?;
        }
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// The routes, of all tables and both families, that `keep` holds for.
    ///
    /// # Errors
    /// Where the kernel does not answer, or its answer is not understood.
    pub fn dump(&mut self, keep: impl Fn(&Route) -> bool) -> Result<Vec<Route>, Error> {
        for _ in 0..DUMPS_MAX {
            let mut request = header(RTM_GETROUTE, REQUEST | DUMP, self.next_sequence());
            request.resize(HEADER_BYTES + MESSAGE_BYTES, 0); // of any family
            let (mut routes, mut is_interrupted) = (Vec::new(), false);
            self.ask(&with_length(request), |frame| {
                is_interrupted |= frame.is_interrupted;
                if let Body::Message { kind: RTM_NEWROUTE, payload } = frame.body {
                    routes.extend(Route::decode(payload)?.filter(&keep));
                }
                Ok(())
            })?
            .map_err(|refusal| Error::Io(refusal.cause))?;
            if !is_interrupted {
                return Ok(routes);
            }
        }
        Err(Error::Unsteady)
    }

    /// Makes the changes in their order; what the kernel refuses keeps nothing else from being made. A route that cannot be replaced
    /// is removed: it has an algorithm, or goes by a path, that is not the prefix's any more.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; where the kernel does not answer.
    pub fn change(&mut self, changes: Vec<Change>) -> Result<Changed, Error> {
        let (mut changed, mut rest) = (Changed::default(), changes);
        rest.reverse();
        while let Some(change) = rest.pop() {
            let Err(Refusal { cause, said }) = self.make(&change)? else {
                changed.made.push(change);
                continue;
            };
            if let Change::Replace { old, .. } = &change {
                rest.push(Change::Remove(old.clone()));
            }
            changed.refused.push(Refused { change, cause, said });
        }
        Ok(changed)
    }

    fn make(&mut self, change: &Change) -> Result<Result<(), Refusal>, Error> {
        let sequence = self.next_sequence();
        let request = match change {
            Change::Add(new) => new.to_be_set(REQUEST | ACK | CREATE | EXCLUSIVE, sequence),
            Change::Replace { new, .. } => new.to_be_set(REQUEST | ACK | CREATE | REPLACE, sequence),
            Change::Remove(old) => old.to_be_removed(REQUEST | ACK, sequence),
        };
        let Err(refusal) = self.ask(&request, |_| Ok(()))? else { return Ok(Ok(())) };
        match Errno::from_io_error(&refusal.cause) {
            Some(Errno::PERM) => Err(Error::NotPermitted),
            // It has gone by itself, as with its interface.
            Some(Errno::SRCH) if matches!(change, Change::Remove(_)) => Ok(Ok(())),
            _ => Ok(Err(refusal)),
        }
    }

    /// The name of an interface; its number where it has gone.
    pub fn interface(&self, index: u32) -> String {
        index_to_name(&self.socket, index).unwrap_or_else(|_| format!("if{index}"))
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a request and calls `each` with each message of the answer; or what the kernel has against it.
    fn ask(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(&Frame<'_>) -> Result<(), Error>,
    ) -> Result<Result<(), Refusal>, Error> {
        retried(|| send(&self.socket, request, SendFlags::empty())).map_err(failed)?;
        for _ in 0..READS_MAX {
            // With TRUNC the kernel tells the length that there was.
            let received = retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC));
            let (_, length_bytes) = received.map_err(failed)?;
            let bytes = self.buffer.get(..length_bytes).ok_or_else(|| {
                Error::Io(io::Error::other(format!("an answer of {length_bytes} bytes does not fit")))
            })?;
            for frame in Frames::new(bytes) {
                let frame = frame?;
                if frame.sequence != self.sequence {
                    continue;
                }
                each(&frame)?;
                match frame.body {
                    Body::Done => return Ok(Ok(())),
                    Body::Failed(number) => return Ok(Err(Refusal::of(number, frame.bytes))),
                    Body::Message { .. } => {}
                }
            }
        }
        Err(Error::Io(io::Error::other(format!("the answer did not end within {READS_MAX} reads"))))
    }
}

/// What the kernel has against a request.
struct Refusal {
    cause: io::Error,
    said: Option<String>,
}

impl Refusal {
    /// `struct nlmsgerr`: the error number, the header of the request, and then attributes.
    fn of(number: i32, message: &[u8]) -> Self {
        let mut rest = message.get(HEADER_BYTES + 4 + HEADER_BYTES..).unwrap_or_default();
        let mut said = None;
        while let Ok((kind, value, after)) = split_attribute(rest) {
            if kind == ATTRIBUTE_SAID {
                let text = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value));
                said = Some(text.trim_end_matches('.').to_owned());
            }
            rest = after;
        }
        Self { cause: io::Error::from_raw_os_error(number), said }
    }
}
