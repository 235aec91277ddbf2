//! Telemetry: what the kernel says of every socket and the edge of every response, kept where somebody can ask for it.
//!
//! ```text
//! collect (dumps, destroyed sockets, responses) → enrich → spool → a thread for each sink: SQLite, Kafka, ClickHouse, files
//! ```
//!
//! **Invariant:** every record goes through the spool, where it gets its number; what is lost before that, or because the spool
//! is full, is counted and itself recorded.
//! **Invariant:** a sink keeps each record once, however often it or the agent is killed.

pub mod agent;
pub mod clickhouse;
mod clock;
pub mod collect;
pub mod consumer;
mod disk;
pub mod enrich;
mod error;
pub mod kafka;
pub mod keyed;
#[cfg(test)]
mod killed;
pub mod look;
pub mod query;
pub mod runner;
pub mod schema;
pub mod sink;
pub mod spool;
pub mod tail;
#[cfg(test)]
mod testing;

pub use error::Error;
pub use sink::{Sink, SinkError};
