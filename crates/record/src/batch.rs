//! Batches: what an agent hands on. Each record has a number of its own, so that who reads them twice keeps them once, and
//! who misses some knows how many.
//!
//! **Invariant:** the records of an epoch are numbered from 0, one after the other; a batch may lack some of them (Kafka has
//! a message for each prefix), and never has them in another order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::{Prefix, ResponseRecord, SocketRecord};

/// The version of loss records that this crate writes.
pub const LOSS_VERSION: u32 = 1;

/// Records of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Who made them.
    pub source: Source,
    /// The records, by number.
    pub entries: Vec<Entry>,
}

/// Who makes records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The machine's name.
    pub host: String,
    /// The site; empty if it has no name.
    pub pop: String,
    /// When the numbering of records began, microseconds since the Unix epoch: it tells numberings of a host apart.
    pub epoch: u64,
}

/// A record with its number and what is known of its client's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number within the epoch.
    pub number: u64,
    /// Where the client is, as far as configured files tell.
    pub network: Network,
    /// What it says.
    pub record: Record,
}

/// What is known of a client's network beside its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// The number of the autonomous system.
    pub asn: Option<u32>,
    /// The region: a country by ISO 3166-1, with the subdivision by ISO 3166-2 where known (`DE`, `US-CA`), or what a CSV
    /// of prefixes says.
    pub region: Option<Arc<str>>,
}

/// How far the responses of an edge have been heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The edge: the address at which it is followed.
    pub edge: Arc<str>,
    /// When it began to number its responses, microseconds since the Unix epoch.
    pub epoch: u64,
    /// Every response with a lower number is a record, or counted as lost.
    pub next: u64,
}

/// A record of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Of a socket.
    Socket(Box<SocketRecord>),
    /// Of a response.
    Response(Arc<ResponseRecord>),
    /// Of records that were lost.
    Loss(LossRecord),
}

/// Records that were lost before they had a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRecord {
    /// When it was noticed: microseconds since the Unix epoch.
    pub time_unix_us: u64,
    /// Where they were lost.
    pub stage: Stage,
    /// How many.
    pub records: u64,
}

words! {
    /// Where records are lost.
    Stage {
        /// The edge's log was behind its workers, or the edge has ended before it had told them.
        Edge = "edge",
        /// The agent was behind the edge, or was not there.
        Follow = "follow",
        /// The agent was behind the kernel's events of destroyed sockets, or was not there.
        Events = "events",
        /// The spool was full, or could not be written.
        Spool = "spool",
    }
}

impl Entry {
    /// The network of the record's client; absent of a loss.
    pub fn prefix(&self) -> Option<Prefix> {
        self.client().map(Prefix::of_client)
    }

    /// The address of the record's client; absent of a loss.
    pub fn client(&self) -> Option<IpAddr> {
        match &self.record {
            Record::Socket(socket) => Some(socket.client.ip()),
            Record::Response(response) => Some(response.client.ip()),
            Record::Loss(_) => None,
        }
    }
}
