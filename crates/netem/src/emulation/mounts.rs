//! Private mount namespace of this process, which contains the names of its network namespaces.
//!
//! Named network namespaces are bind mounts. Only this process and its children see these mounts,
//! so the kernel removes them when the last of those processes exits, for whatever reason.
//! `leftover.rs` kills children that outlive this process.

use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

use super::namespace::PLACES;
use super::{Error, leftover};

/// Moves this thread, and all threads and processes it starts later, to a private mount namespace.
///
/// # Errors
///
/// Returns an error if `CAP_SYS_ADMIN` is missing or a mount fails.
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

/// Mounted directories that only this process and its children can see. The mount points under them
/// are visible to all processes; the last run to finish removes those that runs created
/// ([`leftover`]).
#[derive(Debug)]
pub(super) struct Mounts(());

impl Mounts {
    /// Mounts the directories. The calling thread must already be in a private mount namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if `CAP_SYS_ADMIN` is missing or a mount fails.
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

/// Unmounts the directories. The kernel releases a mount once no process uses it.
pub(super) fn unmount_all() {
    for place in PLACES {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}
