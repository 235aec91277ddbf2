//! Log writer: drains the workers' rings to the file and the followers, on its own thread.
//!
//! It drains all rings every [`ROUND_EVERY`]. After [`EMPTY_ROUNDS_MAX`] rounds without an entry,
//! it sleeps until a worker wakes it.
//!
//! **Invariant:** across all workers, records are numbered in the order in which their responses
//! ended, except that a record that waits for its delivery is numbered once the delivery has ended.
//! `Records::follow` relies on this: a response that ends after the call gets a higher number than
//! any response appended before it.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use thalweg_record::ResponseRecord;

use super::compact::Clock;
use super::file::LogFile;
use super::ring::Outlet;
use super::{FOLLOWER_ABSENCE, NumberedRecord, Shared};

/// Interval between rounds, which bounds the delay of a record.
const ROUND_EVERY: Duration = Duration::from_millis(10);
/// Number of consecutive rounds without an entry after which the writer sleeps.
const EMPTY_ROUNDS_MAX: u32 = 100;
/// Maximum size of the log lines collected for one write, in bytes.
const LINES_BYTES_MAX: usize = 64 * 1024;

/// The log writer and its buffers.
#[derive(Debug)]
pub(crate) struct LogWriter {
    outlets: Vec<Outlet>,
    out: Option<Destination>,
    written: u64,
    shared: Arc<Shared>,
    // Reused allocations.
    texts: Vec<u8>,
    lines: Vec<u8>,
}

/// Destination of log lines.
#[derive(Debug)]
pub(super) enum Destination {
    Stdout(io::Stdout),
    File(LogFile),
}

impl Destination {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(lines).and_then(|()| out.flush()),
            Self::File(file) => file.write(lines),
        }
    }
}

impl LogWriter {
    pub(super) fn new(outlets: Vec<Outlet>, out: Option<Destination>, shared: Arc<Shared>) -> Self {
        Self { outlets, out, written: 0, shared, texts: Vec::new(), lines: Vec::new() }
    }

    /// Writes records until all workers have exited.
    pub(crate) fn run(self) {
        self.run_with(ROUND_EVERY, EMPTY_ROUNDS_MAX);
    }

    pub(super) fn run_with(mut self, round_every: Duration, empty_rounds_max: u32) {
        let shared = self.shared.clone();
        shared.bell.listen();
        let mut empty_rounds = 0;
        loop {
            // Check before the round: once all workers have exited, the rings contain every
            // remaining entry.
            let is_last = self.outlets.iter().all(Outlet::is_abandoned);
            let found = self.round();
            if is_last {
                break;
            }
            empty_rounds = if found { 0 } else { empty_rounds + 1 };
            let time = (empty_rounds < empty_rounds_max).then_some(round_every);
            shared.bell.wait(time, || time.is_none() && self.is_due());
        }
        self.end();
    }

    /// Returns whether an entry is waiting or all workers have exited.
    fn is_due(&self) -> bool {
        self.outlets.iter().any(|outlet| outlet.oldest().is_some())
            || self.outlets.iter().all(Outlet::is_abandoned)
    }

    /// Writes the records of all queued entries whose responses have ended by now. Returns whether
    /// any record was written.
    pub(super) fn round(&mut self) -> bool {
        // A response that ends during this round is left for the next one, because another worker
        // may still append a response that ended earlier.
        let clock = Clock::read();
        // Read once per round, because each read takes the counters' cache lines from the workers.
        let without_record = self.shared.without_record();
        let written = self.written;
        while let Some(outlet) = self.oldest_by(clock.now()) {
            let Some(entry) = self.outlets[outlet].pop(&mut self.texts) else { break };
            let mut record = entry.record(&self.texts, &clock);
            record.sample_one_in = self.shared.sample.one_in();
            self.write_record(record, without_record, clock.now());
        }
        let has_written = self.written > written;
        if has_written {
            self.flush();
            self.shared.arrivals.notify_waiters();
            self.stop_if_unfollowed();
        }
        has_written
    }

    /// Returns the index of the ring with the oldest entry, if that entry's response ended by
    /// `end`.
    pub(super) fn oldest_by(&self, end: Instant) -> Option<usize> {
        let oldest =
            self.outlets.iter().enumerate().filter_map(|(at, outlet)| Some((outlet.oldest()?, at))).min();
        oldest.filter(|(ended, _)| *ended <= end).map(|(_, at)| at)
    }

    fn write_record(&mut self, record: ResponseRecord, without_record: u64, now: Instant) {
        if self.out.is_some() {
            record.append_json_line(&mut self.lines);
            if self.lines.len() >= LINES_BYTES_MAX {
                self.flush();
            }
        }
        let number = self.written + without_record;
        self.written += 1;
        let mut recent = self.shared.recent();
        if recent.is_kept {
            recent.push(NumberedRecord { number, record: Arc::new(record) }, now);
        }
    }

    /// Drops the recent records once no follower has been connected for [`FOLLOWER_ABSENCE`] or, if
    /// longer, for the time for which records are kept. From then on, records are created only for
    /// the file.
    fn stop_if_unfollowed(&mut self) {
        let mut recent = self.shared.recent();
        let absence_max = recent.limits.time.max(FOLLOWER_ABSENCE);
        if recent.followers == 0 && recent.left.elapsed() >= absence_max {
            self.shared.is_recording.store(self.out.is_some(), Relaxed);
            recent.stop_keeping();
        }
    }

    fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.write(&self.lines)
        {
            tracing::error!(%error, "cannot write the request log");
        }
        self.lines.clear();
    }

    /// Publishes the final response counts. Must be called after all workers have exited.
    fn end(&self) {
        let shared = &self.shared;
        let (started, ended) = (shared.state.started(), self.written + shared.without_record());
        shared.cut_off.store(started.saturating_sub(ended), Relaxed);
        shared.total.store(started, Relaxed);
        shared.state.end();
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.recent().is_closed = true;
        self.shared.arrivals.notify_waiters();
    }
}
