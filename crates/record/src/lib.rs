//! Telemetry records: the edge's measurements of each response and the agent's samples of each
//! socket, with their encodings.
//!
//! Each field is declared once, in `response.rs`, `socket.rs` or `batch.rs`; `field.rs` describes
//! how to add a field. The declarations drive JSON (`json.rs`), protobuf (`proto.rs`), table rows
//! ([`rows`]) and the field names in query expressions (`query.rs`). Tests generate
//! `proto/telemetry.proto`, the console's types and the tables in `schema/` from the declarations.
//! `human.rs` selects the fields for a human-readable line.
//!
//! This crate uses no clock, no socket, and no other Thalweg crate except `thalweg-units`, which
//! formats quantities. An agent sends records in a [`Batch`]. The JSON line is an interface for the
//! console and log shippers; the version of the line format is [`SCHEMA_VERSION`].

#[macro_use]
mod declare;

mod batch;
mod field;
mod human;
mod json;
mod lines;
mod name;
mod prefix;
mod proto;
mod query;
mod response;
pub mod rows;
mod sketch;
mod socket;
mod time;
mod value;

pub use batch::{Batch, EdgePosition, Entry, LOSS_VERSION, LossRecord, Network, Record, Source, Stage};
pub use field::{Declared, Field, Kind, Unit, Words};
pub use human::{Colour, human_header};
pub use lines::{LINE_BYTES_MAX, LINES_BYTES_MAX, LINES_MAX, Line, Lines};
pub use name::{NAME_BYTES_MAX, is_name};
pub use prefix::{CLIENT_IPV4_BITS, CLIENT_IPV6_BITS, Prefix, PrefixError};
pub use proto::DecodeError;
pub use query::{QueryField, query_fields};
pub use response::{
    CacheResult, Cmcd, Cut, Decider, Delivery, KERNEL_BUSY_US_MIN, LineTag, Protocol, ResponseRecord,
    SAMPLE_ONE_IN_MAX, SCHEMA_VERSION, Steered, StreamType, TcpState,
};
pub use sketch::Sketch;
pub use socket::{
    Bbr, Cause, Counters, Gauges, SOCKET_VERSION, SocketAttributes, SocketFamily, SocketMemory, SocketRecord,
    SocketTimer,
};
pub use time::{parse_time, time};

use std::fmt;

/// Reason why a line is not a record of this version.
#[derive(Debug)]
pub enum Error {
    /// The line is not JSON, or a field is missing, has the wrong type, or has a word outside its
    /// closed set.
    Json(serde_json::Error),
    /// The line is a record with another schema version.
    Version {
        /// The version in the line.
        found: u32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Json(_) => f.write_str("not a response record"),
            Error::Version { found } => {
                write!(
                    f,
                    "record has schema version {found}, but this program reads version {SCHEMA_VERSION}"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Json(cause) => Some(cause),
            Error::Version { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
