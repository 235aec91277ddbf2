//! Sink interface. Each sink runs on its own thread, which reads batches from the spool. A sink may
//! block as long as it needs, because new records wait in the spool.

pub mod clickhouse;
pub mod controller;
mod files;
pub mod json;
pub mod kafka;
pub mod parquet;
pub mod sqlite;

use thalweg_record::{Batch, Source};

use crate::error::SinkError;

/// A destination that stores records.
pub trait Sink: Send {
    /// Returns the sink's name in logs, metrics and spool file names, such as `sqlite` or `kafka`.
    fn name(&self) -> &'static str;

    /// Returns the number of the first record from `source` (host and epoch) that the sink has not
    /// stored, judging by its own data; `None` if the sink does not know, in which case the spool's
    /// position file decides.
    ///
    /// # Errors
    /// If the position cannot be read at the moment; the call is retried.
    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError>;

    /// Stores a batch as a whole. After an error or a crash of the process, the same batch is
    /// passed again with the same record numbers; readers that follow the sink's documentation
    /// still see each record once.
    ///
    /// # Errors
    /// If the batch could not be stored.
    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError>;

    /// Returns the number after the last durably stored record, at most `given`, the number after
    /// the last record passed to [`keep`](Self::keep). It is lower than `given` for sinks that
    /// gather batches to write them together; gathered batches are passed again after a crash.
    fn kept(&self, given: u64) -> u64 {
        given
    }

    /// Returns the number of batches treated as stored although they were in doubt and could not be
    /// verified.
    fn unverified(&self) -> u64 {
        0
    }

    /// Writes all gathered batches, because no more will be passed.
    ///
    /// # Errors
    /// If the gathered batches could not be stored.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
