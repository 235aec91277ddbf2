//! Namespaces: a mount namespace of this process in which everything lies, and the network namespaces of both sides.
//!
//! Named network namespaces are bind mounts. Those made here are mounted where no other process sees them, so that the system
//! takes them away with the last process that uses them, however that ends; `leftover.rs` sees to processes that outlive us.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Error, leftover};

/// Where network namespaces have their names.
const NAMES: &str = "/run/netns";
/// Where rattan notes addresses in use, and files of one run have their place.
pub(super) const SCRATCH: &str = "/tmp/rattan";
/// What is mounted on.
pub(super) const PLACES: [&str; 2] = [NAMES, SCRATCH];

/// Takes this thread, and all that it will start, to a mount namespace of its own.
///
/// # Errors
/// Without the right to do so.
pub(super) fn leave_mounts() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| denied(error.into()))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| denied(error.into()))
}

fn denied(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        Error::Rights("CAP_SYS_ADMIN")
    } else {
        Error::System("a mount namespace", error)
    }
}

/// Directories that only this process sees, and its children. The places that they are mounted on are everyone's: the last run
/// removes those that runs have made ([`leftover`]).
#[derive(Debug)]
pub(super) struct Mounts(());

impl Mounts {
    /// Mounts them, on a thread that has left all others' mounts.
    ///
    /// # Errors
    /// Without the right to do so.
    pub(super) fn new() -> Result<Self, Error> {
        let mounts = Self(());
        for place in PLACES {
            leftover::make(place).map_err(denied)?;
            mount("tmpfs", place, "tmpfs", MountFlags::empty(), None)
                .map_err(|error| denied(error.into()))?;
        }
        Ok(mounts)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        unmount_all();
    }
}

/// Takes this process's mounts away. A child that is still there keeps its own.
pub(super) fn unmount_all() {
    for place in PLACES {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}

/// The name of the clients' namespace in the emulation `id`, as rattan gives it.
pub(super) fn clients_name(id: &str) -> String {
    format!("ns-left-{id}")
}

/// The name of the server's.
pub(super) fn server_name(id: &str) -> String {
    format!("ns-right-{id}")
}

/// The name of that between them.
pub(super) fn inside_name(id: &str) -> String {
    format!("ns-rattan-{id}")
}

/// A network namespace: one side's, or that between them.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
    /// Where it can be entered by other programs, within this mount namespace.
    pub(super) path: String,
}

impl Namespace {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let path = format!("{NAMES}/{name}");
        Ok(Self { file: File::open(&path)?, path })
    }

    /// Runs `work` on a thread of its own in it. Sockets made there, and processes started there, are in it as well.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        thread::scope(|scope| {
            let inside = move || {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            };
            scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
