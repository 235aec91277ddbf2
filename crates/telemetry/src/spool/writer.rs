//! Spool writer: numbers records, writes frames and spool segments, deletes old segments to make
//! room, and syncs.
//!
//! **Invariant:** an edge's position in a frame covers only responses recorded, or counted in a
//! loss record, in that frame or an earlier frame.
//! **Invariant:** a number is assigned only once its record is in the file, so failed writes leave
//! no gaps.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use thalweg_record::{Batch, EdgePosition, Entry, LossRecord, Network, Record, Stage};

use super::frame::{Edges, Encoder, FRAME_RECORDS_MAX};
use super::segment::{SEGMENT_HEADER_BYTES, Segment};
use super::{Appended, Arrival, Spool, UNSYNCED_RECORDS_MAX};

/// Minimum time between two syncs. An append syncs if the last sync is at least this long ago.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Writer of a spool.
pub(super) struct Writer {
    /// Number of the next record.
    next: u64,
    /// File of the last spool segment, if this process created it and no write to it has failed.
    file: Option<File>,
    encoder: Encoder,
    /// Each edge's position after all records appended so far, including lost records.
    edges: Edges,
    synced_at: Instant,
    unsynced_records: u64,
    /// Number of records that could not be written and are not yet covered by a loss record.
    lost: u64,
    /// Whether the last write failed. Used to log consecutive failures only once.
    is_failing: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("next", &self.next).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer that continues at the number `next`, with the given edge positions.
    pub(super) fn new(next: u64, edges: Edges) -> io::Result<Self> {
        Ok(Self {
            next,
            file: None,
            encoder: Encoder::new()?,
            edges,
            synced_at: Instant::now(),
            unsynced_records: 0,
            lost: 0,
            is_failing: false,
        })
    }

    /// Appends records; see [`Spool::append`].
    pub(super) fn append(
        &mut self,
        spool: &Spool,
        records: impl Iterator<Item = Arrival>,
        now_unix_us: u64,
    ) -> Appended {
        let first = self.next;
        let mut lost = 0;
        let mut records = records.peekable();
        while records.peek().is_some() {
            let reported = self.lost;
            let loss = self.loss(now_unix_us);
            let loss_records = u64::from(loss.is_some());
            let chunk: Vec<_> = loss.into_iter().chain(records.by_ref()).take(FRAME_RECORDS_MAX).collect();
            let count = chunk.len() as u64;
            let (before, outcome) = (self.next, self.write_frame(spool, chunk));
            let written = self.next - before;
            if written > 0 {
                self.lost -= reported;
            }
            if let Err(error) = outcome {
                self.log_failure(spool, &error);
                let missing = count - written.max(loss_records);
                self.lost += missing;
                lost += missing;
            }
        }
        self.sync_when_due();
        Appended { numbers: first..self.next, lost }
    }

    fn loss(&self, time_unix_us: u64) -> Option<Arrival> {
        let loss = LossRecord { time_unix_us, stage: Stage::Spool, records: self.lost };
        (self.lost > 0).then(|| (Network::default(), Record::Loss(loss)).into())
    }

    /// Tries to write the pending loss record. Used on close, because no further append follows.
    pub(super) fn append_loss(&mut self, spool: &Spool, now_unix_us: u64) {
        let Some(loss) = self.loss(now_unix_us) else { return };
        match self.write_frame(spool, vec![loss]) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                let (dir, records) = (spool.dir.display(), self.lost);
                tracing::error!(%dir, %error, records, "records lost without a loss record");
            }
        }
    }

    /// Returns the number of records that could not be written and are not yet covered by a loss
    /// record.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of the next record.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the stored edge positions; see [`Spool::edge_positions`].
    pub(super) fn edge_positions(&mut self, edges: &[Arc<str>]) -> Vec<Option<EdgePosition>> {
        self.edges.retain(|edge, _| edges.contains(edge));
        edges.iter().map(|edge| self.edges.get(edge).cloned()).collect()
    }

    /// Skips ahead to the number `next`, unless the current next number is already higher.
    pub(super) fn skip_to(&mut self, next: u64) {
        if next > self.next {
            self.sync();
            (self.next, self.file) = (next, None);
        }
    }

    /// Syncs the file of the last spool segment to disk.
    pub(super) fn sync(&mut self) {
        if let Some(file) = &self.file
            && self.unsynced_records > 0
            && let Err(error) = file.sync_data()
        {
            tracing::warn!(%error, "cannot sync the spool");
        }
        (self.synced_at, self.unsynced_records) = (Instant::now(), 0);
    }

    fn sync_when_due(&mut self) {
        if self.synced_at.elapsed() >= SYNC_INTERVAL {
            self.sync();
        }
    }

    fn log_failure(&mut self, spool: &Spool, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(dir = %spool.dir.display(), %error, "cannot write to the spool, records are being lost");
        }
    }

    /// Writes records as one frame, or as several frames if they are too large for one.
    fn write_frame(&mut self, spool: &Spool, records: Vec<Arrival>) -> io::Result<()> {
        let (mut entries, mut heard) = (Vec::with_capacity(records.len()), Vec::new());
        for (Arrival { network, record, heard: position }, number) in records.into_iter().zip(self.next..) {
            entries.push(Entry { number, network, record });
            heard.extend(position.map(|position| (number, position)));
        }
        let mut batch = Batch { source: spool.source.clone(), entries };
        let outcome = self.write_batch(spool, &mut batch, &heard);
        // Advance the positions past records that could not be written, too: these records are
        // lost, and the next frame's loss record covers them.
        self.edges.extend(heard.into_iter().map(|(_, heard)| (heard.edge.clone(), heard)));
        outcome
    }

    /// Writes a batch. `heard` contains the edge positions after the batch's records, by record
    /// number.
    fn write_batch(
        &mut self,
        spool: &Spool,
        batch: &mut Batch,
        heard: &[(u64, EdgePosition)],
    ) -> io::Result<()> {
        let last = batch.entries.last().map_or(0, |entry| entry.number);
        let with = heard.iter().take_while(|(number, _)| *number <= last);
        let mut edges = self.edges.clone();
        edges.extend(with.map(|(_, heard)| (heard.edge.clone(), heard.clone())));
        // A frame must fit in a spool segment, or else a small spool could never make room for it.
        let is_fit =
            |frame: &&[u8]| frame.len() as u64 <= spool.limits.segment_bytes() || batch.entries.len() == 1;
        let Some(frame) = self.encoder.encode(batch, &edges)?.filter(is_fit) else {
            let half = batch.entries.len() / 2;
            if half == 0 {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "record is too large for a frame"));
            }
            let rest = batch.entries.split_off(half);
            self.write_batch(spool, batch, heard)?;
            batch.entries = rest;
            return self.write_batch(spool, batch, heard);
        };
        let records = batch.entries.len() as u64;
        // Sync before writing, so that at most UNSYNCED_RECORDS_MAX records are at risk.
        if self.unsynced_records + records > UNSYNCED_RECORDS_MAX
            && let Some(file) = &self.file
        {
            file.sync_data()?;
            self.unsynced_records = 0;
        }
        make_room(spool, frame.len() as u64)?;
        let file = segment_file(&mut self.file, spool, self.next)?;
        if let Err(error) = write(spool, file, frame, records) {
            self.sync();
            self.file = None;
            return Err(error);
        }
        self.next += records;
        self.unsynced_records += records;
        self.is_failing = false;
        Ok(())
    }
}

/// Deletes the oldest spool segments until a frame of `frame_bytes` fits. If deleting all that may
/// be deleted would not suffice, deletes none of them.
fn make_room(spool: &Spool, frame_bytes: u64) -> io::Result<()> {
    let mut state = spool.state();
    let needed_bytes = frame_bytes + SEGMENT_HEADER_BYTES;
    let mut dropped = state.take_passed();
    let is_possible = state.staying_bytes() + needed_bytes <= spool.limits.total_bytes;
    while is_possible
        && state.total_bytes() + needed_bytes > spool.limits.total_bytes
        && let Some(oldest) = state.take_oldest()
    {
        dropped.push(oldest);
    }
    drop(state);
    remove(spool, &dropped);
    if is_possible {
        Ok(())
    } else {
        let why = "spool full: sinks are reading every remaining segment";
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, why))
    }
}

/// Deletes the files of spool segments that have been removed from the state.
pub(super) fn remove(spool: &Spool, segments: &[Segment]) {
    for segment in segments {
        let path = Segment::path(&spool.dir, segment.first);
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove spool segment");
        }
    }
}

/// Returns the file for the next frame: the file of the last spool segment, or of a new segment if
/// the last segment is full.
fn segment_file<'a>(file: &'a mut Option<File>, spool: &Spool, next: u64) -> io::Result<&'a File> {
    let last = spool.state().segments.back().copied();
    let is_full = last.is_none_or(|last| last.length_bytes >= spool.limits.segment_bytes());
    if is_full && let Some(full) = file.take() {
        full.sync_data()?;
    }
    if let Some(file) = file {
        return Ok(file);
    }
    let follows = last.map_or(0, |last| if last.first == next { last.follows } else { last.end });
    let (segment, created) = Segment::create(&spool.dir, next, follows)?;
    File::open(&spool.dir)?.sync_all()?;
    let mut state = spool.state();
    // A spool segment without records was left by a failed write; the new segment replaces it.
    state.segments.pop_back_if(|last| last.first == next);
    state.segments.push_back(segment);
    Ok(file.insert(created))
}

/// Appends a frame to the last spool segment and wakes the readers.
fn write(spool: &Spool, file: &File, frame: &[u8], records: u64) -> io::Result<()> {
    let at = spool.state().segments.back().map_or(0, |last| last.length_bytes);
    if let Err(error) = file.write_all_at(frame, at) {
        // Truncate the partial write, because every spool segment but the last must end where the
        // next one starts.
        let _ = file.set_len(at);
        return Err(error);
    }
    let mut state = spool.state();
    let last = state.segments.back_mut().expect("the open segment is in the list");
    last.end += records;
    last.length_bytes += frame.len() as u64;
    drop(state);
    spool.appended.fetch_add(records, Relaxed);
    spool.changed.notify_all();
    Ok(())
}
