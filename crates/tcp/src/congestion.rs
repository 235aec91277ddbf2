//! The congestion control of a socket: choose it, read it back, list what the kernel has.
//!
//! **Invariant:** what a log says is what [`get`] read from the kernel, never what [`set`] was asked for: a route
//! (`ip route … congctl`) or another process may have decided otherwise.
//!
//! `setsockopt(TCP_CONGESTION)` works in any state of the connection and concerns the sending side alone.
//! Names: `TCP_CA_NAME_MAX` of the kernel's `include/net/tcp.h`.

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

/// The longest name of an algorithm in bytes: the kernel's `TCP_CA_NAME_MAX` less the closing NUL.
pub const NAME_BYTES_MAX: usize = 15;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The name of a congestion control (`bbr`, `cubic`), held inline: a response's record needs no allocation
/// for it.
///
/// Always 1 to [`NAME_BYTES_MAX`] bytes of printable ASCII without spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CongestionControl {
    /// The name, then zeros.
    name: [u8; NAME_BYTES_MAX + 1],
}

impl CongestionControl {
    /// The name.
    pub fn as_str(&self) -> &str {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES_MAX);
        str::from_utf8(&self.name[..end]).expect("checked to be ASCII when made")
    }

    /// The name in `bytes`, up to the first NUL, as the kernel answers.
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

    /// Checks the form of a name, not that this kernel has it: that is [`check`].
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

/// Makes the socket use `name` from now on.
///
/// # Errors
/// [`Error::Unknown`] or [`Error::NotAllowed`] with what would do; [`Error::Io`] if `fd` is not a TCP socket.
pub fn set(fd: BorrowedFd<'_>, name: CongestionControl) -> Result<(), Error> {
    match set_tcp_congestion(fd, name.as_str()) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(Error::Unknown { name, available: available()? }),
        Err(Errno::PERM) => Err(Error::NotAllowed { name, allowed: allowed()? }),
        Err(other) => Err(Error::Io(other.into())),
    }
}

/// Makes the socket use `name` from now on, and asks the kernel whether it does.
///
/// # Errors
/// As [`set`]; [`Error::Kept`] where something on the system, such as a BPF program, has decided otherwise.
pub fn choose(fd: BorrowedFd<'_>, name: CongestionControl) -> Result<(), Error> {
    set(fd, name)?;
    match get(fd)? {
        now if now == name => Ok(()),
        now => Err(Error::Kept { name, now }),
    }
}

/// What the socket uses, as the kernel says. One `getsockopt`, no allocation.
///
/// # Errors
/// [`Error::Io`] if `fd` is not a TCP socket.
pub fn get(fd: BorrowedFd<'_>) -> Result<CongestionControl, Error> {
    let mut buffer = [0; NAME_BYTES_MAX + 1];
    let answer = sockopt::get(fd, (libc::IPPROTO_TCP, libc::TCP_CONGESTION), &mut buffer)?;
    CongestionControl::from_kernel(answer)
        .ok_or_else(|| Error::Io(io::Error::new(io::ErrorKind::InvalidData, "TCP_CONGESTION holds no name")))
}

/// Whether this process may choose `name`, found out on a socket of its own that is never connected. For
/// start-up: a wrong setting is told before a port is bound. The kernel may load the algorithm's module on
/// the way.
///
/// # Errors
/// As [`set`].
pub fn check(name: CongestionControl) -> Result<(), Error> {
    use std::os::fd::AsFd;

    let socket = match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None) {
        Err(Errno::AFNOSUPPORT) => rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None),
        other => other,
    };
    set(socket.map_err(io::Error::from)?.as_fd(), name)
}

/// The algorithms that the kernel has loaded, in its own order.
///
/// # Errors
/// [`Error::Io`] if the sysctl cannot be read.
pub fn available() -> Result<Vec<CongestionControl>, Error> {
    read_list(AVAILABLE)
}

/// The algorithms that a process without `CAP_NET_ADMIN` may choose, in the kernel's order.
///
/// # Errors
/// [`Error::Io`] if the sysctl cannot be read.
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
    fn an_unknown_algorithm_is_answered_with_what_there_is() {
        let error = check(name("bbrr")).unwrap_err();
        let Error::Unknown { name, available: listed } = &error else { panic!("{error}") };
        assert_eq!(name.as_str(), "bbrr");
        assert_eq!(listed, &available().unwrap());
    }

    #[test]
    fn errors_teach() {
        let said = |e: Error| e.to_string();
        let some = vec![name("reno"), name("bbr")];
        expect![[r#"this kernel has no congestion control "vegas"; it has reno, bbr"#]]
            .assert_eq(&said(Error::Unknown { name: name("vegas"), available: some.clone() }));
        expect![[r#"congestion control "cubic" needs CAP_NET_ADMIN, or a place in the sysctl net.ipv4.tcp_allowed_congestion_control, which has reno, bbr"#]]
            .assert_eq(&said(Error::NotAllowed { name: name("cubic"), allowed: some }));
        expect![[r#""" is not the name of a congestion control"#]]
            .assert_eq(&said("".parse::<CongestionControl>().unwrap_err()));
        expect![[r#"congestion control "bbr" was asked for, and the kernel says "reno""#]]
            .assert_eq(&said(Error::Kept { name: name("bbr"), now: name("reno") }));
        expect!["Linux has no socket option for the congestion window: set a pace, or `initcwnd` on the client's route"]
            .assert_eq(&said(Error::NoCongestionWindow));
    }

    #[test]
    fn names_have_the_kernels_length() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(name(&longest).as_str(), longest);
        for bad in ["", "two words", "bbr\n", "bbr\0", "bbré", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(bad.parse::<CongestionControl>().is_err(), "{bad:?}");
        }
        assert_eq!(format!("[{:6}]", name("bbr")), "[bbr   ]");
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(get(udp.as_fd()), Err(Error::Io(_))));
        assert!(matches!(set(udp.as_fd(), name("reno")), Err(Error::Io(_))));
    }
}
