//! Decoder for sock_diag replies: `struct inet_diag_msg` and its attributes
//! (`include/uapi/linux/inet_diag.h`).
//!
//! Numbers are in native byte order, ports and addresses in network byte order. Unknown attributes
//! are skipped. A known attribute that is too short is an error. A longer one comes from a newer
//! kernel, and only its known part is decoded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::netlink::{split_attribute, u32_at, u64_at};
use super::{Malformed, State};
use crate::{CongestionControl, TcpInfo};

/// Size of `struct inet_diag_msg`.
pub const MESSAGE_BYTES: usize = 72;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Attribute types, `INET_DIAG_*`.
mod kind {
    pub(super) const INFO: u16 = 2;
    pub(super) const CONG: u16 = 4;
    pub(super) const TOS: u16 = 5;
    pub(super) const TCLASS: u16 = 6;
    pub(super) const SKMEMINFO: u16 = 7;
    pub(super) const SHUTDOWN: u16 = 8;
    pub(super) const SKV6ONLY: u16 = 11;
    pub(super) const MARK: u16 = 15;
    pub(super) const BBRINFO: u16 = 16;
    pub(super) const CLASS_ID: u16 = 17;
    pub(super) const CGROUP_ID: u16 = 21;
}

/// A TCP socket as reported by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's ID for the socket, unique until reboot.
    pub cookie: u64,
    /// Address family. An IPv6 socket may carry IPv4, with addresses `::ffff:a.b.c.d`.
    pub family: Family,
    /// TCP state.
    pub state: State,
    /// Local address, possibly IPv4-mapped.
    pub local: SocketAddr,
    /// Remote address, possibly IPv4-mapped. Unspecified with port 0 if the socket is not
    /// connected.
    pub remote: SocketAddr,
    /// Index of the network interface to which the socket is bound, or 0 if it is not bound.
    pub interface: u32,
    /// The running timer.
    pub timer: Timer,
    /// Consecutive retransmissions, probes or keepalives without a reply, depending on the running
    /// timer.
    pub retransmits: u8,
    /// `idiag_rqueue`; see [`Socket::queues`].
    pub rqueue: u32,
    /// `idiag_wqueue`; see [`Socket::queues`].
    pub wqueue: u32,
    /// Owner's user ID.
    pub uid: u32,
    /// Inode number in sockfs, or 0 if no process has the socket open.
    pub inode: u32,
    /// Value of `SO_MARK`, reported only to processes with CAP_NET_ADMIN.
    pub mark: Option<u32>,
    /// ID of the cgroup v2 in which the socket was created (since Linux 5.8).
    pub cgroup_id: Option<u64>,
    /// Traffic class for queueing: the class ID of the socket's cgroup v1, or the socket's priority
    /// (`SO_PRIORITY`) if that cgroup has no class ID.
    pub class_id: Option<u32>,
    /// IPv4 type of service.
    pub tos: Option<u8>,
    /// IPv6 traffic class.
    pub tclass: Option<u8>,
    /// Whether the socket accepts only IPv6.
    pub is_v6_only: Option<bool>,
    /// Directions that are shut down: 0 none, 1 receiving, 2 sending, 3 both.
    pub shutdown: Option<u8>,
    /// Congestion control algorithm.
    pub congestion_control: Option<CongestionControl>,
    /// The socket's `tcp_info`; `None` in TIME-WAIT.
    pub tcp_info: Option<TcpInfo>,
    /// BBR's model of the path, if BBR is in use.
    pub bbr: Option<Bbr>,
    /// Memory used by the socket's buffers.
    pub memory: Option<Memory>,
}

/// The content of a socket's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    /// Of a connection.
    Bytes {
        /// Bytes received but not yet read.
        received: u32,
        /// Bytes not yet acknowledged, including bytes not yet sent.
        sent: u32,
    },
    /// Of a listening socket.
    Connections {
        /// Connections waiting to be accepted.
        waiting: u32,
        /// Maximum number of connections waiting to be accepted: the backlog.
        max: u32,
    },
}

/// A socket's address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `AF_INET`.
    Ipv4,
    /// `AF_INET6`.
    Ipv6,
}

impl Family {
    /// Returns the kernel's number for the family.
    pub fn number(self) -> u8 {
        match self {
            Self::Ipv4 => AF_INET,
            Self::Ipv6 => AF_INET6,
        }
    }
}

/// A socket's running timer (`idiag_timer`) and the time until it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The timer's purpose.
    pub kind: TimerKind,
    /// Time from the dump until the timer expires. 0 if no timer is running or the timer has
    /// expired.
    pub expires_ms: u32,
}

/// The purpose of a socket's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerKind {
    /// No timer is running.
    Off,
    /// A retransmission, a tail loss probe, or a reordering timeout.
    Retransmit,
    /// Keepalive, or another use of the keepalive timer.
    Keepalive,
    /// The end of TIME-WAIT.
    TimeWait,
    /// A zero-window probe.
    Probe,
    /// A timer kind unknown to this program.
    Other(u8),
}

impl TimerKind {
    fn from_kernel(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Retransmit,
            2 => Self::Keepalive,
            3 => Self::TimeWait,
            4 => Self::Probe,
            other => Self::Other(other),
        }
    }
}

/// `struct tcp_bbr_info`: BBR's model of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Bbr {
    /// Maximum delivery rate over the last ten round trips.
    pub bw_bytes_per_s: u64,
    /// Minimum round-trip time over the last ten seconds.
    pub min_rtt_us: u32,
    /// Pacing rate as a multiple of the bandwidth, in units of 1/256.
    pub pacing_gain_per_256: u32,
    /// Congestion window as a multiple of the bandwidth-delay product, in units of 1/256.
    pub cwnd_gain_per_256: u32,
}

impl Bbr {
    /// Size of the mainline kernel's `tcp_bbr_info`. Variants append further fields.
    const BYTES_MIN: usize = 20;

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (low, high) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
        Some(Self {
            bw_bytes_per_s: u64::from(high) << 32 | u64::from(low),
            min_rtt_us: u32_at(bytes, 8)?,
            pacing_gain_per_256: u32_at(bytes, 12)?,
            cwnd_gain_per_256: u32_at(bytes, 16)?,
        })
    }
}

/// A socket's memory use: `SK_MEMINFO_*` in `include/uapi/linux/sock_diag.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// Receive buffer memory used by data not yet read.
    pub rmem_alloc_bytes: u32,
    /// Receive buffer limit (`SO_RCVBUF`).
    pub rcvbuf_bytes: u32,
    /// Memory of packets passed to lower layers but not yet sent.
    pub wmem_alloc_bytes: u32,
    /// Send buffer limit (`SO_SNDBUF`).
    pub sndbuf_bytes: u32,
    /// Memory reserved for the socket but unused.
    pub fwd_alloc_bytes: u32,
    /// Memory used by the send queue.
    pub wmem_queued_bytes: u32,
    /// Memory used by socket options and filters.
    pub optmem_bytes: u32,
    /// Memory used by TCP segments that arrived while a process held the socket lock.
    pub backlog_bytes: u32,
    /// Number of TCP segments dropped by the socket (since Linux 4.7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<u32>,
}

impl Memory {
    /// Minimum size, as sent by Linux 3.15: all fields except `drops`, which was added later.
    const BYTES_MIN: usize = 32;

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            rmem_alloc_bytes: u32_at(bytes, 0)?,
            rcvbuf_bytes: u32_at(bytes, 4)?,
            wmem_alloc_bytes: u32_at(bytes, 8)?,
            sndbuf_bytes: u32_at(bytes, 12)?,
            fwd_alloc_bytes: u32_at(bytes, 16)?,
            wmem_queued_bytes: u32_at(bytes, 20)?,
            optmem_bytes: u32_at(bytes, 24)?,
            backlog_bytes: u32_at(bytes, 28)?,
            drops: u32_at(bytes, 32),
        })
    }
}

impl Socket {
    /// Decodes a netlink message's payload.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is truncated, an attribute is too short, or the family or
    /// state is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (message, attributes) =
            bytes.split_first_chunk().ok_or(Malformed::MessageShort { bytes: bytes.len() })?;
        let mut socket = Self::decode_fixed(message)?;
        let mut rest = attributes;
        while !rest.is_empty() {
            let (kind, value, after) = split_attribute(rest)?;
            socket.apply_attribute(kind, value)?;
            rest = after;
        }
        Ok(socket)
    }

    /// Returns the content of the socket's queues: bytes or, for a listening socket, connections.
    pub fn queues(&self) -> Queues {
        let (rqueue, wqueue) = (self.rqueue, self.wqueue);
        match self.state {
            State::Listen => Queues::Connections { waiting: rqueue, max: wqueue },
            _ => Queues::Bytes { received: rqueue, sent: wqueue },
        }
    }

    /// Returns the local address, converted to IPv4 if it is IPv4-mapped.
    pub fn local_unmapped(&self) -> SocketAddr {
        unmapped(self.local)
    }

    /// Returns the remote address, converted to IPv4 if it is IPv4-mapped.
    pub fn remote_unmapped(&self) -> SocketAddr {
        unmapped(self.remote)
    }

    fn decode_fixed(message: &[u8; MESSAGE_BYTES]) -> Result<Self, Malformed> {
        let short = Malformed::MessageShort { bytes: MESSAGE_BYTES };
        let u32_of = |offset| u32_at(message, offset).ok_or(short);
        let [family, state, timer, retransmits, ..] = *message;
        let family = match family {
            AF_INET => Family::Ipv4,
            AF_INET6 => Family::Ipv6,
            other => return Err(Malformed::Family(other)),
        };
        let interface = u32_of(40)?;
        Ok(Self {
            cookie: u64::from(u32_of(48)?) << 32 | u64::from(u32_of(44)?),
            family,
            state: State::from_kernel(state).ok_or(Malformed::State(state))?,
            local: address(family, message, (8, 4), interface).ok_or(short)?,
            remote: address(family, message, (24, 6), interface).ok_or(short)?,
            interface,
            timer: Timer { kind: TimerKind::from_kernel(timer), expires_ms: u32_of(52)? },
            retransmits,
            rqueue: u32_of(56)?,
            wqueue: u32_of(60)?,
            uid: u32_of(64)?,
            inode: u32_of(68)?,
            mark: None,
            cgroup_id: None,
            class_id: None,
            tos: None,
            tclass: None,
            is_v6_only: None,
            shutdown: None,
            congestion_control: None,
            tcp_info: None,
            bbr: None,
            memory: None,
        })
    }

    fn apply_attribute(&mut self, kind: u16, value: &[u8]) -> Result<(), Malformed> {
        let short = |bytes_min| Malformed::ValueShort { kind, bytes: value.len(), bytes_min };
        let byte = || value.first().copied().ok_or(short(1));
        let u32_of = || u32_at(value, 0).ok_or(short(4));
        match kind {
            kind::INFO => {
                self.tcp_info = Some(TcpInfo::decode(value).ok_or(short(crate::info::BYTES_MIN))?);
            }
            kind::CONG => self.congestion_control = CongestionControl::from_kernel(value),
            kind::TOS => self.tos = Some(byte()?),
            kind::TCLASS => self.tclass = Some(byte()?),
            kind::SKMEMINFO => self.memory = Some(Memory::decode(value).ok_or(short(Memory::BYTES_MIN))?),
            kind::SHUTDOWN => self.shutdown = Some(byte()?),
            kind::SKV6ONLY => self.is_v6_only = Some(byte()? != 0),
            kind::MARK => self.mark = Some(u32_of()?),
            kind::BBRINFO => self.bbr = Some(Bbr::decode(value).ok_or(short(Bbr::BYTES_MIN))?),
            kind::CLASS_ID => self.class_id = Some(u32_of()?),
            kind::CGROUP_ID => self.cgroup_id = Some(u64_at(value, 0).ok_or(short(8))?),
            _ => {}
        }
        Ok(())
    }
}

/// Decodes an address and port from `struct inet_diag_sockid`.
fn address(
    family: Family,
    message: &[u8],
    (address_offset, port_offset): (usize, usize),
    interface: u32,
) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*message.get(port_offset..)?.first_chunk()?);
    let at = message.get(address_offset..)?;
    Some(match family {
        Family::Ipv4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*at.first_chunk::<4>()?)), port),
        Family::Ipv6 => {
            let address = Ipv6Addr::from(*at.first_chunk::<16>()?);
            // A link-local address is ambiguous without its interface.
            let scope = if address.is_unicast_link_local() { interface } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope))
        }
    })
}

fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(unmapped) => SocketAddr::new(unmapped.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The array contains `fill(SK_MEMINFO_x)` at index `x`, so a field read from the wrong offset
    /// gets a wrong value.
    #[test]
    fn memory_fields_are_read_at_the_kernels_indices() {
        let fill = |index: i32| 1_000 + u32::try_from(index).expect("array indices are not negative");
        let array: Vec<u8> =
            (0..=libc::SK_MEMINFO_DROPS).flat_map(|index| fill(index).to_ne_bytes()).collect();
        let expected = Memory {
            rmem_alloc_bytes: fill(libc::SK_MEMINFO_RMEM_ALLOC),
            rcvbuf_bytes: fill(libc::SK_MEMINFO_RCVBUF),
            wmem_alloc_bytes: fill(libc::SK_MEMINFO_WMEM_ALLOC),
            sndbuf_bytes: fill(libc::SK_MEMINFO_SNDBUF),
            fwd_alloc_bytes: fill(libc::SK_MEMINFO_FWD_ALLOC),
            wmem_queued_bytes: fill(libc::SK_MEMINFO_WMEM_QUEUED),
            optmem_bytes: fill(libc::SK_MEMINFO_OPTMEM),
            backlog_bytes: fill(libc::SK_MEMINFO_BACKLOG),
            drops: Some(fill(libc::SK_MEMINFO_DROPS)),
        };
        assert_eq!(Memory::decode(&array), Some(expected));
        // Before Linux 4.7, the array ended with the backlog.
        assert_eq!(Memory::decode(&array[..Memory::BYTES_MIN]), Some(Memory { drops: None, ..expected }));
        assert_eq!(Memory::decode(&array[..Memory::BYTES_MIN - 1]), None);
    }
}
