//! A socket of sock_diag, in this network namespace or in another.

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

/// A socket that hears the multicast groups of `groups`, a bit for each, in the namespace that this thread is in.
pub(super) fn here(groups: u32, flags: SocketFlags) -> Result<OwnedFd, Error> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))
        .map_err(failed)?;
    // The kernel chooses a port: there may be several in one process.
    bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed)?;
    Ok(socket)
}

/// The same in the network namespace of the file `path`, such as `/run/netns/edge` or `/proc/42/ns/net`. A socket stays
/// where it was made: only a thread of its own, that ends with this call, enters there.
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

/// What the kernel's error number says: of a protocol that is not there, that sock_diag is not.
pub(super) fn failed(errno: Errno) -> Error {
    match errno {
        Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::NOENT => Error::Unsupported(errno.into()),
        _ => Error::Io(errno.into()),
    }
}
