//! Batches: the unit in which an agent sends records. Each record has a number, so that readers can
//! drop duplicates and count gaps.
//!
//! **Invariant:** the records of an epoch are numbered from 0 without gaps. A batch may lack some
//! of them, because Kafka has one message per prefix, but keeps their order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::{Prefix, ResponseRecord, SocketRecord};

/// Version of loss records that this crate writes.
pub const LOSS_VERSION: u32 = 1;

message! {
    /// Records from one agent.
    pub struct Batch as "Batch" {
        /// The agent that made the records.
        pub source: Source = 1;
        /// The records, by number.
        pub entries: Vec<Entry> = 4;
    }
}

message! {
    /// The agent that records come from.
    pub struct Source as "Batch" {
        /// The machine's name.
        pub host: String = 1;
        /// Name of the site (PoP); empty if unnamed.
        pub pop: String = 2;
        /// Start of the record numbering, in microseconds since the Unix epoch; distinguishes the
        /// numberings of a host.
        pub epoch: u64 = 3;
    }
}

message! {
    /// A record with its number and its client's network.
    pub struct Entry as "Entry" {
        /// Number of the record within the epoch.
        pub number: u64 = 1;
        /// Attributes of the client's network, as far as configured databases have them.
        pub network: Network = 2;
        /// The record.
        pub record: Record = 4;
    }
}

message! {
    /// Attributes of a client's network.
    #[derive(Default)]
    pub struct Network as "Entry" {
        /// Autonomous system number of the client's network.
        pub asn: Option<u32> = 2, id;
        /// Region of the client's network: an ISO 3166-1 country, with the ISO 3166-2 subdivision
        /// if known (`DE`, `US-CA`), or the region from a CSV of prefixes.
        pub region: Option<Arc<str>> = 3;
    }
}

message! {
    /// The position up to which an edge's responses have been received.
    pub struct EdgePosition as "EdgePosition" {
        /// Address at which the edge is followed.
        pub edge: Arc<str> = 1;
        /// When the edge began to number its responses, in microseconds since the Unix epoch.
        pub epoch: u64 = 2;
        /// Next expected response number: every response with a lower number has a record or is
        /// counted as lost.
        pub next: u64 = 3;
    }
}

message! {
    /// Data after a batch, in the spool only.
    pub(crate) struct Spooled as "Batch" {
        /// In the spool only: position in each edge's responses after these entries.
        pub(crate) heard: Vec<EdgePosition> = 5;
    }
}

/// A record of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A socket sample.
    Socket(Box<SocketRecord>),
    /// A response.
    Response(Arc<ResponseRecord>),
    /// Lost records.
    Loss(LossRecord),
}

message! {
    /// Records lost before they had a number.
    pub struct LossRecord as "Loss" version LOSS_VERSION {
        /// When the loss was noticed, in microseconds since the Unix epoch.
        pub time_unix_us: u64 = 2, time, no_column;
        /// Where the records were lost.
        pub stage: Stage = 3;
        /// Number of lost records.
        pub records: u64 = 4;
    }
}

parts! { LossRecord }

inlined! { Source Network }

words! {
    /// Places where records can be lost.
    Stage {
        /// The edge's log fell behind its workers, or the edge ended before sending the records.
        Edge = "edge",
        /// The agent fell behind the edge, or was not running.
        Follow = "follow",
        /// The agent fell behind the kernel's events of destroyed sockets, or was not running.
        Events = "events",
        /// The spool was full, or not writable.
        Spool = "spool",
    }
}

impl Entry {
    /// Returns the network of the record's client; `None` for a loss.
    pub fn prefix(&self) -> Option<Prefix> {
        self.client().map(Prefix::of_client)
    }

    /// Returns the address of the record's client; `None` for a loss.
    pub fn client(&self) -> Option<IpAddr> {
        match &self.record {
            Record::Socket(socket) => Some(socket.client.ip()),
            Record::Response(response) => Some(response.client.ip()),
            Record::Loss(_) => None,
        }
    }
}
