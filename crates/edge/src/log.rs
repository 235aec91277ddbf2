//! The request log: one record a response, from the workers to a file and to whoever follows.
//!
//! A response is counted as it begins, and ends in a record, or in one that is passed over. What ends in neither, cut off with its
//! worker, is lost at the end of the edge, or with it if that is killed: the count stays (`crate::state`).
//!
//! Workers never wait for it: records go through a bounded queue, and what does not fit is counted as lost. Records are made while
//! somebody follows, and for a moment after that (and after the start): a follower that is started again misses none.
//!
//! **Invariant:** only workers hold senders of the queue and only the writer one to followers, so the writer ends with the
//! workers, and followers, who have had every record by then, end with the writer.

mod file;
mod recent;

use std::io::{self, Write};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_record::ResponseRecord;
use tokio::sync::broadcast;

pub use recent::Follower;

use crate::config::LogTo;
use crate::state::{Ended, State};
use file::LogFile;
use recent::Recent;

/// Records that wait for the log thread. An edge that is killed has told nobody of these, and a follower not of those that it lags
/// behind: they are counted.
const QUEUE_MAX: usize = 16 * 1024;
/// Records that a follower may lag behind.
const FOLLOWER_LAG_MAX: usize = 16 * 1024;
/// How long records are made and kept though nobody follows. It is to cover the start of an agent, and its wait for an edge.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// The workers' end.
#[derive(Debug)]
pub(crate) struct Log {
    queue: SyncSender<ResponseRecord>,
    records: Records,
}

/// A response that has begun, and was counted. It ends in a record, or in one that is passed over.
#[derive(Debug)]
#[must_use]
pub(crate) struct Begun {
    at: Instant,
}

impl Begun {
    /// When that was.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }
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

/// The followers' end: every record, until the edge has ended.
#[derive(Debug, Clone)]
pub struct Records {
    followers: broadcast::WeakSender<Numbered>,
    shared: Arc<Shared>,
}

/// What followers, workers and the writer have in common.
#[derive(Debug)]
struct Shared {
    state: State,
    /// Records that found room in the queue.
    put: AtomicU64,
    lost: AtomicU64,
    unmade: AtomicU64,
    /// Whether records are made.
    is_wanted: AtomicBool,
    /// How many responses there were, once the writer has ended.
    total: AtomicU64,
    recent: Mutex<Recent>,
}

impl Shared {
    /// Responses without a record.
    fn passed_over(&self) -> u64 {
        self.lost.load(Relaxed) + self.unmade.load(Relaxed)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Numbered {
    type Target = ResponseRecord;

    fn deref(&self) -> &ResponseRecord {
        &self.record
    }
}

impl Records {
    /// Follows from here on. Who lags is told how much it missed; closed once the edge has ended.
    pub fn follow(&self) -> Follower {
        let mut follower = self.follow_from(self.shared.put.load(Relaxed) + self.shared.passed_over());
        // One that was told just now may not have been counted yet.
        follower.missed.clear();
        follower
    }

    /// Follows from a number on, as far as those that have been are still there.
    pub fn follow_from(&self, number: u64) -> Follower {
        let recent = self.shared.recent();
        let next = match self.followers.upgrade() {
            Some(followers) => followers.subscribe(),
            None => broadcast::channel(1).1,
        };
        self.shared.is_wanted.store(true, Relaxed);
        Follower { from: number, missed: recent.from(number), next, shared: self.shared.clone() }
    }

    /// When the edge began to number its records, microseconds since the Unix epoch: it tells its starts apart.
    pub fn epoch(&self) -> u64 {
        self.shared.state.epoch()
    }

    /// Starts of this edge from that of an epoch on, which have ended, the oldest first. None where it knows no start of that epoch,
    /// so that nothing is told of another edge's.
    pub fn ended_from(&self, epoch: u64) -> &[Ended] {
        self.shared.state.ended_from(epoch)
    }

    /// Responses that have begun.
    pub fn begun(&self) -> u64 {
        self.shared.state.begun()
    }

    /// Records that found the queue full, and once the edge has ended those of responses that were cut off with it.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// How many responses the edge has had, for a follower that was told of its end: no number is as high.
    pub fn total(&self) -> u64 {
        self.shared.total.load(Relaxed)
    }
}

/// What writes the log, on a thread of its own.
#[derive(Debug)]
pub(crate) struct LogWriter {
    queue: Receiver<ResponseRecord>,
    out: Option<Out>,
    followers: broadcast::Sender<Numbered>,
    taken: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Out {
    Stdout(io::Stdout),
    File(LogFile),
}

impl Out {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(lines).and_then(|()| out.flush()),
            Self::File(file) => file.write(lines),
        }
    }
}

/// A log that goes to `to`, of the start that `state` counts.
///
/// # Errors
/// When the file cannot be opened.
pub(crate) fn open(to: &LogTo, state: State) -> io::Result<(Log, LogWriter)> {
    let out = match to {
        LogTo::Off => None,
        LogTo::Stdout => Some(Out::Stdout(io::stdout())),
        LogTo::File(path) => Some(Out::File(LogFile::open(path)?)),
    };
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let (followers, _) = broadcast::channel(FOLLOWER_LAG_MAX);
    let shared = Arc::new(Shared {
        state,
        put: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        unmade: AtomicU64::new(0),
        is_wanted: AtomicBool::new(true),
        total: AtomicU64::new(0),
        recent: Mutex::new(Recent::new()),
    });
    let records = Records { followers: followers.downgrade(), shared: shared.clone() };
    let writer = LogWriter { queue, out, followers, taken: 0, shared };
    Ok((Log { queue: sender, records }, writer))
}

impl Log {
    /// Counts a response that begins on a worker, before a byte of it leaves.
    pub(crate) fn begin(&self, worker: usize) -> Begun {
        self.records.shared.state.begin(worker);
        Begun { at: Instant::now() }
    }

    /// Whether anybody wants records: else they are not even made, but counted by [`Log::pass_over`].
    pub(crate) fn is_followed(&self) -> bool {
        self.records.shared.is_wanted.load(Relaxed)
    }

    /// Counts a response of which nobody wants the record.
    pub(crate) fn pass_over(&self, _: Begun) {
        self.records.shared.unmade.fetch_add(1, Relaxed);
    }

    pub(crate) fn put(&self, _: Begun, record: ResponseRecord) {
        let shared = &self.records.shared;
        let counter = if self.queue.try_send(record).is_ok() { &shared.put } else { &shared.lost };
        counter.fetch_add(1, Relaxed);
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
            self.rest();
        }
        self.end();
    }

    /// Counts what ended without a record, and as many responses as began: no worker is left.
    fn end(&self) {
        let shared = &self.shared;
        let (begun, told) = (shared.state.begun(), self.taken + shared.passed_over());
        shared.lost.fetch_add(begun.saturating_sub(told), Relaxed);
        shared.total.store(begun, Relaxed);
        shared.state.end();
    }

    fn take(&mut self, record: ResponseRecord, lines: &mut Vec<u8>) {
        if self.out.is_some() {
            record.append_json_line(lines);
        }
        let record = Numbered { number: self.taken + self.shared.passed_over(), record: Arc::new(record) };
        self.taken += 1;
        let mut recent = self.shared.recent();
        recent.push(record.clone());
        // No follower is no error.
        let _ = self.followers.send(record);
    }

    /// Has no more records made, and forgets those that were, once nobody has followed for long enough.
    fn rest(&mut self) {
        let mut recent = self.shared.recent();
        if self.followers.receiver_count() == 0 && recent.left.elapsed() >= AWAY_MAX {
            self.shared.is_wanted.store(self.out.is_some(), Relaxed);
            recent.clear();
        }
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

    fn record() -> ResponseRecord {
        let line = r#"{"v":1,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a",
            "path":"/","status":200,"bytes":1,"duration_us":1,"cache":"hit","protocol":"HTTP/1.1","complete":true}"#;
        ResponseRecord::from_json(line).unwrap()
    }

    /// What a worker does at the end of a response.
    fn respond(log: &Log) {
        let begun = log.begin(0);
        if log.is_followed() {
            log.put(begun, record());
        } else {
            log.pass_over(begun);
        }
    }

    fn numbers(follower: &mut Follower) -> Vec<u64> {
        let told =
            std::iter::from_fn(|| follower.missed.pop_front().or_else(|| follower.next.try_recv().ok()));
        told.map(|told| told.number).collect()
    }

    #[test]
    fn a_follower_that_comes_back_has_each_record_once() {
        let (log, mut writer) = open(&LogTo::Off, State::of(None).unwrap()).unwrap();
        let records = log.records().clone();
        let step = |writer: &mut LogWriter, count: usize| {
            for _ in 0..count {
                respond(&log);
            }
            let mut lines = Vec::new();
            while let Ok(record) = writer.queue.try_recv() {
                writer.take(record, &mut lines);
            }
            writer.rest();
        };
        step(&mut writer, 3); // nobody follows yet
        let mut first = records.follow_from(0);
        step(&mut writer, 2);
        assert_eq!(numbers(&mut first), [0, 1, 2, 3, 4]);
        drop(first);
        step(&mut writer, 2);
        let (mut second, mut other) = (records.follow_from(5), records.follow());
        step(&mut writer, 1);
        assert_eq!((numbers(&mut second), numbers(&mut other)), (vec![5, 6, 7], vec![7]));

        // Followed for long, but not for a moment: records are made. Not for long: they are not, and have their numbers.
        drop((second, other));
        step(&mut writer, 1);
        records.shared.recent().left -= AWAY_MAX;
        step(&mut writer, 1);
        step(&mut writer, 5);
        let mut third = records.follow_from(8);
        step(&mut writer, 1);
        assert_eq!(numbers(&mut third), [15], "8 and 9 were made and forgotten, 10 to 14 were not made");
        let _cut_off = log.begin(1);
        drop(log);
        writer.run();
        assert_eq!((records.begun(), records.total(), records.lost()), (17, 17, 1));
        assert!(third.next.is_closed());
    }
}
