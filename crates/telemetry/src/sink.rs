//! What a place that keeps records has to do. Each runs on a thread of its own, which reads batches from the spool, and may
//! block as long as it takes: what comes meanwhile waits in the spool.

mod clickhouse;
mod controller;
mod files;
pub mod json;
mod kafka;
pub mod parquet;
pub mod sqlite;

use std::fmt;

use thalweg_record::{Batch, Source};

pub use clickhouse::ClickHouseSink;
pub use controller::ControllerSink;
pub(crate) use kafka::Deliveries;
pub use kafka::KafkaSink;

/// A place where records are kept.
pub trait Sink: Send {
    /// Its name in logs, metrics and the spool's positions: `sqlite`, `kafka`, `clickhouse`, `controller`, `json`.
    fn name(&self) -> &'static str;

    /// The number of the first record of `source` (host and epoch) that it has not kept yet, by what it has written itself;
    /// `None` where it does not know, and the spool's own note is to be taken.
    ///
    /// # Errors
    /// When it cannot be asked now; it is asked again.
    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError>;

    /// Keeps a batch, wholly: after an error, or an end of the process in the middle, the same batch comes again, with the
    /// same numbers in it, and is then there once, for who reads it as the sink says.
    ///
    /// # Errors
    /// When it could not be kept.
    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError>;

    /// How far it has kept for good what it was given up to the number `given`: less where it gathers batches to write them
    /// together. Those that it has gathered come again after an end of the process.
    fn kept(&self, given: u64) -> u64 {
        given
    }

    /// Batches that it took for kept and could not look for, though it was in doubt.
    fn unverified(&self) -> u64 {
        0
    }

    /// Writes what it has gathered: nothing more comes.
    ///
    /// # Errors
    /// When it could not be kept.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Why a batch was not kept.
#[derive(Debug)]
pub struct SinkError {
    /// What was tried, and where.
    pub what: String,
    /// Whether it may help to try again: a broker that is down comes back, a table that lacks a column does not by itself.
    /// It is tried again in either case, but an operator is told of the second kind as an error.
    pub is_passing: bool,
    /// The cause.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for SinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}
