//! Private mount namespace of this process, which contains the names of its network namespaces.
//!
//! Named network namespaces are bind mounts. Because no other process sees these mounts, the kernel
//! removes them with the last process that uses them, however that process ends. `leftover.rs` ends
//! processes that outlive this one.

use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

use super::namespace::PLACES;
use super::{Error, leftover};

/// Moves this thread, and all threads and processes it starts later, to a private mount namespace.
///
/// # Errors
/// If the capability is missing.
pub(super) fn unshare_mounts() -> Result<(), Error> {
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

/// Directories visible only to this process and its children. All processes share their mount
/// points; the last run removes mount points created by runs ([`leftover`]).
#[derive(Debug)]
pub(super) struct Mounts(());

impl Mounts {
    /// Mounts the directories; the calling thread must have left the shared mount namespace.
    ///
    /// # Errors
    /// If the capability is missing.
    pub(super) fn new() -> Result<Self, Error> {
        let mounts = Self(());
        for place in PLACES {
            leftover::create_directory(place).map_err(denied)?;
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

/// Unmounts this process's directories; surviving children keep their own mounts.
///
pub(super) fn unmount_all() {
    for place in PLACES {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}
