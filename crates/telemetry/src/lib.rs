//! Telemetry: collects per-socket samples from the kernel and per-response records from edges,
//! enriches and spools them, and delivers them to sinks.
//!
//! ```text
//! collect (dumps, destroyed sockets, responses) → enrich → spool → one thread per sink
//! sinks: SQLite, JSON lines, Parquet, Kafka, ClickHouse, controller
//! ```
//!
//! **Invariant:** every record passes through the spool, which numbers it. Records lost before the
//! spool, or dropped because it is full, are counted, and each count is itself stored as a record.
//! **Invariant:** a sink stores each record exactly once, even after repeated crashes of the sink
//! or the agent.

pub mod agent;
mod backoff;
pub mod clickhouse;
mod clock;
pub mod collect;
pub mod console_queries;
pub mod consumer;
mod disk;
pub mod enrich;
mod error;
pub mod follow;
#[cfg(test)]
mod killed;
pub mod query;
pub mod runner;
pub mod schema;
pub mod sink;
pub mod spool;
#[cfg(test)]
mod testing;

pub use backoff::Backoff;
pub use error::{Error, SinkError};
pub use sink::Sink;
pub use sink::clickhouse::ClickHouseSink;
pub use sink::controller::ControllerSink;
pub use sink::kafka::KafkaSink;
