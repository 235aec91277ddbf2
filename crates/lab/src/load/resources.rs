//! What this process may use of the machine, and has used.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files of a process beside its connections: standard ones, and some for each thread's runtime.
const FILES_BESIDE: u64 = 64;

/// Lets this process open as many files as it may, and looks whether each client can have its connection.
///
/// # Errors
/// It cannot.
pub fn raise_files(clients: usize) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised is still looked at.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = clients as u64 + FILES_BESIDE;
    if needed > may {
        bail!(
            "{clients} clients need {needed} files and this process may open {may}: raise `ulimit -Hn`, or run several \
             processes and `thalweg-lab load merge` their figures"
        );
    }
    Ok(())
}

/// Processor time of this process.
pub(super) fn cpu_us() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // Neither part is negative.
    (spent.tv_sec * 1_000_000 + spent.tv_nsec / 1000) as u64
}
