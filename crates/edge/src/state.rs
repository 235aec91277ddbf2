//! State directory: keeps an edge's count of recorded responses across restarts and crashes.
//!
//! ```text
//! DIR/               locked (flock) by the process that uses it
//! DIR/EPOCH.begun    the counters of one run (`counters`); header: MAGIC, then the epoch, u64.
//!                    During the run, and after a crash, a symbolic link into SHARED_MEMORY,
//!                    unless DIR is in a tmpfs
//! DIR/bundle.json    the last good bundle (`bundle::saved`)
//! ```
//!
//! The counter page is in a tmpfs: in `DIR` itself if that is a tmpfs, otherwise in
//! `SHARED_MEMORY`. On a disk, counting would sometimes block: the file system write-protects a
//! page while writing it back, and the next store to the page may then wait for journal space
//! (<https://www.evanjones.ca/jvm-mmap-pause.html>). Because the page is in memory, a reboot loses
//! the count of a crashed run. A run that ends properly stores its count in a file.
//!
//! Each run creates its page before it accepts requests, and never changes the page of another run.
//! After a crash, no page is torn, but the page of a run without requests may be too short.
//!
//! **Invariant:** a response to be recorded is counted before its first byte is sent, so the count
//! includes every such response that has a record number or reached a client. Responses to clients
//! outside the sample are not counted here.
//! **Invariant:** the epochs in a directory increase, even if the clock is set back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, OFlags, flock, statfs};
use rustix::process::geteuid;
use thalweg_replace::replace;

pub(crate) use counters::FILE_BYTES;
use counters::{Counters, HEADER_BYTES, sum_of};

mod counters;

/// Maximum number of earlier runs with responses to keep; the oldest are dropped first.
const ENDED_MAX: usize = 64;
/// Magic number of this version's counter files, in native byte order.
const MAGIC: u64 = u64::from_be_bytes(*b"twbegun1");
const EXTENSION: &str = "begun";
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Permissions that the state directory must not grant, because the edge follows links in it.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// A tmpfs available to every user.
const SHARED_MEMORY: &str = "/dev/shm";
/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: u64 = 0x0102_1994;

/// An earlier run of this edge that had responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedRun {
    /// Start time, in microseconds since the Unix epoch.
    pub epoch: u64,
    /// Number of responses to be recorded; greater than every record number.
    pub total: u64,
}

/// Response counts of this run and of earlier runs.
#[derive(Debug)]
pub(crate) struct State {
    epoch: u64,
    started: Counters,
    /// Earlier runs, oldest first.
    ended: Vec<EndedRun>,
    directory: Option<Directory>,
}

/// A state directory locked by this process.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    lock: File,
}

impl State {
    /// Opens a state directory. On failure, logs the consequences and counts in memory.
    ///
    /// # Errors
    ///
    /// Returns an error if memory cannot be mapped.
    pub(crate) fn open_or_in_memory(directory: Option<&Path>) -> io::Result<Self> {
        let Some(path) = directory else { return Self::in_memory() };
        Self::open(path).or_else(|error| {
            let directory = path.display();
            let error = match error.kind() {
                ErrorKind::WouldBlock => "in use by another process".to_owned(),
                _ => error.to_string(),
            };
            tracing::warn!(%directory, error, "no state directory: records not yet sent when the edge crashes are not counted, and the bundle is not saved");
            Self::in_memory()
        })
    }

    /// Opens the state directory at `path`, creating it if missing.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if another process uses the directory, `PermissionDenied` if other
    /// users can write to it, or the error of a failed system call.
    fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        let lock = File::open(path)?;
        let of = lock.metadata()?;
        if of.uid() != geteuid().as_raw() || of.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "owned by another user, or writable by others",
            ));
        }
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let known = epochs(path)?;
        let epoch = known.last().map_or(0, |last| last.saturating_add(1)).max(now_us());
        let mut ended: Vec<_> = known.iter().filter_map(|epoch| ended(path, *epoch)).collect();
        for too_old in ended.drain(..ended.len().saturating_sub(ENDED_MAX)) {
            remove(&file_of(path, too_old.epoch));
        }
        let started = create(path, &of, epoch).or_else(|error| {
            let directory = path.display();
            tracing::warn!(%directory, %error, "no counter file: records not yet sent when the edge crashes are not counted");
            Counters::in_memory()
        })?;
        Ok(Self { epoch, started, ended, directory: Some(Directory { path: path.to_owned(), lock }) })
    }

    /// Creates state that is lost with the process.
    ///
    /// # Errors
    ///
    /// Returns an error if memory cannot be mapped.
    fn in_memory() -> io::Result<Self> {
        Ok(Self { epoch: now_us(), started: Counters::in_memory()?, ended: Vec::new(), directory: None })
    }

    /// Returns the start time of this run in microseconds since the Unix epoch, increased if
    /// necessary to exceed the previous run's epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counts a response to be recorded that starts on `worker`.
    pub(crate) fn begin(&self, worker: usize) {
        self.started.counter(worker).fetch_add(1, Relaxed);
    }

    /// Returns the number of responses to be recorded that have started so far.
    pub(crate) fn started(&self) -> u64 {
        self.started.sum()
    }

    /// Returns the state directory, if this process has one. It stays locked until [`State::end`].
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|directory| directory.path.as_path())
    }

    /// Returns the earlier runs, starting with the run identified by `epoch`; empty if `epoch` is
    /// unknown.
    pub(crate) fn ended_from(&self, epoch: u64) -> &[EndedRun] {
        let first = self.ended.iter().position(|ended| ended.epoch == epoch);
        first.map_or(&[], |first| &self.ended[first..])
    }

    /// Stores the final count and releases the directory. Must be called after the last response is
    /// counted.
    pub(crate) fn end(&self) {
        let Some(Directory { path, lock }) = &self.directory else { return };
        if let Err(error) = persist(&file_of(path, self.epoch), self.epoch, self.started()) {
            let directory = path.display();
            tracing::warn!(%directory, %error, "response count not stored: it is lost when the machine restarts");
        }
        let _ = flock(lock, FlockOperation::Unlock);
    }
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

fn file_of(directory: &Path, epoch: u64) -> PathBuf {
    directory.join(format!("{epoch}.{EXTENSION}"))
}

/// Lists the epochs that have a counter file, in ascending order.
fn epochs(directory: &Path) -> io::Result<Vec<u64>> {
    let mut epochs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.'));
        epochs.extend(stem.and_then(|stem| stem.parse::<u64>().ok()));
    }
    epochs.sort_unstable();
    Ok(epochs)
}

/// Creates the counter page of a run; `of` is the directory's metadata.
fn create(directory: &Path, of: &fs::Metadata, epoch: u64) -> io::Result<Counters> {
    let path = file_of(directory, epoch);
    if is_in_memory(directory)? {
        return page(&path, epoch);
    }
    if !is_in_memory(Path::new(SHARED_MEMORY))? {
        return Err(io::Error::new(
            ErrorKind::Unsupported,
            format!("neither the directory nor {SHARED_MEMORY} is a tmpfs"),
        ));
    }
    let shared = format!("{SHARED_MEMORY}/thalweg-{:x}-{:x}-{epoch}.{EXTENSION}", of.dev(), of.ino());
    let counters = page(Path::new(&shared), epoch)?;
    symlink(&shared, &path).inspect_err(|_| remove(Path::new(&shared)))?;
    Ok(counters)
}

fn is_in_memory(directory: &Path) -> io::Result<bool> {
    Ok(u64::try_from(statfs(directory)?.f_type) == Ok(TMPFS))
}

/// Creates a counter page. Writes the whole page to reserve its space, because a store through the
/// mapping cannot report that the file system is full.
fn page(path: &Path, epoch: u64) -> io::Result<Counters> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let mapped = file.write_all(&content(epoch, 0)).and_then(|()| Counters::in_file(&file));
    mapped.inspect_err(|_| remove(path))
}

/// Formats a counter page whose total is `count`.
fn content(epoch: u64, count: u64) -> Vec<u8> {
    let mut content = header(epoch).concat();
    content.resize(HEADER_BYTES, 0);
    content.extend(count.to_ne_bytes());
    content.resize(FILE_BYTES, 0);
    content
}

/// Atomically replaces an ending run's link with a file that contains the total.
fn persist(path: &Path, epoch: u64, total: u64) -> io::Result<()> {
    let Ok(page) = fs::read_link(path) else { return Ok(()) };
    replace(path, &content(epoch, total), FILE_MODE)?;
    fs::remove_file(page)
}

/// Removes a file and, if it is a link, its target.
fn remove(path: &Path) {
    if let Ok(page) = fs::read_link(path) {
        let _ = fs::remove_file(page);
    }
    let _ = fs::remove_file(path);
}

fn header(epoch: u64) -> [[u8; 8]; 2] {
    [MAGIC.to_ne_bytes(), epoch.to_ne_bytes()]
}

/// Reads the count of an earlier run. Removes the file if it is invalid or the count is 0, but
/// keeps it if reading fails.
fn ended(directory: &Path, epoch: u64) -> Option<EndedRun> {
    let path = file_of(directory, epoch);
    match total(&path, epoch) {
        Ok(0) => remove(&path),
        Ok(total) => return Some(EndedRun { epoch, total }),
        Err(error) => {
            let file = path.display();
            tracing::warn!(%file, %error, "cannot read the response count of an earlier run");
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
            {
                remove(&path);
            }
        }
    }
    None
}

/// Reads the count in a counter file, which this user must own: anyone can create files in
/// `SHARED_MEMORY`, and after a reboot even under a name that this edge has used.
fn total(path: &Path, epoch: u64) -> io::Result<u64> {
    let foreign = || io::Error::new(ErrorKind::InvalidData, "not a counter file of this version");
    // Without this flag, opening a named pipe would block until the other end is opened.
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    let of = file.metadata()?;
    if !of.is_file() || of.uid() != geteuid().as_raw() {
        return Err(foreign());
    }
    let mut content = [0; FILE_BYTES];
    file.read_exact(&mut content)?;
    if !content.starts_with(&header(epoch).concat()) {
        return Err(foreign());
    }
    Ok(sum_of(&content))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
