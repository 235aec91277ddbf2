//! A socket's congestion control: setting it, reading it back, and listing the kernel's algorithms.
//!
//! **Invariant:** logs show the algorithm that [`get`] read from the kernel, never the one passed
//! to [`set`], because a route (`ip route … congctl`) or another process may override it.
//!
//! `setsockopt(TCP_CONGESTION)` works in any connection state and affects only the sending side.
//! The maximum name length is `TCP_CA_NAME_MAX` in the kernel's `include/net/tcp.h`.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{AddressFamily, SocketType};

use crate::Error;
use crate::sockopt;

/// Maximum length of an algorithm name in bytes: the kernel's `TCP_CA_NAME_MAX` without the
/// terminating NUL.
pub const NAME_BYTES_MAX: usize = 15;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The name of a congestion control algorithm, such as `bbr` or `cubic`. Stored inline, so that
/// response records need no allocation for it.
///
/// A name always has 1 to [`NAME_BYTES_MAX`] bytes of printable ASCII without spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CongestionControl {
    /// The name, padded with NUL bytes.
    name: [u8; NAME_BYTES_MAX + 1],
}

impl CongestionControl {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES_MAX);
        str::from_utf8(&self.name[..end]).expect("names are ASCII")
    }

    /// Parses a name returned by the kernel, which ends at the first NUL in `bytes`.
    pub(crate) fn from_kernel(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let given = &bytes[..end];
        if given.is_empty() || given.len() > NAME_BYTES_MAX || !given.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        let mut name = [0; NAME_BYTES_MAX + 1];
        name[..end].copy_from_slice(given);
        Some(Self { name })
    }
}

impl FromStr for CongestionControl {
    type Err = Error;

    /// Validates only the syntax. [`check`] tests whether this kernel has the algorithm.
    fn from_str(name: &str) -> Result<Self, Error> {
        let bad = || Error::BadName { name: name.to_owned() };
        if name.contains('\0') { Err(bad()) } else { Self::from_kernel(name.as_bytes()).ok_or_else(bad) }
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Sets the socket's congestion control.
///
/// # Errors
///
/// Returns [`Error::Unknown`] or [`Error::NotAllowed`], each with the algorithms that can be
/// chosen, or [`Error::Io`] if `fd` is not a TCP socket.
pub fn set(fd: BorrowedFd<'_>, name: CongestionControl) -> Result<(), Error> {
    match set_tcp_congestion(fd, name.as_str()) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(Error::Unknown { name, available: available()? }),
        Err(Errno::PERM) => Err(Error::NotAllowed { name, allowed: allowed()? }),
        Err(other) => Err(Error::Io(other.into())),
    }
}

/// Sets the socket's congestion control, then reads it back to verify it.
///
/// # Errors
///
/// Returns the errors of [`set`], or [`Error::NotApplied`] if something else on the system, such as
/// a BPF program, overrode the choice.
pub fn choose(fd: BorrowedFd<'_>, name: CongestionControl) -> Result<(), Error> {
    set(fd, name)?;
    match get(fd)? {
        now if now == name => Ok(()),
        now => Err(Error::NotApplied { name, now }),
    }
}

/// Reads the socket's congestion control with one `getsockopt` call and no allocation.
///
/// # Errors
///
/// Returns [`Error::Io`] if `fd` is not a TCP socket.
pub fn get(fd: BorrowedFd<'_>) -> Result<CongestionControl, Error> {
    let mut buffer = [0; NAME_BYTES_MAX + 1];
    let answer = sockopt::get(fd, (libc::IPPROTO_TCP, libc::TCP_CONGESTION), &mut buffer)?;
    CongestionControl::from_kernel(answer).ok_or_else(|| {
        Error::Io(io::Error::new(io::ErrorKind::InvalidData, "TCP_CONGESTION returned an invalid name"))
    })
}

/// Checks whether this process may choose `name`, using a temporary socket that is never connected.
/// Called at startup to report a bad setting before any port is bound. As a side effect, the kernel
/// may load the algorithm's module.
///
/// # Errors
///
/// Returns the errors of [`set`].
pub fn check(name: CongestionControl) -> Result<(), Error> {
    use std::os::fd::AsFd;

    let socket = match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None) {
        Err(Errno::AFNOSUPPORT) => rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None),
        other => other,
    };
    set(socket.map_err(io::Error::from)?.as_fd(), name)
}

/// Lists the algorithms loaded in the kernel, in the kernel's order.
///
/// # Errors
///
/// Returns [`Error::Io`] if the sysctl cannot be read.
pub fn available() -> Result<Vec<CongestionControl>, Error> {
    read_list(AVAILABLE)
}

/// Lists the algorithms available to a process without `CAP_NET_ADMIN`, in the kernel's order.
///
/// # Errors
///
/// Returns [`Error::Io`] if the sysctl cannot be read.
pub fn allowed() -> Result<Vec<CongestionControl>, Error> {
    read_list(ALLOWED)
}

fn read_list(sysctl: &str) -> Result<Vec<CongestionControl>, Error> {
    fs::read_to_string(sysctl)?.split_ascii_whitespace().map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    use expect_test::expect;

    use super::*;

    fn name(text: &str) -> CongestionControl {
        text.parse().unwrap()
    }

    #[test]
    fn every_available_algorithm_is_set_and_read_back() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let names = available().unwrap();
        assert!(names.contains(&name("cubic")) || names.contains(&name("reno")), "{names:?}");
        let allowed = allowed().unwrap();
        for wanted in names {
            match choose(socket.as_fd(), wanted) {
                Ok(()) => assert_eq!(get(socket.as_fd()).unwrap(), wanted),
                Err(Error::NotAllowed { name, .. }) => assert!(!allowed.contains(&name)),
                Err(other) => panic!("{wanted}: {other}"),
            }
        }
    }

    #[test]
    fn unknown_algorithm_is_rejected_with_the_available_ones() {
        let error = check(name("bbrr")).unwrap_err();
        let Error::Unknown { name, available: listed } = &error else { panic!("{error}") };
        assert_eq!(name.as_str(), "bbrr");
        assert_eq!(listed, &available().unwrap());
    }

    #[test]
    fn errors_name_the_remedy() {
        let text = |e: Error| e.to_string();
        let some = vec![name("reno"), name("bbr")];
        expect![[r#"this kernel has no congestion control "vegas"; it has reno, bbr"#]]
            .assert_eq(&text(Error::Unknown { name: name("vegas"), available: some.clone() }));
        expect![[r#"congestion control "cubic" needs CAP_NET_ADMIN, or must be added to the sysctl net.ipv4.tcp_allowed_congestion_control, which has reno, bbr"#]]
            .assert_eq(&text(Error::NotAllowed { name: name("cubic"), allowed: some }));
        expect![[r#""" is not the name of a congestion control"#]]
            .assert_eq(&text("".parse::<CongestionControl>().unwrap_err()));
        expect![[r#"requested congestion control "bbr", but the kernel uses "reno""#]]
            .assert_eq(&text(Error::NotApplied { name: name("bbr"), now: name("reno") }));
        expect!["Linux has no socket option for the congestion window: set a pace, or `initcwnd` on the client's route"]
            .assert_eq(&text(Error::NoCongestionWindow));
    }

    #[test]
    fn names_up_to_the_kernels_length_limit_are_valid() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(name(&longest).as_str(), longest);
        for bad in ["", "two words", "bbr\n", "bbr\0", "bbré", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(bad.parse::<CongestionControl>().is_err(), "{bad:?}");
        }
        assert_eq!(format!("[{:6}]", name("bbr")), "[bbr   ]");
    }

    #[test]
    fn non_tcp_socket_is_an_error() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(get(udp.as_fd()), Err(Error::Io(_))));
        assert!(matches!(set(udp.as_fd(), name("reno")), Err(Error::Io(_))));
    }
}
