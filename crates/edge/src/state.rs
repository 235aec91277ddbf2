//! What an edge knows over its starts: how many responses each of them has begun, in its state directory.
//!
//! ```text
//! DIR/               locked (flock) by the process that uses it
//! DIR/EPOCH.begun    the counters of one start (`thalweg_cache::counters`); its header: MAGIC, then the epoch, u64
//! ```
//!
//! A start makes its file before it takes a request, and never changes another's: a kill leaves nothing torn but a file that is
//! too short, of a start that took none. The kernel writes the files to the disk when it likes: a loss of power takes what was
//! counted in about the last half minute.
//!
//! **Invariant:** a response is counted before a byte of it leaves, so what has a number, or was received, is in the count.
//! **Invariant:** epochs of one directory go up, whatever the clock says.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use thalweg_cache::counters::{Counters, sum_of};

pub(crate) use thalweg_cache::counters::FILE_BYTES;

/// Starts before this one that are known, of those that began a response; the oldest go.
const ENDED_MAX: usize = 64;
/// What a file of counters of this version begins with, as this machine orders bytes.
const MAGIC: u64 = u64::from_be_bytes(*b"twbegun1");
const EXTENSION: &str = "begun";
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

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
    /// The directory, for its lock.
    directory: Option<File>,
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
                io::ErrorKind::WouldBlock => "another process uses it".to_owned(),
                _ => error.to_string(),
            };
            tracing::warn!(%directory, error, "no state directory: if this edge is killed, what it had not told is not counted");
            Self::in_memory()
        })
    }

    /// That of a directory, which is made if it is not there.
    ///
    /// # Errors
    /// `WouldBlock` where another process uses it; else what the system says.
    fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        let directory = File::open(path)?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        let known = epochs(path)?;
        let epoch = known.last().map_or(0, |last| last.saturating_add(1)).max(now_us());
        let file = file_of(path, epoch);
        let begun = create(&file, epoch).inspect_err(|_| {
            let _ = fs::remove_file(&file);
        })?;
        let mut ended: Vec<_> = known.iter().filter_map(|epoch| ended(path, *epoch)).collect();
        for too_old in ended.drain(..ended.len().saturating_sub(ENDED_MAX)) {
            let _ = fs::remove_file(file_of(path, too_old.epoch));
        }
        Ok(Self { epoch, begun, ended, directory: Some(directory) })
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

    /// Starts from that of an epoch on, which have ended; none where that epoch is not one of them.
    pub(crate) fn ended_from(&self, epoch: u64) -> &[Ended] {
        let first = self.ended.iter().position(|ended| ended.epoch == epoch);
        first.map_or(&[], |first| &self.ended[first..])
    }

    /// Lets another process have the directory, once nothing is counted any more.
    pub(crate) fn end(&self) {
        if let Some(directory) = &self.directory {
            let _ = flock(directory, FlockOperation::Unlock);
        }
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

/// Makes the file of a start. All of it is written, so that the disk has room for it: a mapping could not say that there is none.
fn create(path: &Path, epoch: u64) -> io::Result<Counters> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let mut content = header(epoch).concat();
    content.resize(FILE_BYTES, 0);
    file.write_all(&content)?;
    Counters::in_file(&file)
}

fn header(epoch: u64) -> [[u8; 8]; 2] {
    [MAGIC.to_ne_bytes(), epoch.to_ne_bytes()]
}

/// What the file of an earlier start says. It is removed where it does not say it, or the start began no response.
fn ended(directory: &Path, epoch: u64) -> Option<Ended> {
    let path = file_of(directory, epoch);
    match total(&path, epoch) {
        Ok(total) if total > 0 => return Some(Ended { epoch, total }),
        Ok(_) => {}
        Err(error) => {
            let file = path.display();
            tracing::warn!(%file, %error, "how many responses an earlier start has begun is not known");
        }
    }
    let _ = fs::remove_file(path);
    None
}

fn total(path: &Path, epoch: u64) -> io::Result<u64> {
    let (mut file, mut content) = (File::open(path)?, [0; FILE_BYTES]);
    file.read_exact(&mut content)?;
    if content.starts_with(&header(epoch).concat()) {
        Ok(sum_of(&content))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another version, or of something else"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
