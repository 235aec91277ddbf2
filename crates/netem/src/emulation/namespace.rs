//! Network namespaces of both sides and of the emulator: their names, and running code in them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Directory of named network namespaces.
const NAMES: &str = "/run/netns";
/// Directory in which rattan records addresses in use and runs store their files.
pub(super) const SCRATCH: &str = "/tmp/rattan";
/// Mount points of a run.
pub(super) const PLACES: [&str; 2] = [NAMES, SCRATCH];

/// Returns rattan's name for the clients' namespace of emulation `id`.
pub(super) fn clients_name(id: &str) -> String {
    format!("ns-left-{id}")
}

/// Returns rattan's name for the server's namespace of emulation `id`.
pub(super) fn server_name(id: &str) -> String {
    format!("ns-right-{id}")
}

/// Returns rattan's name for the emulator's own namespace.
pub(super) fn inside_name(id: &str) -> String {
    format!("ns-rattan-{id}")
}

/// Network namespace of one side or of the emulator.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
    /// Path through which programs in this mount namespace can enter the network namespace.
    pub(super) path: String,
}

impl Namespace {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let path = format!("{NAMES}/{name}");
        Ok(Self { file: File::open(&path)?, path })
    }

    /// Runs `work` on a new thread in the namespace. Sockets and processes created on that thread
    /// belong to the namespace.
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
