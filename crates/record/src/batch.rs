//! Batches of records, as sent by an agent. Records are numbered, so that readers can drop
//! duplicates and count missing records.
//!
//! **Invariant:** an epoch's records are numbered from 0 without gaps. A batch keeps their order
//! but may skip numbers, because each Kafka message contains only one prefix's records.

use std::net::IpAddr;
use std::sync::Arc;

use crate::{Prefix, ResponseRecord, SocketRecord};

/// Version of the loss records written by this crate.
pub const LOSS_VERSION: u32 = 1;

message! {
    /// Records from one agent.
    pub struct Batch as "Batch" {
        /// Agent that produced the records.
        pub source: Source = 1;
        /// Records in ascending order of their numbers.
        pub entries: Vec<Entry> = 4;
    }
}

message! {
    /// Agent that produced a batch's records.
    pub struct Source as "Batch" {
        /// Name of the agent's machine.
        pub host: String = 1;
        /// Name of the site (PoP); empty if unnamed.
        pub pop: String = 2;
        /// When the record numbering started, in microseconds since the Unix epoch. Whenever
        /// numbering restarts on a host, a new epoch starts.
        pub epoch: u64 = 3;
    }
}

message! {
    /// A record with its number and its client's network.
    pub struct Entry as "Entry" {
        /// Record number within the epoch.
        pub number: u64 = 1;
        /// Attributes of the client's network that the configured databases contain.
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
        /// Region of the client's network: an ISO 3166-1 country code, with the ISO 3166-2
        /// subdivision if known (`DE`, `US-CA`), or a region from a CSV file of prefixes.
        pub region: Option<Arc<str>> = 3;
    }
}

message! {
    /// Position up to which an edge's responses have been received.
    pub struct EdgePosition as "EdgePosition" {
        /// Address from which the edge's responses are read.
        pub edge: Arc<str> = 1;
        /// When the edge started numbering its responses, in microseconds since the Unix epoch.
        pub epoch: u64 = 2;
        /// Next expected response number. Every response with a lower number has a record or is
        /// counted as lost.
        pub next: u64 = 3;
    }
}

message! {
    /// Data appended to a batch, in the spool only.
    pub(crate) struct Spooled as "Batch" {
        /// In the spool only: position of each edge after these entries.
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
    /// Records lost before they were numbered.
    pub struct LossRecord as "Loss" version LOSS_VERSION {
        /// When the loss was detected, in microseconds since the Unix epoch.
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
    /// Stage at which records were lost.
    Stage {
        /// The edge's log fell behind its workers, or the edge exited before sending the records.
        Edge = "edge",
        /// The agent fell behind the edge, or was not running.
        Follow = "follow",
        /// The agent fell behind the kernel's socket-destroy events, or was not running.
        Events = "events",
        /// The spool was full or not writable.
        Spool = "spool",
    }
}

impl Entry {
    /// Returns the prefix of the client's network; `None` for a loss record.
    pub fn prefix(&self) -> Option<Prefix> {
        self.client().map(Prefix::of_client)
    }

    /// Returns the client address; `None` for a loss record.
    pub fn client(&self) -> Option<IpAddr> {
        match &self.record {
            Record::Socket(socket) => Some(socket.client.ip()),
            Record::Response(response) => Some(response.client.ip()),
            Record::Loss(_) => None,
        }
    }
}
