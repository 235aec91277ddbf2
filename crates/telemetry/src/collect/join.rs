//! Completion of destroyed sockets' records from the responses of followed edges. Does no I/O and
//! reads no clock.
//!
//! The kernel's destroy event names no congestion control, and its delivery rate sample may be that
//! of the FIN (see `rates`). An edge reads both at the end of each response. The record of the
//! connection's last response often arrives after the event, so the record of a destroyed socket
//! waits for that record, and so do the records queued behind the waiting record.
//!
//! Responses and sockets are matched by the client's address and port. With several network
//! namespaces or several followed edges, a client may use the same port for connections to two of
//! them. The last response on either connection then completes both records.
//!
//! **Invariant:** items leave in the order in which they arrived. Saved socket totals therefore
//! agree with the records before them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use thalweg_record::{Record, ResponseRecord, SocketRecord};
use thalweg_tcp::CongestionControl;

use super::rates::DeliveryRate;

/// Time for which an incomplete record waits for a response. An edge sends its records every 10 ms.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of waiting records. Above this number, the oldest records leave the queue
/// incomplete.
const WAITING_RECORDS_MAX: usize = 16 * 1024;
/// Maximum number of clients whose last response is known. Longer-lived connections are in dumps.
const CLIENTS_MAX: usize = 64 * 1024;

/// A destroyed socket.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) record: Box<SocketRecord>,
    /// Whether the record has the latest delivery rate. If not, the record has the rate of the last
    /// dump, if any.
    pub(crate) has_latest_rate: bool,
}

/// An item from the socket collector.
#[derive(Debug)]
pub(super) enum SocketItem {
    /// A destroyed socket.
    Ended(Ended),
    /// Some of the records of one dump.
    Chunk(Vec<Record>),
    /// Encoded socket state to save.
    State(Vec<u8>),
}

/// A connection as of its last response.
#[derive(Debug, Clone, Copy)]
struct LastResponse {
    congestion_control: Option<CongestionControl>,
    delivery_rate: Option<DeliveryRate>,
}

/// Items waiting to leave, and the last response to each recent client.
#[derive(Debug, Default)]
pub(super) struct Join {
    waiting: VecDeque<(Instant, SocketItem)>,
    waiting_records: usize,
    /// Whether there has been any response. Without a followed edge, no item waits.
    has_responses: bool,
    /// Last responses since the other map was filled with half of [`CLIENTS_MAX`].
    newer: HashMap<SocketAddr, LastResponse>,
    older: HashMap<SocketAddr, LastResponse>,
}

impl Join {
    /// Stores the connection data of a response.
    pub(super) fn note(&mut self, response: &ResponseRecord) {
        self.has_responses = true;
        let Some(tcp) = &response.tcp else { return };
        // Records from older edges do not state whether the application limited the rate, so assume
        // that it did: limited rates are not compared.
        let is_app_limited = tcp.delivery_rate_app_limited.unwrap_or(true);
        let last = LastResponse {
            congestion_control: tcp.congestion_control.parse().ok(),
            delivery_rate: DeliveryRate::new(tcp.delivery_rate_bytes_per_s, is_app_limited),
        };
        if self.newer.len() >= CLIENTS_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(response.client, last);
    }

    /// Adds an item at the end of the queue.
    pub(super) fn push(&mut self, item: SocketItem, now: Instant) {
        self.waiting_records += item.records();
        self.waiting.push_back((now, item));
    }

    /// Removes the first item of the queue, complete as far as possible. Returns `None` if the
    /// queue is empty or the item waits for a response. If `is_over`, no item waits.
    pub(super) fn pop(&mut self, now: Instant, is_over: bool) -> Option<SocketItem> {
        let may_wait = self.has_responses && !is_over && self.waiting_records <= WAITING_RECORDS_MAX;
        let (_, mut item) = self.waiting.pop_front_if(|(since, item)| {
            !(may_wait && item.is_incomplete() && now.saturating_duration_since(*since) < WAIT_MAX)
        })?;
        self.waiting_records -= item.records();
        if let SocketItem::Ended(ended) = &mut item {
            let newer = self.newer.remove(&ended.record.client);
            let older = self.older.remove(&ended.record.client);
            newer.or(older).into_iter().for_each(|last| ended.complete(last));
        }
        Some(item)
    }
}

impl SocketItem {
    fn records(&self) -> usize {
        match self {
            Self::Ended(_) => 1,
            Self::Chunk(records) => records.len(),
            Self::State(_) => 0,
        }
    }

    fn is_incomplete(&self) -> bool {
        matches!(self, Self::Ended(ended) if !ended.has_latest_rate || ended.record.congestion_control.is_none())
    }
}

impl Ended {
    /// Fills in the fields missing from the record of the destroyed socket.
    fn complete(&mut self, last: LastResponse) {
        if self.record.congestion_control.is_none() {
            self.record.congestion_control = last.congestion_control.map(|name| name.to_string());
        }
        if let Some(rate) = last.delivery_rate.filter(|_| !self.has_latest_rate)
            && let Some(gauges) = &mut self.record.gauges
        {
            gauges.delivery_rate_bytes_per_s = Some(rate.bytes_per_s);
            gauges.delivery_rate_app_limited = rate.is_app_limited;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
