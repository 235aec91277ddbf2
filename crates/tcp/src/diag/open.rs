//! Creation of sock_diag sockets, in this network namespace or another.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Error;

/// Opens a sock_diag socket in this thread's network namespace, subscribed to the multicast groups
/// in the bit mask `groups`.
pub(super) fn here(groups: u32, flags: SocketFlags) -> Result<OwnedFd, Error> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))
        .map_err(failed)?;
    // The kernel chooses the port ID, because a process may open several such sockets.
    bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed)?;
    Ok(socket)
}

/// Opens a sock_diag socket in the network namespace given by the file `path`, such as
/// `/run/netns/edge` or `/proc/42/ns/net`. A socket stays in the namespace where it was created, so
/// only a short-lived helper thread enters that namespace.
pub(super) fn within(path: &Path, groups: u32, flags: SocketFlags) -> Result<OwnedFd, Error> {
    let refused = |cause: io::Error| Error::Namespace { path: path.to_owned(), cause };
    let namespace = File::open(path).map_err(refused)?;
    thread::scope(|scope| {
        let inside = || {
            let entered = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
            entered.map_err(|errno| refused(errno.into()))?;
            here(groups, flags)
        };
        let thread =
            thread::Builder::new().name("netns".into()).spawn_scoped(scope, inside).map_err(refused)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Converts an error number. A missing protocol means that the kernel lacks sock_diag.
pub(super) fn failed(errno: Errno) -> Error {
    match errno {
        Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::NOENT => Error::Unsupported(errno.into()),
        _ => Error::Io(errno.into()),
    }
}
