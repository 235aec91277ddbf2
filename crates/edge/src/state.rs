//! What an edge knows over its starts, in its state directory: how many responses each of them has begun.
//!
//! ```text
//! DIR/               locked (flock) by the process that uses it
//! DIR/EPOCH.begun    the counters of one start (`thalweg_cache::counters`); its header: MAGIC, then the epoch, u64.
//!                    Until the start has ended, and after a kill, a link to that page in SHARED_MEMORY
//! DIR/bundle.json    the last good bundle (`bundle::kept`)
//! ```
//!
//! The page is in a tmpfs, in `DIR` itself if that is in one. On a disk each thread that counts would wait, now and then, for the
//! file system: it write-protects a page to write it out, and the next store into it may take a place in the journal
//! (<https://www.evanjones.ca/jvm-mmap-pause.html>). So a restart of the machine takes the count of a start that was killed; one
//! that ended is a file.
//!
//! A start makes its page before it takes a request, and never changes another's: a kill leaves nothing torn but a page that is
//! too short, of a start that took none.
//!
//! **Invariant:** a response is counted before a byte of it leaves, so what has a number, or was received, is in the count.
//! **Invariant:** epochs of one directory go up, whatever the clock says.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, OFlags, flock, statfs};
use rustix::process::geteuid;
use thalweg_cache::counters::{Counters, HEADER_BYTES, sum_of};

pub(crate) use thalweg_cache::counters::FILE_BYTES;

use crate::replace::replace;

/// Starts before this one that are known, of those that began a response; the oldest go.
const ENDED_MAX: usize = 64;
/// What a file of counters of this version begins with, as this machine orders bytes.
const MAGIC: u64 = u64::from_be_bytes(*b"twbegun1");
const EXTENSION: &str = "begun";
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// What a directory may not be: a link in it is followed.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// A tmpfs of every user.
const SHARED_MEMORY: &str = "/dev/shm";
/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: u64 = 0x0102_1994;

/// A start of this edge that began responses and has ended, somehow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it began.
    pub epoch: u64,
    /// Responses that it began: no number is as high.
    pub total: u64,
}

/// What is known of this start and of those before it.
#[derive(Debug)]
pub(crate) struct State {
    epoch: u64,
    begun: Counters,
    /// The oldest first.
    ended: Vec<Ended>,
    directory: Option<Directory>,
}

/// A state directory that is ours.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    lock: File,
}

impl State {
    /// That of a directory, if it can be had. Without it the edge delivers as well, and says what it lacks.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn of(directory: Option<&Path>) -> io::Result<Self> {
        let Some(path) = directory else { return Self::in_memory() };
        Self::open(path).or_else(|error| {
            let directory = path.display();
            let error = match error.kind() {
                ErrorKind::WouldBlock => "another process uses it".to_owned(),
                _ => error.to_string(),
            };
            tracing::warn!(%directory, error, "no state directory: if this edge is killed, what it had not told is not counted, and its bundle is not kept");
            Self::in_memory()
        })
    }

    /// That of a directory, which is made if it is not there.
    ///
    /// # Errors
    /// `WouldBlock` where another process uses it, `PermissionDenied` where it is not this user's alone; else what the system says.
    fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        let lock = File::open(path)?;
        let of = lock.metadata()?;
        if of.uid() != geteuid().as_raw() || of.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "it is another user's, or others may write into it",
            ));
        }
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let known = epochs(path)?;
        let epoch = known.last().map_or(0, |last| last.saturating_add(1)).max(now_us());
        let mut ended: Vec<_> = known.iter().filter_map(|epoch| ended(path, *epoch)).collect();
        for too_old in ended.drain(..ended.len().saturating_sub(ENDED_MAX)) {
            remove(&file_of(path, too_old.epoch));
        }
        let begun = create(path, &of, epoch).or_else(|error| {
            let directory = path.display();
            tracing::warn!(%directory, %error, "if this start of the edge is killed, what it had not told is not counted");
            Counters::in_memory()
        })?;
        Ok(Self { epoch, begun, ended, directory: Some(Directory { path: path.to_owned(), lock }) })
    }

    /// One that is gone with the process.
    ///
    /// # Errors
    /// When there is no memory.
    fn in_memory() -> io::Result<Self> {
        Ok(Self { epoch: now_us(), begun: Counters::in_memory()?, ended: Vec::new(), directory: None })
    }

    /// When this start began, microseconds since the Unix epoch; later where that would not be after the one before.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counts a response that begins on a worker.
    pub(crate) fn begin(&self, worker: usize) {
        self.begun.counter(worker).fetch_add(1, Relaxed);
    }

    /// Responses that have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.sum()
    }

    /// The directory, if there is one that this process alone uses, until [`State::end`].
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|directory| directory.path.as_path())
    }

    /// Starts from that of an epoch on, which have ended; none where that epoch is not one of them.
    pub(crate) fn ended_from(&self, epoch: u64) -> &[Ended] {
        let first = self.ended.iter().position(|ended| ended.epoch == epoch);
        first.map_or(&[], |first| &self.ended[first..])
    }

    /// Keeps the count, and lets another process have the directory, once nothing is counted any more.
    pub(crate) fn end(&self) {
        let Some(Directory { path, lock }) = &self.directory else { return };
        if let Err(error) = keep(&file_of(path, self.epoch), self.epoch, self.begun()) {
            let directory = path.display();
            tracing::warn!(%directory, %error, "how many responses were begun is known until the machine starts again");
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

/// The epochs of which there is a file, in order.
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

/// Makes the page of a start, for a directory of which `of` tells.
fn create(directory: &Path, of: &fs::Metadata, epoch: u64) -> io::Result<Counters> {
    let path = file_of(directory, epoch);
    if is_in_memory(directory)? {
        return page(&path, epoch);
    }
    if !is_in_memory(Path::new(SHARED_MEMORY))? {
        return Err(io::Error::new(
            ErrorKind::Unsupported,
            format!("neither it nor {SHARED_MEMORY} is a tmpfs"),
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

/// Makes the page. All of it is written, so that there is room for it: a mapping could not say that there is none.
fn page(path: &Path, epoch: u64) -> io::Result<Counters> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let mapped = file.write_all(&content(epoch, 0)).and_then(|()| Counters::in_file(&file));
    mapped.inspect_err(|_| remove(path))
}

/// What a page has of which one counter has counted.
fn content(epoch: u64, count: u64) -> Vec<u8> {
    let mut content = header(epoch).concat();
    content.resize(HEADER_BYTES, 0);
    content.extend(count.to_ne_bytes());
    content.resize(FILE_BYTES, 0);
    content
}

/// Makes the link of a start that ends a file, in one step.
fn keep(path: &Path, epoch: u64, total: u64) -> io::Result<()> {
    let Ok(page) = fs::read_link(path) else { return Ok(()) };
    replace(path, &content(epoch, total), FILE_MODE)?;
    fs::remove_file(page)
}

/// Removes a file, and that to which it is a link.
fn remove(path: &Path) {
    if let Ok(page) = fs::read_link(path) {
        let _ = fs::remove_file(page);
    }
    let _ = fs::remove_file(path);
}

fn header(epoch: u64) -> [[u8; 8]; 2] {
    [MAGIC.to_ne_bytes(), epoch.to_ne_bytes()]
}

/// What the file of an earlier start says. It is removed where it does not say it, or the start began no response; one that cannot
/// be read now stays.
fn ended(directory: &Path, epoch: u64) -> Option<Ended> {
    let path = file_of(directory, epoch);
    match total(&path, epoch) {
        Ok(0) => remove(&path),
        Ok(total) => return Some(Ended { epoch, total }),
        Err(error) => {
            let file = path.display();
            tracing::warn!(%file, %error, "how many responses an earlier start has begun is not known");
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
            {
                remove(&path);
            }
        }
    }
    None
}

/// What a file says, if it is one of ours: everybody can make one in `SHARED_MEMORY`, after a restart of the machine also under the
/// name of ours.
fn total(path: &Path, epoch: u64) -> io::Result<u64> {
    let foreign = || io::Error::new(ErrorKind::InvalidData, "it is of another version, or of something else");
    // A pipe would have us wait for its other end.
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
