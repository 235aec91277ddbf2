//! rtnetlink client: reads and changes the kernel's routes in this thread's network namespace.
//!
//! Reading routes needs no privileges. Changing them needs CAP_NET_ADMIN.

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

/// Size of the receive buffer. The kernel sends dumps in batches of at most 32 KiB.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of reads per reply. Each read returns a few hundred routes.
const READS_MAX: usize = 1 << 20;
/// Maximum number of dump attempts while the routing table keeps changing.
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
const ATTRIBUTE_MESSAGE: u16 = 1;

/// An rtnetlink socket that reads and changes the kernel's routes.
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// The result of applying a list of changes.
#[derive(Debug, Default)]
pub struct Changed {
    /// Changes applied. If a replacement was refused, the removal of its old route is listed here.
    pub made: Vec<Change>,
    /// Changes refused by the kernel.
    pub refused: Vec<Refused>,
}

/// A change refused by the kernel. Its `Display` prints the reason.
#[derive(Debug)]
pub struct Refused {
    /// The attempted change.
    pub change: Change,
    /// The kernel's error.
    pub cause: io::Error,
    /// The kernel's explanation, if any.
    pub explanation: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explanation.as_ref().map_or(Ok(()), |explanation| write!(f, "{explanation}: "))?;
        write!(f, "{}", self.cause)
    }
}

/// Opens an rtnetlink socket subscribed to the multicast groups in the bit mask `groups`.
pub(super) fn open(groups: u32, flags: SocketFlags) -> Result<OwnedFd, Error> {
    let flags = flags | SocketFlags::CLOEXEC;
    // Without a protocol argument, this opens NETLINK_ROUTE, which is protocol 0.
    let opened = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
    let socket = opened.map_err(failed("open a route socket"))?;
    // The kernel chooses the port ID, because a process may open several such sockets.
    bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed("subscribe to route changes"))?;
    Ok(socket)
}

/// Returns a function that converts the errors of `operation`.
pub(super) fn failed<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> Error {
    move |cause| Error::Io { operation, cause: cause.into() }
}

impl Routes {
    /// Opens an rtnetlink socket in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = open(0, SocketFlags::empty())?;
        // Ask the kernel to explain refusals and to echo only the request's header (since Linux
        // 4.12).
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let set = sockopt::set(socket.as_fd(), (libc::SOL_NETLINK, option), &1i32.to_ne_bytes());
            set.map_err(failed("set the options of the route socket"))?;
        }
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// Returns the routes accepted by `keep`, from all tables and both address families.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not reply, its reply is malformed, or the table keeps
    /// changing.
    pub fn dump(&mut self, keep: impl Fn(&Route) -> bool) -> Result<Vec<Route>, Error> {
        for _ in 0..DUMPS_MAX {
            let mut request = header(RTM_GETROUTE, REQUEST | DUMP, self.next_sequence());
            request.resize(HEADER_BYTES + MESSAGE_BYTES, 0); // any address family
            let (mut routes, mut is_interrupted) = (Vec::new(), false);
            self.request(&with_length(request), |frame| {
                is_interrupted |= frame.is_interrupted;
                if let Body::Message { kind: RTM_NEWROUTE, payload } = frame.body {
                    routes.extend(Route::decode(payload)?.filter(&keep));
                }
                Ok(())
            })?
            .map_err(|refusal| failed("read the kernel's routes")(refusal.cause))?;
            if !is_interrupted {
                return Ok(routes);
            }
        }
        Err(Error::Unsteady)
    }

    /// Applies the changes in order and continues after a refusal. If the kernel refuses to replace
    /// a route, the old route is removed, because its algorithm or path is outdated.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPermitted`] without CAP_NET_ADMIN, or another error if the kernel does
    /// not reply.
    pub fn change(&mut self, changes: Vec<Change>) -> Result<Changed, Error> {
        let (mut changed, mut rest) = (Changed::default(), changes);
        rest.reverse();
        while let Some(change) = rest.pop() {
            let Err(Refusal { cause, explanation }) = self.apply(&change)? else {
                changed.made.push(change);
                continue;
            };
            if let Change::Replace { old, .. } = &change {
                rest.push(Change::Remove(old.clone()));
            }
            changed.refused.push(Refused { change, cause, explanation });
        }
        Ok(changed)
    }

    fn apply(&mut self, change: &Change) -> Result<Result<(), Refusal>, Error> {
        let sequence = self.next_sequence();
        let request = match change {
            Change::Add(new) => new.set_message(REQUEST | ACK | CREATE | EXCLUSIVE, sequence),
            Change::Replace { new, .. } => new.set_message(REQUEST | ACK | CREATE | REPLACE, sequence),
            Change::Remove(old) => old.remove_message(REQUEST | ACK, sequence),
        };
        let Err(refusal) = self.request(&request, |_| Ok(()))? else { return Ok(Ok(())) };
        match Errno::from_io_error(&refusal.cause) {
            Some(Errno::PERM) => Err(Error::NotPermitted),
            // The route is already gone, for example because its interface was removed.
            Some(Errno::SRCH) if matches!(change, Change::Remove(_)) => Ok(Ok(())),
            _ => Ok(Err(refusal)),
        }
    }

    /// Returns an interface's name, or `if` followed by its index if the interface does not exist.
    pub fn interface(&self, index: u32) -> String {
        index_to_name(&self.socket, index).unwrap_or_else(|_| format!("if{index}"))
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a request and calls `each` with every message of the reply. The inner error is the
    /// kernel's refusal of the request.
    fn request(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(&Frame<'_>) -> Result<(), Error>,
    ) -> Result<Result<(), Refusal>, Error> {
        retried(|| send(&self.socket, request, SendFlags::empty()))
            .map_err(failed("send a route request to the kernel"))?;
        for _ in 0..READS_MAX {
            // With TRUNC, `recv` returns the full length even if the reply exceeds the buffer.
            let received = retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC));
            let (_, length_bytes) = received.map_err(failed("receive the kernel's reply about routes"))?;
            let buffer_bytes = self.buffer.len();
            let bytes =
                self.buffer.get(..length_bytes).ok_or(Error::Truncated { length_bytes, buffer_bytes })?;
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
        Err(Error::Endless { reads: READS_MAX })
    }
}

/// The kernel's reason for refusing a request.
struct Refusal {
    cause: io::Error,
    explanation: Option<String>,
}

impl Refusal {
    /// Decodes `struct nlmsgerr`: the error number, the request's header, then attributes.
    fn of(number: i32, message: &[u8]) -> Self {
        let mut rest = message.get(HEADER_BYTES + 4 + HEADER_BYTES..).unwrap_or_default();
        let mut explanation = None;
        while let Ok((kind, value, after)) = split_attribute(rest) {
            if kind == ATTRIBUTE_MESSAGE {
                let text = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value));
                explanation = Some(text.trim_end_matches('.').to_owned());
            }
            rest = after;
        }
        Self { cause: io::Error::from_raw_os_error(number), explanation }
    }
}
