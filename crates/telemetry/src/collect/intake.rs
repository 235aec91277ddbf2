//! The queue between those who collect and the spool, and the thread that empties it: it says where each client is, and
//! hands on what came within a moment at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use thalweg_record::{Heard, LossRecord, Network, Record, ResponseRecord, Stage};

use crate::clock::unix_us;
use crate::enrich::Networks;
use crate::spool::Arrival;

/// Records that wait to be handed on.
pub(crate) const QUEUE_MAX: usize = 64 * 1024;
/// Records of a dump that go through the queue as one.
pub(crate) const CHUNK_RECORDS: usize = 256;
/// Such chunks that wait: a dump waits for the batcher before it takes the room of what cannot wait.
const CHUNKS_MAX: usize = 64;
/// Records that are handed on at once.
const BATCH_RECORDS_MAX: usize = 4096;
/// How long a record waits for others.
const BATCH_AGE_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether the files of networks have changed.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// Where records go in. Clones go to the same queue.
#[derive(Debug, Clone)]
pub struct Intake {
    queue: SyncSender<Item>,
    chunks: SyncSender<()>,
    lost: Arc<Lost>,
}

/// What goes through the queue.
#[derive(Debug)]
enum Item {
    Record(Record),
    /// A part of a dump.
    Chunk(Vec<Record>),
    /// What came to be known of an edge's responses, each with how far that goes.
    Heard(Vec<(Record, Heard)>),
    /// What is to be saved of sockets, all of which is in the records before.
    Sockets(Vec<u8>),
    /// Nothing that comes after this is handed on.
    End,
}

/// What was lost and is not told yet, by stage.
#[derive(Debug, Default)]
struct Lost([AtomicU64; Stage::ALL.len()]);

impl Lost {
    fn add(&self, stage: Stage, records: u64) {
        self.0[stage as usize].fetch_add(records, Relaxed);
    }

    fn take(&self) -> impl Iterator<Item = Record> {
        let taken = Stage::ALL.iter().map(|&stage| (stage, self.0[stage as usize].swap(0, Relaxed)));
        taken
            .filter(|&(_, records)| records > 0)
            .map(|(stage, records)| Record::Loss(LossRecord { time_unix_us: unix_us(), stage, records }))
    }
}

/// A queue: where records go in, and who empties it.
pub fn intake(networks: Networks) -> (Intake, Batcher) {
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let (chunks, taken) = sync_channel(CHUNKS_MAX);
    let lost = Arc::<Lost>::default();
    (Intake { queue: sender, chunks, lost: lost.clone() }, Batcher { queue, chunks: taken, lost, networks })
}

impl Intake {
    /// Hands a record on without waiting; one that finds no room is counted as lost at `stage`.
    pub fn put(&self, record: Record, stage: Stage) {
        if self.queue.try_send(Item::Record(record)).is_err() {
            self.lost.add(stage, 1);
        }
    }

    /// Hands on, without waiting, what was heard of an edge that was heard up to `heard.next` before: so many responses that were
    /// lost, by stage, then one, if there is one. Whether there was room: else nothing was taken, and who missed that is to hand
    /// it on as lost with what comes next.
    pub fn hear(
        &self,
        heard: &mut Heard,
        lost: &[(Stage, u64)],
        response: Option<Arc<ResponseRecord>>,
    ) -> bool {
        let mut so_far = heard.clone();
        let mut told = Vec::new();
        for &(stage, records) in lost.iter().filter(|(_, records)| *records > 0) {
            so_far.next += records;
            let loss = LossRecord { time_unix_us: unix_us(), stage, records };
            told.push((Record::Loss(loss), so_far.clone()));
        }
        if let Some(response) = response {
            so_far.next += 1;
            told.push((Record::Response(response), so_far.clone()));
        }
        let is_taken = self.queue.try_send(Item::Heard(told)).is_ok();
        if is_taken {
            *heard = so_far;
        }
        is_taken
    }

    /// Hands the records of a dump on, waiting for room. After the end of the batcher they are gone.
    pub(crate) fn put_all(&self, records: Vec<Record>) {
        if !records.is_empty() && self.chunks.send(()).is_ok() {
            let _ = self.queue.send(Item::Chunk(records));
        }
    }

    /// Has what sockets have counted saved, after the records that came before.
    pub(crate) fn save(&self, sockets: Vec<u8>) {
        let _ = self.queue.send(Item::Sockets(sockets));
    }

    /// Ends the batcher once it has handed on all that came before.
    pub fn end(&self) {
        let _ = self.queue.send(Item::End);
    }

    /// Tells of records that were lost elsewhere.
    pub fn lost(&self, stage: Stage, records: u64) {
        self.lost.add(stage, records);
    }
}

/// What has come within a moment.
struct Gathered {
    records: Vec<(Record, Option<Heard>)>,
    /// What is to be saved of sockets once the records are in the spool.
    sockets: Option<Vec<u8>>,
    /// Whether no more will come.
    is_over: bool,
}

/// Empties the queue.
#[derive(Debug)]
pub struct Batcher {
    queue: Receiver<Item>,
    chunks: Receiver<()>,
    lost: Arc<Lost>,
    networks: Networks,
}

impl Batcher {
    /// Gives `append` what has come, and what is to be saved of sockets with it, until the end is asked for.
    pub fn run(mut self, mut append: impl FnMut(Vec<Arrival>, Option<Vec<u8>>)) {
        let mut refreshed = Instant::now();
        loop {
            let Gathered { records, sockets, is_over } = self.gather();
            if refreshed.elapsed() >= REFRESH_EVERY {
                self.refresh();
                refreshed = Instant::now();
            }
            let arrivals: Vec<_> = records
                .into_iter()
                .map(|(record, heard)| Arrival { network: self.network(&record), record, heard })
                .collect();
            if !arrivals.is_empty() || sockets.is_some() {
                append(arrivals, sockets);
            }
            if is_over {
                return;
            }
        }
    }

    /// What comes until there is enough of it, or the first has waited long enough.
    fn gather(&self) -> Gathered {
        let (mut records, mut sockets, mut is_over) = (Vec::new(), None, false);
        let begun = Instant::now();
        while records.len() < BATCH_RECORDS_MAX {
            match self.queue.recv_timeout(BATCH_AGE_MAX.saturating_sub(begun.elapsed())) {
                Ok(Item::Record(record)) => records.push((record, None)),
                Ok(Item::Chunk(chunk)) => {
                    let _ = self.chunks.try_recv(); // it was announced
                    records.extend(chunk.into_iter().map(|record| (record, None)));
                }
                Ok(Item::Heard(told)) => {
                    records.extend(told.into_iter().map(|(record, heard)| (record, Some(heard))));
                }
                Ok(Item::Sockets(saved)) => {
                    sockets = Some(saved);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => {
                    is_over = true;
                    break;
                }
            }
        }
        records.extend(self.lost.take().map(|record| (record, None)));
        Gathered { records, sockets, is_over }
    }

    fn network(&mut self, record: &Record) -> Network {
        match record {
            Record::Socket(socket) => self.networks.find(socket.client.ip()),
            Record::Response(response) => self.networks.find(response.client.ip()),
            Record::Loss(_) => Network::default(),
        }
    }

    fn refresh(&mut self) {
        match self.networks.refresh() {
            Ok(true) => tracing::info!("the files of networks were read anew"),
            Ok(false) => {}
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::error!(%error, cause, "the networks stay as they were");
            }
        }
    }
}
