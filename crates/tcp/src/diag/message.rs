//! One answer of sock_diag: `struct inet_diag_msg` and its attributes (`include/uapi/linux/inet_diag.h`). Pure.
//!
//! Numbers are in the machine's byte order, ports and addresses in the network's. An attribute that is not known is
//! passed over; one that is known and too short is an error, one that is longer than known is a newer kernel's and is
//! read as far as it is known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::netlink::{split_attribute, u32_at, u64_at};
use super::{Malformed, State};
use crate::{CongestionControl, TcpInfo};

/// Bytes of a `struct inet_diag_msg`.
pub const MESSAGE_BYTES: usize = 72;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Attributes, `INET_DIAG_*`.
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

/// What the kernel told of one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's number of the socket: no other has it until the system starts anew.
    pub cookie: u64,
    /// The family of the socket. One of IPv6 may carry IPv4, in addresses `::ffff:a.b.c.d`.
    pub family: Family,
    /// Its state.
    pub state: State,
    /// The address on this side, as the kernel has it.
    pub local: SocketAddr,
    /// The address on the other side, as the kernel has it; unspecified with port 0 where there is none.
    pub remote: SocketAddr,
    /// Number of the network interface that the socket is bound to, 0 if to none.
    pub interface: u32,
    /// The timer that is running.
    pub timer: Timer,
    /// Timeouts, probes or keepalives in a row that were not answered: of the timer that is running.
    pub retransmits: u8,
    /// Received and not read yet; of a listening socket, the connections that wait to be accepted.
    pub rqueue_bytes: u32,
    /// Sent and not acknowledged, or not sent yet; of a listening socket, how many connections may wait.
    pub wqueue_bytes: u32,
    /// Who owns the socket.
    pub uid: u32,
    /// Its number in sockfs, 0 if no process has it any more.
    pub inode: u32,
    /// `SO_MARK`; told to CAP_NET_ADMIN alone.
    pub mark: Option<u32>,
    /// The version 2 cgroup in which it was made, 5.8.
    pub cgroup_id: Option<u64>,
    /// The traffic class: the priority (`SO_PRIORITY`) or the version 1 cgroup's.
    pub class_id: Option<u32>,
    /// The type of service of IPv4.
    pub tos: Option<u8>,
    /// The traffic class of IPv6.
    pub tclass: Option<u8>,
    /// The socket takes IPv6 alone.
    pub is_v6_only: Option<bool>,
    /// The directions that are shut down: 1 receiving, 2 sending, 3 both.
    pub shutdown: Option<u8>,
    /// Its congestion control.
    pub congestion_control: Option<CongestionControl>,
    /// What `TCP_INFO` says of it. A socket in TIME-WAIT has none.
    pub tcp_info: Option<TcpInfo>,
    /// BBR's model of the path, where that is in use.
    pub bbr: Option<Bbr>,
    /// The memory of its buffers.
    pub memory: Option<Memory>,
}

/// The family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `AF_INET`.
    Ipv4,
    /// `AF_INET6`.
    Ipv6,
}

impl Family {
    /// The kernel's number.
    pub fn number(self) -> u8 {
        match self {
            Self::Ipv4 => AF_INET,
            Self::Ipv6 => AF_INET6,
        }
    }
}

/// A timer of a socket, `idiag_timer`, and when it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// Which one it is.
    pub kind: TimerKind,
    /// From the dump on; 0 if none is running, or it is due.
    pub expires_ms: u32,
}

/// What a socket's timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerKind {
    /// None is running.
    Off,
    /// Retransmission, a tail loss probe, or reordering.
    Retransmit,
    /// A keepalive, or what else runs on that timer.
    Keepalive,
    /// The end of TIME-WAIT.
    TimeWait,
    /// A probe of a window that is closed.
    Probe,
    /// One that this does not know.
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

/// `struct tcp_bbr_info`: what BBR takes the path for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bbr {
    /// The largest delivery rate of the last ten round trips.
    pub bw_bytes_per_s: u64,
    /// The smallest round trip of the last ten seconds.
    pub min_rtt_us: u32,
    /// What the bandwidth is multiplied by to give the pacing rate, in 1/256.
    pub pacing_gain_per_256: u32,
    /// What the bandwidth-delay product is multiplied by to give the congestion window, in 1/256.
    pub cwnd_gain_per_256: u32,
}

impl Bbr {
    /// The structure of the kernel's own BBR. Those with more state have it at the end.
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

/// The memory of a socket: `SK_MEMINFO_*` of `include/uapi/linux/sock_diag.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Held by what was received and not read.
    pub rmem_alloc_bytes: u32,
    /// The most that the receive buffer may hold (`SO_RCVBUF`).
    pub rcvbuf_bytes: u32,
    /// Held by what the lower layers have and did not send yet.
    pub wmem_alloc_bytes: u32,
    /// The most that the send buffer may hold (`SO_SNDBUF`).
    pub sndbuf_bytes: u32,
    /// Reserved and not used.
    pub fwd_alloc_bytes: u32,
    /// Held by the send queue.
    pub wmem_queued_bytes: u32,
    /// Held by options and filters.
    pub optmem_bytes: u32,
    /// Held by TCP segments that came while a process had the socket.
    pub backlog_bytes: u32,
    /// TCP segments dropped by the socket, 4.7.
    pub drops: Option<u32>,
}

impl Memory {
    /// As of Linux 3.15; `drops` came behind it.
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
    /// Decodes what follows the header of a netlink message.
    ///
    /// # Errors
    /// Where it is cut short, an attribute is too short, or the family or the state is none of TCP's.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (message, attributes) =
            bytes.split_first_chunk().ok_or(Malformed::MessageShort { bytes: bytes.len() })?;
        let mut socket = Self::decode_fixed(message)?;
        let mut rest = attributes;
        while !rest.is_empty() {
            let (kind, value, after) = split_attribute(rest)?;
            socket.take_attribute(kind, value)?;
            rest = after;
        }
        Ok(socket)
    }

    /// The address on this side, as IPv4 where it is that in IPv6 form.
    pub fn local_unmapped(&self) -> SocketAddr {
        unmapped(self.local)
    }

    /// The address on the other side, as IPv4 where it is that in IPv6 form.
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
            rqueue_bytes: u32_of(56)?,
            wqueue_bytes: u32_of(60)?,
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

    fn take_attribute(&mut self, kind: u16, value: &[u8]) -> Result<(), Malformed> {
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

/// An address and a port of a `struct inet_diag_sockid`.
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
            // An address that is one of a link says nothing without the link.
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
