//! Appending: numbers, frames, segments, room and sync.
//!
//! **Invariant:** of the responses of an edge that are before what a frame says was heard of it, each is a record or counted in a
//! loss record of that frame or one before.
//! **Invariant:** a number is given once its record is in the file: what could not be written leaves no gap.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use thalweg_record::{Batch, Entry, Heard, LossRecord, Network, Record, Stage};

use super::frame::{Edges, Encoder, FRAME_RECORDS_MAX};
use super::segment::{SEGMENT_HEADER_BYTES, Segment};
use super::{Appended, Arrival, Spool, UNSYNCED_RECORDS_MAX};

/// An append that comes later than this after the last sync makes the next.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The end of the spool that is written to.
pub(super) struct Writer {
    /// Number of the next record.
    next: u64,
    /// The last segment's file, if this process made it and can write to it.
    file: Option<File>,
    encoder: Encoder,
    /// How far edges have been heard with all that was appended, what was lost of it included.
    edges: Edges,
    synced_at: Instant,
    unsynced_records: u64,
    /// Records that could not be written and of which no loss record was.
    lost: u64,
    /// Whether the last write failed, so that an operator is told once.
    is_failing: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("next", &self.next).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer that goes on with the number `next`, after `edges` have been heard so far.
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

    /// See [`Spool::append`].
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
            let told = self.lost;
            let loss = self.loss(now_unix_us);
            let untold = u64::from(loss.is_some());
            let chunk: Vec<_> = loss.into_iter().chain(records.by_ref()).take(FRAME_RECORDS_MAX).collect();
            let count = chunk.len() as u64;
            let (before, outcome) = (self.next, self.put(spool, chunk));
            let written = self.next - before;
            if written > 0 {
                self.lost -= told;
            }
            if let Err(error) = outcome {
                self.tell(spool, &error);
                let missing = count - written.max(untold);
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

    /// Tries to write the loss record that is due, since no append may come any more.
    pub(super) fn append_loss(&mut self, spool: &Spool, now_unix_us: u64) {
        let Some(loss) = self.loss(now_unix_us) else { return };
        match self.put(spool, vec![loss]) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                let (dir, records) = (spool.dir.display(), self.lost);
                tracing::error!(%dir, %error, records, "records were lost, and no record says so");
            }
        }
    }

    /// Records that could not be written and of which no loss record was yet.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of the next record.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// See [`Spool::heard`].
    pub(super) fn heard(&mut self, edges: &[Arc<str>]) -> Vec<Option<Heard>> {
        self.edges.retain(|edge, _| edges.contains(edge));
        edges.iter().map(|edge| self.edges.get(edge).cloned()).collect()
    }

    /// Goes on with numbers from `next`, if that is higher than where it is.
    pub(super) fn go_on_from(&mut self, next: u64) {
        if next > self.next {
            self.sync();
            (self.next, self.file) = (next, None);
        }
    }

    /// Writes to the disk what is only with the kernel.
    pub(super) fn sync(&mut self) {
        if let Some(file) = &self.file
            && self.unsynced_records > 0
            && let Err(error) = file.sync_data()
        {
            tracing::warn!(%error, "spool cannot be synced");
        }
        (self.synced_at, self.unsynced_records) = (Instant::now(), 0);
    }

    fn sync_when_due(&mut self) {
        if self.synced_at.elapsed() >= SYNC_INTERVAL {
            self.sync();
        }
    }

    fn tell(&mut self, spool: &Spool, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(dir = %spool.dir.display(), %error, "spool cannot be written, records are lost");
        }
    }

    /// Writes records as one frame, or as more where they are too large for one.
    fn put(&mut self, spool: &Spool, records: Vec<Arrival>) -> io::Result<()> {
        let (mut entries, mut heard) = (Vec::with_capacity(records.len()), Vec::new());
        for (Arrival { network, record, heard: with }, number) in records.into_iter().zip(self.next..) {
            entries.push(Entry { number, network, record });
            heard.extend(with.map(|with| (number, with)));
        }
        let mut batch = Batch { source: spool.source.clone(), entries };
        let outcome = self.put_batch(spool, &mut batch, &heard);
        // Also of what could not be written: that is lost, which the next frame says.
        self.edges.extend(heard.into_iter().map(|(_, heard)| (heard.edge.clone(), heard)));
        outcome
    }

    /// Writes a batch; with some of its numbers an edge was heard so far.
    fn put_batch(&mut self, spool: &Spool, batch: &mut Batch, heard: &[(u64, Heard)]) -> io::Result<()> {
        let last = batch.entries.last().map_or(0, |entry| entry.number);
        let with = heard.iter().take_while(|(number, _)| *number <= last);
        let mut edges = self.edges.clone();
        edges.extend(with.map(|(_, heard)| (heard.edge.clone(), heard.clone())));
        // No larger than a segment is to be, or a small spool would have no room for it.
        let is_fit =
            |frame: &&[u8]| frame.len() as u64 <= spool.limits.segment_bytes() || batch.entries.len() == 1;
        let Some(frame) = self.encoder.encode(batch, &edges)?.filter(is_fit) else {
            let half = batch.entries.len() / 2;
            if half == 0 {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a record is too large for a frame"));
            }
            let rest = batch.entries.split_off(half);
            self.put_batch(spool, batch, heard)?;
            batch.entries = rest;
            return self.put_batch(spool, batch, heard);
        };
        let records = batch.entries.len() as u64;
        // Synced before, not after, so that never more than so many are at stake.
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

/// Drops the oldest segments until there is room for a frame; none if there cannot be.
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
        let why = "the spool has no room beside what sinks read just now";
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, why))
    }
}

/// Removes the files of segments that are out of the list already.
pub(super) fn remove(spool: &Spool, segments: &[Segment]) {
    for segment in segments {
        let path = Segment::path(&spool.dir, segment.first);
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "spool segment cannot be removed");
        }
    }
}

/// The file to write the next frame to: the last segment's while it is not full, else a new one's.
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
    let (segment, made) = Segment::create(&spool.dir, next, follows)?;
    File::open(&spool.dir)?.sync_all()?;
    let mut state = spool.state();
    // One without records, in which a write failed, is written over.
    state.segments.pop_back_if(|last| last.first == next);
    state.segments.push_back(segment);
    Ok(file.insert(made))
}

/// Appends a frame to the last segment, and wakes the readers.
fn write(spool: &Spool, file: &File, frame: &[u8], records: u64) -> io::Result<()> {
    let at = spool.state().segments.back().map_or(0, |last| last.length_bytes);
    if let Err(error) = file.write_all_at(frame, at) {
        // What was written of it is a torn tail; a segment that is not the last ends where the next begins.
        let _ = file.set_len(at);
        return Err(error);
    }
    let mut state = spool.state();
    let last = state.segments.back_mut().expect("the segment of the file is in the list");
    last.end += records;
    last.length_bytes += frame.len() as u64;
    drop(state);
    spool.appended.fetch_add(records, Relaxed);
    spool.changed.notify_all();
    Ok(())
}
