//! Namespaces: a mount namespace of this process in which everything lies, and the network namespaces of both sides.
//!
//! Named network namespaces are bind mounts. Those made here are mounted where no other process sees them, so that the system
//! takes them away with the last process that uses them, however that ends; `leftover.rs` sees to processes that outlive us.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Error;

/// Where network namespaces have their names.
const NAMES: &str = "/run/netns";
/// Where rattan notes addresses in use, and files of one run have their place.
pub(super) const SCRATCH: &str = "/tmp/rattan";

/// The mounts that only this process sees, and its children.
#[derive(Debug)]
pub(super) struct Mounts {
    /// Directories that were made to mount on.
    made: Vec<&'static str>,
}

impl Mounts {
    /// Takes this thread, and all that it will start, to a mount namespace of its own.
    ///
    /// # Errors
    /// Without the right to do so.
    pub(super) fn enter() -> Result<Self, Error> {
        let denied = |error: io::Error| {
            if error.kind() == io::ErrorKind::PermissionDenied {
                Error::Rights("CAP_SYS_ADMIN")
            } else {
                Error::System("a mount namespace", error)
            }
        };
        unshare(CloneFlags::CLONE_NEWNS).map_err(|error| denied(error.into()))?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|error| denied(error.into()))?;
        let mut mounts = Self { made: Vec::new() };
        for directory in [NAMES, SCRATCH] {
            if !Path::new(directory).exists() {
                fs::create_dir_all(directory).map_err(denied)?;
                mounts.made.push(directory);
            }
            mount("tmpfs", directory, "tmpfs", MountFlags::empty(), None)
                .map_err(|error| denied(error.into()))?;
        }
        Ok(mounts)
    }
}

impl Mounts {
    /// Directories that were made to mount on.
    pub(super) fn made(&self) -> Vec<&'static str> {
        self.made.clone()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        remove(&self.made);
    }
}

/// Removes directories that were made to mount on. A child that is still there keeps its mounts.
pub(super) fn remove(made: &[&str]) {
    for directory in made {
        let _ = unmount(*directory, UnmountFlags::DETACH);
        let _ = fs::remove_dir(directory);
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

/// One side's network namespace.
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
