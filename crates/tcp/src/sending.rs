//! A socket's sending options: pacing rate, unsent-bytes limit, and packet marking (DSCP).
//!
//! Setters take effect immediately and affect one socket. Getters read the value from the kernel.
//! Sources: socket(7), tcp(7), ip(7), and the kernel's `net/core/sock.c` and `net/ipv4/tcp.c`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{ip_tos, ipv6_tclass, set_ip_tos, set_ipv6_tclass};

use crate::sockopt::{self, SocketOption};

const MAX_PACING_RATE: SocketOption = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
const NOTSENT_LOWAT: SocketOption = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);

/// Limits the socket's sending rate, in bytes per second (`SO_MAX_PACING_RATE`). `None` removes the
/// limit.
///
/// The limit applies with every congestion control. If the algorithm does not pace, such as CUBIC,
/// the kernel paces the socket once a limit is set (since Linux 4.13; earlier kernels need the fq
/// qdisc). BBR paces at its own rate, up to the limit.
///
/// # Errors
///
/// Returns the system call's error, or `Unsupported` for 4 GiB/s or more before Linux 4.20, which
/// accepts only 32 bits.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_s: Option<NonZeroU64>) -> io::Result<()> {
    // All ones means "no limit", in 32 and in 64 bits. Kernels before 4.20 read only 32 bits, so
    // the value is passed in 32 bits if it fits.
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
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "pacing rate must be below 4 GiB/s on this kernel",
        ));
    }
    let rate = bytes_per_s.map_or(u64::MAX, NonZeroU64::get);
    sockopt::set(fd, MAX_PACING_RATE, &rate.to_ne_bytes())
}

/// Reads the pacing limit, in bytes per second. Returns `None` if no limit is set.
///
/// # Errors
///
/// Returns the system call's error.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut buffer = [0; size_of::<u64>()];
    let rate = match sockopt::get(fd, MAX_PACING_RATE, &mut buffer)? {
        answer if let Ok(wide) = answer.try_into() => {
            Some(u64::from_ne_bytes(wide)).filter(|&rate| rate != u64::MAX)
        }
        answer if let Ok(narrow) = answer.try_into() => {
            Some(u32::from_ne_bytes(narrow)).filter(|&rate| rate != u32::MAX).map(u64::from)
        }
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "expected SO_MAX_PACING_RATE to have 4 or 8 bytes",
            ));
        }
    };
    Ok(rate)
}

/// Limits the number of unsent bytes in the kernel's queue. At the limit, the socket stops being
/// writable (`TCP_NOTSENT_LOWAT`, since Linux 3.12). 0 selects the default,
/// `net.ipv4.tcp_notsent_lowat`. Accepted sockets inherit their listener's value.
///
/// # Errors
///
/// Returns the system call's error.
pub fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    sockopt::set(fd, NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Reads the limit on unsent bytes in the kernel's queue. 0 means the default,
/// `net.ipv4.tcp_notsent_lowat`.
///
/// # Errors
///
/// Returns the system call's error.
pub fn notsent_lowat(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut buffer = [0; size_of::<u32>()];
    let answer = sockopt::get(fd, NOTSENT_LOWAT, &mut buffer)?;
    let number = answer.try_into().map(u32::from_ne_bytes);
    number
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "expected TCP_NOTSENT_LOWAT to have 4 bytes"))
}

/// Sets the IPv4 type of service or IPv6 traffic class of the socket's packets (`IP_TOS` or
/// `IPV6_TCLASS`). The six high bits are the DSCP. The two low bits are ECN and remain under the
/// kernel's control.
///
/// # Errors
///
/// Returns the system call's error.
pub fn set_type_of_service(fd: BorrowedFd<'_>, value: u8) -> io::Result<()> {
    if sends_ipv4(fd)? {
        set_ip_tos(fd, value)?;
    } else {
        set_ipv6_tclass(fd, value.into())?;
    }
    Ok(())
}

/// Reads the type of service or traffic class of the socket's packets.
///
/// # Errors
///
/// Returns the system call's error.
pub fn type_of_service(fd: BorrowedFd<'_>) -> io::Result<u8> {
    if sends_ipv4(fd)? {
        return Ok(ip_tos(fd)?);
    }
    u8::try_from(ipv6_tclass(fd)?).map_err(|wide| io::Error::new(io::ErrorKind::InvalidData, wide))
}

/// Returns whether the socket sends IPv4 packets. An IPv6 socket accepted by a dual-stack listener
/// may do so.
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

    /// Connects to `listener` at the address `to`. Returns both ends, the accepted socket first.
    fn connected(listener: &TcpListener, to: &str) -> (TcpStream, TcpStream) {
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn pacing_rate_is_read_back_for_every_congestion_control() {
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
    fn accepted_sockets_inherit_the_unsent_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_notsent_lowat(listener.as_fd(), 128 << 10).unwrap();
        let (socket, _client) = connected(&listener, "127.0.0.1");
        assert_eq!(notsent_lowat(socket.as_fd()).unwrap(), 128 << 10);
        set_notsent_lowat(socket.as_fd(), 16 << 10).unwrap();
        assert_eq!(notsent_lowat(socket.as_fd()).unwrap(), 16 << 10);
    }

    #[test]
    fn type_of_service_is_read_back_for_both_families() {
        const AF41: u8 = 34 << 2;
        for (listen, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let listener = TcpListener::bind(listen).unwrap();
            let (socket, _client) = connected(&listener, to);
            assert_eq!(type_of_service(socket.as_fd()).unwrap(), 0);
            set_type_of_service(socket.as_fd(), AF41).unwrap();
            assert_eq!(type_of_service(socket.as_fd()).unwrap(), AF41, "{listen} {to}");
            set_type_of_service(socket.as_fd(), AF41 | 0b11).unwrap();
            assert_eq!(
                type_of_service(socket.as_fd()).unwrap(),
                AF41,
                "{listen} {to}: ECN bits must be left to the kernel"
            );
        }
    }

    #[test]
    fn non_tcp_socket_is_an_error() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(notsent_lowat(socket.as_fd()).is_err());
        assert!(set_notsent_lowat(socket.as_fd(), 1).is_err());
        assert!(set_type_of_service(socket.as_fd(), 0).is_err());
    }
}
