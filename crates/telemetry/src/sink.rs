//! Sink interface. Each sink runs on its own thread, which reads batches from the spool. A sink may
//! block indefinitely, because new records wait in the spool.

pub mod clickhouse;
pub mod controller;
mod files;
pub mod json;
pub mod kafka;
pub mod parquet;
pub mod sqlite;

use thalweg_record::{Batch, Source};

use crate::error::SinkError;

/// A destination for records.
pub trait Sink: Send {
    /// Returns the sink's name in logs, metrics and spool file names, such as `sqlite` or `kafka`.
    fn name(&self) -> &'static str;

    /// Returns the number of the first record from `source` (host and epoch) that the sink has not
    /// stored, according to the sink's own data. Returns `None` if the sink keeps no position; the
    /// spool's position file is then used.
    ///
    /// # Errors
    ///
    /// Returns an error if the position cannot currently be read; the call is retried.
    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError>;

    /// Stores all records of a batch, or returns an error. After an error or a crash of the
    /// process, the same batch is passed again with the same record numbers. Readers that follow
    /// the sink's documentation still see each record once.
    ///
    /// # Errors
    ///
    /// Returns an error if the batch could not be stored.
    fn store(&mut self, batch: &Batch) -> Result<(), SinkError>;

    /// Returns the number after the last durably stored record. `given` is the number after the
    /// last record passed to [`store`](Self::store). The result is lower than `given` for a sink
    /// that gathers several batches before it writes them; after a crash, the gathered batches are
    /// passed again.
    fn stored(&self, given: u64) -> u64 {
        given
    }

    /// Returns the number of batches treated as stored although their insertion was in doubt and
    /// could not be verified.
    fn unverified(&self) -> u64 {
        0
    }

    /// Writes all gathered batches. Called after the last batch has been passed.
    ///
    /// # Errors
    ///
    /// Returns an error if the gathered batches could not be stored.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
