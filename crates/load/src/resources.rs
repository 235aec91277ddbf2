//! Resources of this process: open files and processor time.

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Number of files that a process needs besides connections: the standard streams, and a few for
/// each thread's runtime.
const FILES_BESIDE: u64 = 64;

/// Raises the soft limit on open files to the hard limit and checks that it allows one connection
/// per client.
///
/// # Errors
///
/// Returns an error if the hard limit is too low.
pub fn raise_files(clients: usize) -> anyhow::Result<()> {
    let may = files_max();
    let needed = clients as u64 + FILES_BESIDE;
    if needed > may {
        bail!(
            "{clients} clients need {needed} open files, but the limit is {may}: raise `ulimit -Hn`, or run several \
             processes and `thalweg-lab load merge` their figures"
        );
    }
    Ok(())
}

/// Raises the soft limit on open files to the hard limit and returns it. Child processes inherit
/// the limit.
pub fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If raising fails, keep the current limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns this process's user and system time in microseconds.
pub(super) fn cpu_us() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // The cast is safe: both parts are non-negative.
    (spent.tv_sec * 1_000_000 + spent.tv_nsec / 1000) as u64
}
