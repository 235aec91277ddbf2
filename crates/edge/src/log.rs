//! The request log: one record a response, from the workers to a file and to whoever follows.
//!
//! Workers never wait for it: records go through a bounded queue, and what does not fit is counted as lost.
//!
//! **Invariant:** only workers and the writer hold senders, so the writer ends with the workers, and followers,
//! who have had every record by then, end with the writer.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_record::ResponseRecord;
use tokio::sync::broadcast;

use crate::config::LogTo;

/// Records that wait for the log thread.
const QUEUE_MAX: usize = 16 * 1024;
/// Records that a follower may lag behind.
const FOLLOWER_LAG_MAX: usize = 16 * 1024;

/// The workers' end.
#[derive(Debug)]
pub(crate) struct Log {
    queue: SyncSender<ResponseRecord>,
    to_file: bool,
    followers: broadcast::Sender<Numbered>,
    records: Records,
}

/// A record with its number.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// Of all responses since the start of this edge, from 0: a number that a follower is not given is a response whose record was
    /// lost on the way, or was not made because nobody followed.
    pub number: u64,
    /// What it says.
    pub record: Arc<ResponseRecord>,
}

/// The followers' end: every record from now on, until the edge has ended.
#[derive(Debug, Clone)]
pub struct Records {
    followers: broadcast::WeakSender<Numbered>,
    epoch: u64,
    lost: Arc<AtomicU64>,
    unmade: Arc<AtomicU64>,
}

impl Deref for Numbered {
    type Target = ResponseRecord;

    fn deref(&self) -> &ResponseRecord {
        &self.record
    }
}

impl Records {
    /// Follows from here on. Who lags is told how much it missed; closed once the edge has ended.
    pub fn follow(&self) -> broadcast::Receiver<Numbered> {
        match self.followers.upgrade() {
            Some(followers) => followers.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// When the edge began to number its records, microseconds since the Unix epoch: it tells its starts apart.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Records that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// What writes the log, on a thread of its own.
#[derive(Debug)]
pub(crate) struct LogWriter {
    queue: Receiver<ResponseRecord>,
    out: Option<Out>,
    followers: broadcast::Sender<Numbered>,
    taken: u64,
    records: Records,
}

#[derive(Debug)]
enum Out {
    Stdout(io::Stdout),
    File(LogFile),
}

/// A file that somebody may move away, to rotate it: then a new one is begun under the same name.
#[derive(Debug)]
struct LogFile {
    file: File,
    path: PathBuf,
    looked: Instant,
}

/// How often it is looked whether the file was moved away.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, path: path.to_owned(), looked: Instant::now() })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            if self.was_moved()? {
                *self = Self::open(&self.path)?;
            }
        }
        self.file.write_all(lines)
    }

    fn was_moved(&self) -> io::Result<bool> {
        let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let own = place(self.file.metadata()?);
        Ok(std::fs::metadata(&self.path).map(place).ok() != Some(own))
    }
}

impl Out {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(lines).and_then(|()| out.flush()),
            Self::File(file) => file.write(lines),
        }
    }
}

/// A log that goes to `to`.
///
/// # Errors
/// When the file cannot be opened.
pub(crate) fn open(to: &LogTo) -> io::Result<(Log, LogWriter)> {
    let out = match to {
        LogTo::Off => None,
        LogTo::Stdout => Some(Out::Stdout(io::stdout())),
        LogTo::File(path) => Some(Out::File(LogFile::open(path)?)),
    };
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let (followers, _) = broadcast::channel(FOLLOWER_LAG_MAX);
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let records = Records {
        followers: followers.downgrade(),
        epoch: u64::try_from(epoch).unwrap_or(u64::MAX),
        lost: Arc::default(),
        unmade: Arc::default(),
    };
    let log =
        Log { queue: sender, to_file: out.is_some(), followers: followers.clone(), records: records.clone() };
    Ok((log, LogWriter { queue, out, followers, taken: 0, records }))
}

impl Log {
    /// Whether anybody wants records: else they are not even made, but counted by [`Log::pass_over`].
    pub(crate) fn is_followed(&self) -> bool {
        self.to_file || self.followers.receiver_count() > 0
    }

    /// Counts a response of which nobody wants the record.
    pub(crate) fn pass_over(&self) {
        self.records.unmade.fetch_add(1, Relaxed);
    }

    pub(crate) fn put(&self, record: ResponseRecord) {
        if self.queue.try_send(record).is_err() {
            self.records.lost.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }
}

impl LogWriter {
    /// Writes until all workers are gone. Lines are gathered while more records wait, so a burst costs few writes.
    pub(crate) fn run(mut self) {
        let mut lines = Vec::new();
        while let Ok(first) = self.queue.recv() {
            self.take(first, &mut lines);
            loop {
                match self.queue.try_recv() {
                    Ok(record) if lines.len() < LINES_BYTES_MAX => self.take(record, &mut lines),
                    Ok(record) => {
                        self.flush(&mut lines);
                        self.take(record, &mut lines);
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.flush(&mut lines);
        }
    }

    fn take(&mut self, record: ResponseRecord, lines: &mut Vec<u8>) {
        if self.out.is_some() {
            record.append_json_line(lines);
        }
        let number = self.taken + self.records.lost() + self.records.unmade.load(Relaxed);
        self.taken += 1;
        // No follower is no error.
        let _ = self.followers.send(Numbered { number, record: Arc::new(record) });
    }

    fn flush(&mut self, lines: &mut Vec<u8>) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.write(lines)
        {
            tracing::error!(%error, "cannot write the request log");
        }
        lines.clear();
    }
}

/// Bytes of lines that are gathered into one write.
const LINES_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let directory = std::env::temp_dir().join(format!("thalweg-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("log"), directory.join("log.1"));
        let mut log = LogFile::open(&path).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        log.looked -= LOOK_EVERY;
        log.write(b"two\n").unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
