//! The request log: one record a response, from the workers to a file and to whoever follows.
//!
//! Workers never wait for it: records go through a bounded queue, and what does not fit is counted as lost.
//!
//! **Invariant:** only workers and the writer hold senders, so the writer ends with the workers, and followers,
//! who have had every record by then, end with the writer.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use thalweg_record::ResponseRecord;
use tokio::sync::broadcast;

use crate::config::LogTo;

/// Records that wait for the log thread.
const QUEUE_MAX: usize = 16 * 1024;
/// Records that a follower may lag behind.
const FOLLOWER_LAG_MAX: usize = 1024;

/// The workers' end.
#[derive(Debug)]
pub(crate) struct Log {
    queue: SyncSender<ResponseRecord>,
    to_file: bool,
    followers: broadcast::Sender<Arc<ResponseRecord>>,
    records: Records,
}

/// The followers' end: every record from now on, until the edge has ended.
#[derive(Debug, Clone)]
pub struct Records {
    followers: broadcast::WeakSender<Arc<ResponseRecord>>,
    lost: Arc<AtomicU64>,
}

impl Records {
    /// Follows from here on. Who lags is told how much it missed; closed once the edge has ended.
    pub fn follow(&self) -> broadcast::Receiver<Arc<ResponseRecord>> {
        match self.followers.upgrade() {
            Some(followers) => followers.subscribe(),
            None => broadcast::channel(1).1,
        }
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
    followers: broadcast::Sender<Arc<ResponseRecord>>,
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
    let records = Records { followers: followers.downgrade(), lost: Arc::default() };
    let log = Log { queue: sender, to_file: out.is_some(), followers: followers.clone(), records };
    Ok((log, LogWriter { queue, out, followers }))
}

impl Log {
    /// Whether anybody wants records: else they are not even made.
    pub(crate) fn is_followed(&self) -> bool {
        self.to_file || self.followers.receiver_count() > 0
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

    fn take(&self, record: ResponseRecord, lines: &mut Vec<u8>) {
        if self.out.is_some() {
            record.append_json_line(lines);
        }
        // No follower is no error.
        let _ = self.followers.send(Arc::new(record));
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
