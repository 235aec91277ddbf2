//! Request log: one record per response, passed from the workers to a file and to followers.
//!
//! Each response is counted when it starts and again when it ends, whether or not a record is
//! created. A response that never ends, because its worker stopped, is counted as lost when the
//! edge exits or, after a crash, at the next start (`crate::state`).
//!
//! Responses may be sampled by client (`sample`): those to clients outside the sample get neither a
//! record nor a record number. The others carry the sampling ratio, and stand for all of them.
//!
//! ```text
//! worker ── Entry ──→ its ring (ring, compact) ─┐
//! worker ── Entry ──→ its ring ─────────────────┴→ writer: ResponseRecord ─┬→ file
//!                                                                          └→ recent ← followers
//! ```
//!
//! Each worker copies its entries into its own bounded ring; an entry that does not fit is counted
//! as lost. The writer parses CMCD, then builds and formats the records. Workers write entries
//! while the log has a file or a follower, and for [`FOLLOWER_ABSENCE`] after the edge starts
//! or the last follower disconnects, so that a restarting follower misses no records.
//!
//! **Invariant:** started responses = records + lost + without a record + sampled out + in
//! progress.
//! **Invariant:** on the worker, logging a response takes no lock, allocates nothing, and wakes a
//! thread only if the writer is asleep or the ring is half full.
//! **Invariant:** only workers hold ring producers, and only the writer closes the recent records.
//! The writer therefore exits after the workers, and each follower receives every record before its
//! stream closes.

mod compact;
mod file;
mod follower;
mod recent;
mod ring;
mod sample;
mod writer;

use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_record::{CacheResult, ResponseRecord};
use tokio::sync::Notify;

pub(crate) use compact::Entry;
pub use follower::{FollowError, Follower};
pub(crate) use recent::RecordsKept;
pub(crate) use ring::{Deferred, Ring};
pub(crate) use sample::ClientSample;
pub(crate) use writer::LogWriter;

use crate::config::LogDestination;
use crate::state::{EndedRun, State};
use file::LogFile;
use recent::Recent;
use ring::{Bell, Counts, STATUS_CLASSES};
use writer::Destination;

/// Minimum time for which records are created while no follower is connected: enough for an agent
/// to start or reconnect. If records are kept for longer than this, that time applies.
const FOLLOWER_ABSENCE: Duration = Duration::from_secs(60);

/// The workers' handle to the log. Each worker also has a [`Ring`].
#[derive(Debug)]
pub(crate) struct Log {
    records: Records,
}

/// A response that has started and is already counted.
#[derive(Debug)]
#[must_use]
pub(crate) struct StartedResponse {
    at: Instant,
    /// Whether the client is sampled, so that the response gets a record.
    is_sampled: bool,
}

/// A record with its number.
#[derive(Debug, Clone)]
pub struct NumberedRecord {
    /// Index in the order of writing, from 0 at each start of the edge. A record is written once
    /// its response and, if measured, the delivery have ended. A missing number means that the
    /// record was lost, or never created because the log had no follower.
    pub number: u64,
    /// The record.
    pub record: Arc<ResponseRecord>,
}

/// The followers' handle to the log. Its streams close once the edge has exited.
#[derive(Debug, Clone)]
pub struct Records {
    shared: Arc<Shared>,
}

/// State shared by followers, workers and the writer.
#[derive(Debug)]
struct Shared {
    state: State,
    sample: ClientSample,
    bell: Arc<Bell>,
    /// Response counts, one per worker, indexed by worker number.
    counts: Vec<Arc<Counts>>,
    /// Whether records are created; otherwise, finished responses are only counted.
    is_recording: AtomicBool,
    /// Number of responses cut off because their worker stopped; set when the writer exits.
    cut_off: AtomicU64,
    /// Total number of responses to be recorded; set when the writer exits.
    total: AtomicU64,
    recent: Mutex<Recent>,
    /// Wakes followers after new records, and when the writer exits.
    arrivals: Notify,
}

impl Shared {
    fn appended(&self) -> u64 {
        self.counts.iter().map(|counts| counts.appended.get()).sum()
    }

    fn lost(&self) -> u64 {
        self.counts.iter().map(|counts| counts.lost.get()).sum()
    }

    /// Returns the number of sampled responses that ended without a record.
    fn without_record(&self) -> u64 {
        self.lost() + self.counts.iter().map(|counts| counts.unrecorded.get()).sum::<u64>()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Age and size of the records kept for followers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Age of the oldest record.
    pub(crate) time: Duration,
    /// Approximate memory used, in bytes.
    pub(crate) bytes: usize,
    /// Memory limit, in bytes.
    pub(crate) bytes_max: usize,
}

impl Deref for NumberedRecord {
    type Target = ResponseRecord;

    fn deref(&self) -> &ResponseRecord {
        &self.record
    }
}

impl Records {
    /// Follows all records from now on. A lagging follower receives the number of records it
    /// missed. The follower closes once the edge has exited.
    pub fn follow(&self) -> Follower {
        let number = self.shared.appended() + self.shared.without_record();
        // A record may have been kept just now but not yet counted, so skip all kept records.
        self.start_following(number, Recent::end)
    }

    /// Follows the kept records numbered `number` and above, and all later records.
    pub fn follow_from(&self, number: u64) -> Follower {
        self.start_following(number, |recent| recent.position(number))
    }

    fn start_following(&self, number: u64, position: impl FnOnce(&Recent) -> u64) -> Follower {
        let mut recent = self.shared.recent();
        recent.followers += 1;
        recent.is_kept = true;
        self.shared.is_recording.store(true, Relaxed);
        Follower::new(number, position(&recent), self.shared.clone())
    }

    /// Returns the age and size of the records currently kept for followers.
    pub(crate) fn kept(&self) -> Kept {
        let recent = self.shared.recent();
        Kept { time: recent.age(Instant::now()), bytes: recent.bytes(), bytes_max: recent.limits.bytes_max }
    }

    /// Returns the start time of this run of the edge, in microseconds since the Unix epoch; unique
    /// among the edge's runs.
    pub fn epoch(&self) -> u64 {
        self.shared.state.epoch()
    }

    /// Returns this edge's earlier runs, starting with the run identified by `epoch`, oldest first.
    /// Empty if `epoch` is unknown, for example because it belongs to another edge.
    pub fn ended_from(&self, epoch: u64) -> &[EndedRun] {
        self.shared.state.ended_from(epoch)
    }

    /// Returns the number of responses started so far.
    pub fn started(&self) -> u64 {
        self.shared.state.started() + self.sampled_out()
    }

    /// Returns how many of these responses get no record, because their client is not sampled.
    pub fn sampled_out(&self) -> u64 {
        self.shared.counts.iter().map(|counts| counts.sampled_out.get()).sum()
    }

    /// Returns the number of records dropped because a ring was full. Once the edge has exited, the
    /// number includes the responses cut off when it stopped.
    pub fn lost(&self) -> u64 {
        self.shared.lost() + self.shared.cut_off.load(Relaxed)
    }

    /// Returns the number of finished responses, by cache result and first digit of the status.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (CacheResult, usize, u64)> {
        let count = |cache: CacheResult, class: usize| {
            self.shared.counts.iter().map(|counts| counts.responses[cache as usize][class].get()).sum()
        };
        let classes =
            move |&cache| (0..STATUS_CLASSES).map(move |class| (cache, class + 1, count(cache, class)));
        CacheResult::ALL.iter().flat_map(classes)
    }

    /// Returns the number of content bytes that finished responses have written to the kernel.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.counts.iter().map(|counts| counts.bytes.get()).sum()
    }

    /// Returns the total number of responses to be recorded, which exceeds every record number; 0
    /// until the edge has exited.
    pub fn total(&self) -> u64 {
        self.shared.total.load(Relaxed)
    }
}

/// Opens the log with destination `to` and one ring per worker. Responses of the clients in
/// `sample` are recorded; those are counted in `state`, and their records kept for followers within
/// `kept`.
///
/// # Errors
///
/// Returns an error if the file cannot be opened.
pub(crate) fn open(
    to: &LogDestination,
    state: State,
    workers: usize,
    kept: RecordsKept,
    sample: ClientSample,
) -> io::Result<(Log, Vec<Ring>, LogWriter)> {
    let out = match to {
        LogDestination::Off => None,
        LogDestination::Stdout => Some(Destination::Stdout(io::stdout())),
        LogDestination::File(path) => Some(Destination::File(LogFile::open(path)?)),
    };
    let bell = Arc::<Bell>::default();
    let (mut rings, mut outlets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..workers {
        let (ring, outlet, of_ring) = ring::ring(&bell);
        rings.push(ring);
        outlets.push(outlet);
        counts.push(of_ring);
    }
    let shared = Arc::new(Shared {
        state,
        sample,
        bell,
        counts,
        is_recording: AtomicBool::new(true),
        cut_off: AtomicU64::new(0),
        total: AtomicU64::new(0),
        recent: Mutex::new(Recent::new(kept)),
        arrivals: Notify::new(),
    });
    let records = Records { shared: shared.clone() };
    Ok((Log { records }, rings, LogWriter::new(outlets, out, shared)))
}

impl Log {
    /// Counts a response to `client` that starts on `worker`, before its first byte is sent.
    pub(crate) fn begin(&self, worker: usize, client: IpAddr) -> StartedResponse {
        let shared = &self.records.shared;
        let is_sampled = self.samples(client);
        if is_sampled {
            shared.state.begin(worker);
        } else {
            shared.counts[worker].sampled_out.add_one();
        }
        StartedResponse { at: Instant::now(), is_sampled }
    }

    /// Returns whether the client is in the sample now.
    pub(crate) fn samples(&self, client: IpAddr) -> bool {
        self.records.shared.sample.includes_now(client)
    }

    /// Returns whether a record of the response is created.
    pub(crate) fn records_response(&self, started: &StartedResponse) -> bool {
        started.is_sampled && self.is_recording()
    }

    /// Returns whether records are created.
    pub(crate) fn is_recording(&self) -> bool {
        self.records.shared.is_recording.load(Relaxed)
    }

    /// Writes an ended response to this worker's ring, or only counts it if its client is not
    /// sampled, or while no records are created.
    pub(crate) fn append(&self, started: StartedResponse, entry: Entry<'_>) {
        if !started.is_sampled {
            Ring::count_sampled_out(entry.sent);
        } else if self.is_recording() {
            Ring::append(started.at, entry);
        } else {
            Ring::count_without_record(entry.sent);
        }
    }

    /// Counts a finished response whose record waits for its delivery.
    pub(crate) fn defer(&self, started: StartedResponse, entry: Entry<'_>) -> Deferred {
        Ring::defer(started.at, entry, started.is_sampled)
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
