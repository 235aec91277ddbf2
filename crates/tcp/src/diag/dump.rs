//! Socket dumps: lists of all TCP sockets in a network namespace. A dump is not an atomic snapshot,
//! because sockets open and close while the kernel walks its hash table.
//!
//! The kernel replies in batches and continues each batch from a position in its table. A socket
//! that moves ahead of that position is reported twice; the repeat has the same cookie and is
//! dropped. A socket that moves behind that position is missed. This is rare, and detected only if
//! the kernel reports it ([`Dumped::is_interrupted`]).
//!
//! **Invariant:** the only memory used per socket is its cookie, stored in a set that is reused
//! between dumps.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send};

use super::netlink::{Body, Frames, HEADER_BYTES, aligned};
use super::{Error, Family, Filter, Socket, open};

/// Size of the receive buffer. The kernel sizes its batches by the largest read so far, up to 32
/// KiB (`netlink_recvmsg` in `net/netlink/af_netlink.c`).
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of reads per dump. Without it, a dump would never end if the table grew faster
/// than it was read.
const READS_MAX: usize = 1 << 20;

/// `SOCK_DIAG_BY_FAMILY`: the message type of requests and replies.
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_FLAGS: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;
/// `INET_DIAG_REQ_BYTECODE`.
const ATTRIBUTE_BYTECODE: u16 = 1;
/// Size of `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, identity.
const REQUEST_BYTES: usize = 56;

/// Optional attributes to report for each socket (`idiag_ext` in the request). The kernel always
/// sends the shutdown state, the mark and the cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extensions(u8);

impl Extensions {
    /// No optional attributes.
    pub const NONE: Self = Self(0);
    /// [`Socket::tcp_info`]: 280 bytes per socket.
    pub const TCP_INFO: Self = Self(1 << 1);
    /// [`Socket::bbr`], for sockets using BBR.
    pub const BBR: Self = Self(1 << 2);
    /// [`Socket::congestion_control`].
    pub const CONGESTION_CONTROL: Self = Self(1 << 3);
    /// [`Socket::tos`].
    pub const TOS: Self = Self(1 << 4);
    /// [`Socket::tclass`] and [`Socket::class_id`].
    pub const TRAFFIC_CLASS: Self = Self(1 << 5);
    /// [`Socket::memory`].
    pub const MEMORY: Self = Self(1 << 6);
    /// [`Socket::shutdown`].
    pub const SHUTDOWN: Self = Self(1 << 7);
    /// All attributes that describe a connection's delivery: `tcp_info`, the congestion control and
    /// BBR's model.
    pub const DELIVERY: Self = Self(Self::TCP_INFO.0 | Self::BBR.0 | Self::CONGESTION_CONTROL.0);
    /// All optional attributes.
    pub const ALL: Self =
        Self(Self::DELIVERY.0 | Self::TOS.0 | Self::TRAFFIC_CLASS.0 | Self::MEMORY.0 | Self::SHUTDOWN.0);

    /// Returns the union of `self` and `other`.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Statistics of a dump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Number of sockets reported, not counting repeats.
    pub sockets: u64,
    /// Number of bytes received from the kernel.
    pub bytes: u64,
    /// Number of repeated sockets dropped.
    pub repeated: u64,
    /// Whether the kernel reported that its table changed during the dump. Sockets may then be
    /// missing.
    pub is_interrupted: bool,
}

/// A sock_diag socket that lists the TCP sockets in one network namespace.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    sequence: u32,
    /// Whether part of the last reply is still unread.
    is_under_way: bool,
    request: Vec<u8>,
    buffer: Box<[u8]>,
    seen: HashSet<u64, BuildHasherDefault<CookieHasher>>,
}

impl Diag {
    /// Opens a sock_diag socket in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if the kernel lacks sock_diag, or [`Error::Io`] if a system
    /// call fails.
    pub fn open() -> Result<Self, Error> {
        Ok(Self::on(open::here(0, SocketFlags::empty())?))
    }

    /// Opens a sock_diag socket in the network namespace given by the file `path`, such as
    /// `/run/netns/edge` or `/proc/42/ns/net`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Namespace`] if the namespace cannot be entered, which needs CAP_SYS_ADMIN,
    /// and otherwise the errors of [`Diag::open`].
    pub fn open_in(path: &Path) -> Result<Self, Error> {
        Ok(Self::on(open::within(path, 0, SocketFlags::empty())?))
    }

    fn on(socket: OwnedFd) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self {
            socket,
            sequence: 0,
            is_under_way: false,
            request: Vec::new(),
            buffer,
            seen: HashSet::default(),
        }
    }

    /// Calls `each` with every socket matching the filter, in the kernel's order: first IPv4, then
    /// IPv6.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if the kernel cannot list TCP sockets, or [`Error::Io`],
    /// [`Error::Truncated`] or [`Error::Malformed`] if a reply cannot be read. Sockets already
    /// passed to `each` are valid.
    pub fn dump(
        &mut self,
        filter: &Filter,
        extensions: Extensions,
        mut each: impl FnMut(&Socket),
    ) -> Result<Dumped, Error> {
        self.dump_with_messages(filter, extensions, |socket, _| each(socket))
    }

    /// Like [`Diag::dump`], but also passes each socket's netlink message, including its header.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Diag::dump`].
    pub fn dump_with_messages(
        &mut self,
        filter: &Filter,
        extensions: Extensions,
        mut each: impl FnMut(&Socket, &[u8]),
    ) -> Result<Dumped, Error> {
        let bytecode = filter.bytecode();
        let mut dumped = Dumped::default();
        self.seen.clear();
        if std::mem::take(&mut self.is_under_way) {
            self.drain();
        }
        for family in [Family::Ipv4, Family::Ipv6] {
            self.sequence = self.sequence.wrapping_add(1);
            self.write_request(family, filter.states.bits(), extensions, &bytecode);
            retried(|| send(&self.socket, &self.request, SendFlags::empty())).map_err(open::failed)?;
            self.is_under_way = true;
            self.read_reply(&mut dumped, &mut each)?;
            self.is_under_way = false;
        }
        Ok(dumped)
    }

    /// Builds the request for one address family: `struct nlmsghdr`, `struct inet_diag_req_v2`, and
    /// the bytecode as an attribute.
    fn write_request(&mut self, family: Family, states: u32, extensions: Extensions, bytecode: &[u8]) {
        let request = &mut self.request;
        request.clear();
        request.resize(HEADER_BYTES + REQUEST_BYTES, 0);
        request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request[6..8].copy_from_slice(&REQUEST_FLAGS.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[16..19].copy_from_slice(&[family.number(), IPPROTO_TCP, extensions.0]);
        request[20..24].copy_from_slice(&states.to_ne_bytes());
        if !bytecode.is_empty() {
            let length = u16::try_from(4 + bytecode.len()).expect("a program has fewer than 65,532 bytes");
            request.extend(length.to_ne_bytes());
            request.extend(ATTRIBUTE_BYTECODE.to_ne_bytes());
            request.extend(bytecode);
        }
        debug_assert_eq!(request.len(), aligned(request.len()));
        let length = u32::try_from(request.len()).expect("a request is at most about 64 KiB");
        request[..4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Reads and discards the rest of an unfinished dump, which remains if that dump failed or its
    /// `each` panicked. Until then, the kernel accepts no new request. Does not block, because the
    /// kernel builds each batch on demand.
    fn drain(&mut self) {
        for _ in 0..READS_MAX {
            if retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT)).is_err() {
                return;
            }
        }
    }

    fn read_reply(
        &mut self,
        dumped: &mut Dumped,
        each: &mut impl FnMut(&Socket, &[u8]),
    ) -> Result<(), Error> {
        for _ in 0..READS_MAX {
            // With TRUNC, `recv` returns the full length even if the reply exceeds the buffer.
            let (_, length_bytes) = retried(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC))
                .map_err(open::failed)?;
            let buffer_bytes = self.buffer.len();
            let bytes =
                self.buffer.get(..length_bytes).ok_or(Error::Truncated { length_bytes, buffer_bytes })?;
            dumped.bytes += bytes.len() as u64;
            for frame in Frames::new(bytes) {
                let frame = frame?;
                if frame.sequence != self.sequence {
                    continue;
                }
                dumped.is_interrupted |= frame.is_interrupted;
                match frame.body {
                    Body::Done => return Ok(()),
                    Body::Failed(number) => return Err(open::failed(Errno::from_raw_os_error(number))),
                    Body::Message { kind: SOCK_DIAG_BY_FAMILY, payload } => {
                        let socket = Socket::decode(payload)?;
                        if self.seen.insert(socket.cookie) {
                            dumped.sockets += 1;
                            each(&socket, frame.bytes);
                        } else {
                            dumped.repeated += 1;
                        }
                    }
                    Body::Message { .. } => {}
                }
            }
        }
        Err(Error::Io(std::io::Error::other(format!("dump did not end within {READS_MAX} reads"))))
    }
}

/// Repeats a system call until no signal interrupts it.
pub(crate) fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Hasher for cookies. One multiplication suffices, because the kernel assigns cookies
/// sequentially.
#[derive(Debug, Default)]
struct CookieHasher(u64);

impl Hasher for CookieHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("cookies are hashed with write_u64");
    }

    fn write_u64(&mut self, cookie: u64) {
        // Fibonacci hashing with the 64-bit golden ratio. `HashSet` uses the highest and the lowest
        // bits, so the high half is also mixed into the low half.
        let spread = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}
