//! Queue between the collectors and the spool, and the batcher that drains the queue. The batcher
//! completes the records of destroyed sockets from responses (see `join`), looks up each client's
//! network and appends the records in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use thalweg_record::{EdgePosition, LossRecord, Network, Record, ResponseRecord, Stage};

use super::join::{Ended, Join, SocketItem};
use crate::clock::unix_us;
use crate::enrich::Networks;
use crate::spool::Arrival;

/// Capacity of the queue in items.
pub(crate) const QUEUE_MAX: usize = 64 * 1024;
/// Maximum number of dump records queued as one item.
pub(crate) const CHUNK_RECORDS: usize = 256;
/// Maximum number of dump chunks in the queue. A dump then blocks before it uses up the capacity
/// for senders that must not wait.
const CHUNKS_MAX: usize = 64;
/// Maximum number of records per batch.
const BATCH_RECORDS_MAX: usize = 4096;
/// Maximum time to wait for a batch to fill.
const BATCH_AGE_MAX: Duration = Duration::from_secs(1);
/// Interval at which the network files are checked for changes.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// Sender of the queue. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Intake {
    queue: SyncSender<Item>,
    chunks: SyncSender<()>,
    lost: Arc<Lost>,
}

/// A queued item.
#[derive(Debug)]
enum Item {
    /// From the socket collector. All counts in a socket state are in records queued before it.
    Sockets(SocketItem),
    /// An edge's responses and losses, each with the edge's position after it.
    Edge(Vec<(Record, EdgePosition)>),
    /// End of the queue. Items after it are discarded.
    End,
}

/// Number of lost records not yet reported, by stage.
#[derive(Debug, Default)]
struct Lost([AtomicU64; Stage::ALL.len()]);

impl Lost {
    fn add(&self, stage: Stage, records: u64) {
        self.0[stage as usize].fetch_add(records, Relaxed);
    }

    fn take_records(&self) -> impl Iterator<Item = Record> {
        let taken = Stage::ALL.iter().map(|&stage| (stage, self.0[stage as usize].swap(0, Relaxed)));
        taken
            .filter(|&(_, records)| records > 0)
            .map(|(stage, records)| Record::Loss(LossRecord { time_unix_us: unix_us(), stage, records }))
    }
}

/// Creates a queue. Returns its sender and the batcher that drains it.
pub fn intake(networks: Networks) -> (Intake, Batcher) {
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let (chunks, taken) = sync_channel(CHUNKS_MAX);
    let lost = Arc::<Lost>::default();
    (
        Intake { queue: sender, chunks, lost: lost.clone() },
        Batcher { queue, chunks: taken, lost, networks, join: Join::default(), is_ending: false },
    )
}

impl Intake {
    /// Queues a destroyed socket without blocking. If the queue is full, its record is counted as
    /// lost.
    pub(crate) fn push_ended(&self, ended: Ended) {
        if self.queue.try_send(Item::Sockets(SocketItem::Ended(ended))).is_err() {
            self.lost.add(Stage::Events, 1);
        }
    }

    /// Queues an edge's next items without blocking: first the losses, by stage, then the response,
    /// if any. Returns whether the queue had room, and if so, advances `heard`, the edge's
    /// position. Otherwise nothing is queued, and the caller reports the same responses as lost in
    /// its next call.
    pub fn push_edge_items(
        &self,
        heard: &mut EdgePosition,
        lost: &[(Stage, u64)],
        response: Option<Arc<ResponseRecord>>,
    ) -> bool {
        let mut position = heard.clone();
        let mut items = Vec::new();
        for &(stage, records) in lost.iter().filter(|(_, records)| *records > 0) {
            position.next += records;
            let loss = LossRecord { time_unix_us: unix_us(), stage, records };
            items.push((Record::Loss(loss), position.clone()));
        }
        if let Some(response) = response {
            position.next += 1;
            items.push((Record::Response(response), position.clone()));
        }
        let is_taken = self.queue.try_send(Item::Edge(items)).is_ok();
        if is_taken {
            *heard = position;
        }
        is_taken
    }

    /// Queues records from a dump, waiting until the queue has room. The records are discarded if
    /// the batcher has stopped.
    pub(crate) fn push_dump(&self, records: Vec<Record>) {
        if !records.is_empty() && self.chunks.send(()).is_ok() {
            let _ = self.queue.send(Item::Sockets(SocketItem::Chunk(records)));
        }
    }

    /// Queues encoded socket state, to be saved after the records already queued.
    pub(crate) fn push_socket_state(&self, sockets: Vec<u8>) {
        let _ = self.queue.send(Item::Sockets(SocketItem::State(sockets)));
    }

    /// Stops the batcher once it has handled everything queued before this call.
    pub fn end(&self) {
        let _ = self.queue.send(Item::End);
    }

    /// Counts records that were lost elsewhere.
    pub fn count_lost(&self, stage: Stage, records: u64) {
        self.lost.add(stage, records);
    }
}

/// A gathered batch.
#[derive(Default)]
struct Gathered {
    records: Vec<(Record, Option<EdgePosition>)>,
    /// Encoded socket state to save once the records are in the spool.
    sockets: Option<Vec<u8>>,
    /// Whether the end of the queue was reached.
    is_over: bool,
}

impl Gathered {
    fn add(&mut self, item: SocketItem) {
        match item {
            SocketItem::Ended(ended) => self.records.push((Record::Socket(ended.record), None)),
            SocketItem::Chunk(chunk) => self.records.extend(chunk.into_iter().map(|record| (record, None))),
            SocketItem::State(state) => self.sockets = Some(state),
        }
    }

    fn add_responses(&mut self, items: Vec<(Record, EdgePosition)>, join: &mut Join) {
        for (record, heard) in items {
            if let Record::Response(response) = &record {
                join.note(response);
            }
            self.records.push((record, Some(heard)));
        }
    }
}

/// Drains the queue into batches.
#[derive(Debug)]
pub struct Batcher {
    queue: Receiver<Item>,
    chunks: Receiver<()>,
    lost: Arc<Lost>,
    networks: Networks,
    join: Join,
    /// Whether the end of the queue was reached. Items may still be in `join`.
    is_ending: bool,
}

impl Batcher {
    /// Calls `append` with each batch, and with the socket state to save after it, if any. Returns
    /// at the end of the queue.
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

    /// Receives items until the batch is full, reaches its age limit or must be followed by a save.
    fn gather(&mut self) -> Gathered {
        let mut gathered = Gathered::default();
        let started = Instant::now();
        while gathered.records.len() < BATCH_RECORDS_MAX && gathered.sockets.is_none() {
            let now = Instant::now();
            if let Some(item) = self.join.pop(now, self.is_ending) {
                gathered.add(item);
                continue;
            }
            if self.is_ending {
                gathered.is_over = true;
                break;
            }
            match self.queue.recv_timeout(BATCH_AGE_MAX.saturating_sub(started.elapsed())) {
                Ok(Item::Sockets(item)) => {
                    if matches!(item, SocketItem::Chunk(_)) {
                        let _ = self.chunks.try_recv(); // `push_dump` sent one before the chunk
                    }
                    self.join.push(item, now);
                }
                Ok(Item::Edge(items)) => gathered.add_responses(items, &mut self.join),
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => self.is_ending = true,
            }
        }
        gathered.records.extend(self.lost.take_records().map(|record| (record, None)));
        gathered
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
            Ok(true) => tracing::info!("network files reloaded"),
            Ok(false) => {}
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::error!(%error, cause, "cannot reload network files, keeping the old data");
            }
        }
    }
}
