//! How a socket sends: its pace, how much waits unsent in the kernel, and how its packets are marked.
//!
//! Each is set on one socket, holds from then on, and is read back here as the kernel has it. Sources: socket(7), tcp(7),
//! ip(7), and of the kernel `net/core/sock.c` and `net/ipv4/tcp.c`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{ip_tos, ipv6_tclass, set_ip_tos, set_ipv6_tclass};

use crate::sockopt::{self, SocketOption};

const MAX_PACING_RATE: SocketOption = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
const NOTSENT_LOWAT: SocketOption = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);

/// The most bytes a second that the socket sends, `SO_MAX_PACING_RATE`; `None` is no limit.
///
/// It holds for every congestion control. One that does not pace by itself, such as CUBIC, is paced by the kernel from
/// the first limit on (Linux 4.13; before, only by the qdisc fq), and BBR takes it as its upper limit.
///
/// # Errors
/// The system call's; `Unsupported` for a rate of 4 GiB/s and more before Linux 4.20, which takes 32 bits.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_s: Option<NonZeroU64>) -> io::Result<()> {
    // All ones is "no limit" in 32 bits as in 64, and an older kernel reads the first 32 of 64 alone.
    let narrow = match bytes_per_s.map(NonZeroU64::get).map(u32::try_from) {
        None => Some(u32::MAX),
        Some(Ok(rate)) if rate < u32::MAX => Some(rate),
        Some(_) => None,
    };
    if let Some(rate) = narrow {
        return sockopt::set(fd, MAX_PACING_RATE, &rate.to_ne_bytes());
    }
    let mut buffer = [0; size_of::<u64>()];
    if sockopt::get(fd, MAX_PACING_RATE, &mut buffer)?.len() < size_of::<u64>() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no pacing rate of 4 GiB/s"));
    }
    let rate = bytes_per_s.map_or(u64::MAX, NonZeroU64::get);
    sockopt::set(fd, MAX_PACING_RATE, &rate.to_ne_bytes())
}

/// The most bytes a second that the socket sends; `None` where there is no limit.
///
/// # Errors
/// The system call's.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut buffer = [0; size_of::<u64>()];
    let rate = match sockopt::get(fd, MAX_PACING_RATE, &mut buffer)? {
        answer if let Ok(wide) = answer.try_into() => {
            Some(u64::from_ne_bytes(wide)).filter(|&rate| rate != u64::MAX)
        }
        answer if let Ok(narrow) = answer.try_into() => {
            Some(u32::from_ne_bytes(narrow)).filter(|&rate| rate != u32::MAX).map(u64::from)
        }
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "SO_MAX_PACING_RATE holds no number")),
    };
    Ok(rate)
}

/// How many bytes may wait unsent in the kernel before the socket stops to be writable, `TCP_NOTSENT_LOWAT` (Linux
/// 3.12); 0 leaves it to `net.ipv4.tcp_notsent_lowat`. Accepted sockets have that of their listener.
///
/// # Errors
/// The system call's.
pub fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    sockopt::set(fd, NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// How many bytes may wait unsent in the kernel; 0 where that is left to `net.ipv4.tcp_notsent_lowat`.
///
/// # Errors
/// The system call's.
pub fn notsent_lowat(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut buffer = [0; size_of::<u32>()];
    let answer = sockopt::get(fd, NOTSENT_LOWAT, &mut buffer)?;
    let number = answer.try_into().map(u32::from_ne_bytes);
    number.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "TCP_NOTSENT_LOWAT holds no number"))
}

/// Marks what the socket sends: the byte that IPv4 calls type of service and IPv6 traffic class, `IP_TOS` or
/// `IPV6_TCLASS`, with the DSCP in its six high bits. The two low bits are those of ECN and stay the kernel's own.
///
/// # Errors
/// The system call's.
pub fn set_type_of_service(fd: BorrowedFd<'_>, value: u8) -> io::Result<()> {
    if sends_ipv4(fd)? {
        set_ip_tos(fd, value)?;
    } else {
        set_ipv6_tclass(fd, value.into())?;
    }
    Ok(())
}

/// How what the socket sends is marked.
///
/// # Errors
/// The system call's.
pub fn type_of_service(fd: BorrowedFd<'_>) -> io::Result<u8> {
    if sends_ipv4(fd)? {
        return Ok(ip_tos(fd)?);
    }
    u8::try_from(ipv6_tclass(fd)?).map_err(|wide| io::Error::new(io::ErrorKind::InvalidData, wide))
}

/// Whether its packets are IPv4: also a client of a dual-stack listener has a socket of IPv6.
fn sends_ipv4(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let local: SocketAddr = rustix::net::getsockname(fd)?.try_into().map_err(io::Error::from)?;
    Ok(matches!(local.ip().to_canonical(), IpAddr::V4(_)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::congestion;

    /// Both ends of a connection from `to`; the first is the accepted one.
    fn connected(listener: &TcpListener, to: &str) -> (TcpStream, TcpStream) {
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn a_pace_is_read_back_for_every_congestion_control() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for name in congestion::available().unwrap() {
            let (socket, _client) = connected(&listener, "127.0.0.1");
            match congestion::set(socket.as_fd(), name) {
                Err(crate::Error::NotAllowed { .. }) => continue,
                other => other.unwrap(),
            }
            assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), None, "{name}");
            for rate in [1, 125_000, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 10_000_000_000] {
                set_max_pacing_rate(socket.as_fd(), NonZeroU64::new(rate)).unwrap();
                assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), Some(rate), "{name}");
                let info = crate::TcpInfo::read(socket.as_fd()).unwrap();
                assert_eq!(info.max_pacing_rate_bytes_per_s, Some(rate), "{name}");
            }
            set_max_pacing_rate(socket.as_fd(), None).unwrap();
            assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn what_may_wait_unsent_goes_from_a_listener_to_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_notsent_lowat(listener.as_fd(), 128 << 10).unwrap();
        let (socket, _client) = connected(&listener, "127.0.0.1");
        assert_eq!(notsent_lowat(socket.as_fd()).unwrap(), 128 << 10);
        set_notsent_lowat(socket.as_fd(), 16 << 10).unwrap();
        assert_eq!(notsent_lowat(socket.as_fd()).unwrap(), 16 << 10);
    }

    #[test]
    fn packets_of_both_families_are_marked() {
        const AF41: u8 = 34 << 2;
        for (listen, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let listener = TcpListener::bind(listen).unwrap();
            let (socket, _client) = connected(&listener, to);
            assert_eq!(type_of_service(socket.as_fd()).unwrap(), 0);
            set_type_of_service(socket.as_fd(), AF41).unwrap();
            assert_eq!(type_of_service(socket.as_fd()).unwrap(), AF41, "{listen} {to}");
            set_type_of_service(socket.as_fd(), AF41 | 0b11).unwrap();
            assert_eq!(type_of_service(socket.as_fd()).unwrap(), AF41, "{listen} {to}: ECN is the kernel's");
        }
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(notsent_lowat(socket.as_fd()).is_err());
        assert!(set_notsent_lowat(socket.as_fd(), 1).is_err());
        assert!(set_type_of_service(socket.as_fd(), 0).is_err());
    }
}
