//! SQLite sink: stores records, five-minute aggregates and the position in one file, with one
//! transaction per batch.
//!
//! The file uses WAL mode, so readers and the sink do not block each other. The tables are declared
//! in `schema/sqlite`. Each transaction is synced before the spool is notified.
//!
//! **Invariant:** a batch's records, their contribution to the aggregates, and the position after
//! them are committed together, so a repeated batch adds nothing.

mod hosts;
mod raw;
mod retention;
mod rollup;
mod rollups;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};
use thalweg_record::{Batch, Entry, Source};

pub use retention::Retention;

use crate::clock::{Moment, Steady};
use crate::disk;
use crate::error::SinkError;
use crate::sink::Sink;
use raw::stored;
use rollups::Rollups;

/// Schema version, stored as the file's `user_version`.
pub const SCHEMA_VERSION: u32 = 2;

/// SQL statements that create the tables in a new file.
pub const SCHEMA: [&str; 3] = [
    include_str!("../../../../../schema/sqlite/records.sql"),
    include_str!("../../../../../schema/sqlite/aggregates.sql"),
    include_str!("../../../../../schema/sqlite/positions.sql"),
];

/// Page cache size in bytes. It is large enough to keep the pages of recent aggregates in memory,
/// so that batches need not read them again.
const CACHE_BYTES: i64 = 32 << 20;
/// Write-ahead log length, in pages, at which SQLite checkpoints. One checkpoint then covers
/// several batches.
const CHECKPOINT_PAGES: u32 = 8000;
/// `application_id` that identifies a telemetry file: the ASCII string "Thlw".
const APPLICATION: u32 = 0x5468_6c77;
/// Maximum wait for another writer's transaction before the batch is retried.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum cached prepared statements.
const STATEMENTS_MAX: usize = 32;
/// Size in bytes to which the write-ahead log is truncated after a long-running reader has let it
/// grow.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// The SQLite sink.
#[derive(Debug)]
pub struct SqliteSink {
    path: PathBuf,
    connection: Connection,
    rollups: Rollups,
    retention: Retention,
    steady: Steady,
}

impl SqliteSink {
    /// Opens a file, creating it if missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, is not a telemetry file, or was written by a
    /// newer release.
    pub fn open(path: &Path, retention: Retention) -> Result<Self, SinkError> {
        // Create the file here, because SQLite would create it with the mode given by the umask.
        // The write-ahead log and its index inherit the file's mode.
        disk::options().open(path).map_err(|cause| open_error(path, cause))?;
        let mut connection = Connection::open(path).map_err(error("open", path))?;
        prepare(&mut connection, path)?;
        Ok(Self {
            path: path.to_owned(),
            connection,
            rollups: Rollups::default(),
            retention,
            steady: Steady::default(),
        })
    }

    /// Adds a batch and returns the number of new records.
    fn add(&mut self, batch: &Batch) -> rusqlite::Result<usize> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let position = position(&transaction, &batch.source)?.unwrap_or(0);
        let known = batch.entries.partition_point(|entry| entry.number < position);
        let entries = &batch.entries[known..];
        let Some(last) = entries.last() else { return Ok(0) };
        raw::insert(&transaction, &batch.source, entries)?;
        self.rollups.add(&transaction, &batch.source, entries)?;
        note(&transaction, &batch.source, last)?;
        transaction.commit()?;
        Ok(entries.len())
    }
}

impl Sink for SqliteSink {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        position(&self.connection, source).map_err(error("read", &self.path))
    }

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.keep_at(batch, Moment::now())
    }
}

impl SqliteSink {
    fn keep_at(&mut self, batch: &Batch, now: Moment) -> Result<(), SinkError> {
        let added = self.add(batch).map_err(|cause| {
            // The failed transaction was rolled back, so the rollups in memory are ahead of the
            // file.
            self.rollups.clear();
            error("write to", &self.path)(cause)
        })?;
        // The batch is stored even if trimming fails; trimming is retried after the next batch.
        let by_age = self.steady.is_steady(now).then_some(now.unix_us);
        if let Err(cause) = self.retention.trim(&self.connection, by_age, added) {
            tracing::warn!(path = %self.path.display(), error = %cause, "cannot delete old telemetry");
        }
        Ok(())
    }
}

/// Configures a connection, and creates the tables if the file is empty.
fn prepare(connection: &mut Connection, path: &Path) -> Result<(), SinkError> {
    let failed = || error("prepare", path);
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed())?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (application, version) =
        (number("application_id").map_err(failed())?, number("user_version").map_err(failed())?);
    let count = "SELECT count(*) FROM sqlite_schema";
    let is_empty = connection.query_row(count, [], |row| row.get::<_, u32>(0)).map_err(failed())? == 0;
    if !is_empty && application != APPLICATION {
        return Err(refused(path, "not a telemetry file: choose another path".to_owned()));
    }
    if version > SCHEMA_VERSION {
        let reason =
            format!("schema version must be at most {SCHEMA_VERSION}, got {version}: use a newer release");
        return Err(refused(path, reason));
    }
    // Must be set before the first table is created.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed())?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed())?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed())?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(failed())?;
    // SQLite reads a negative value as KiB.
    connection.pragma_update(None, "cache_size", -CACHE_BYTES / 1024).map_err(failed())?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX).map_err(failed())?;
    if is_empty {
        create(connection)
    } else {
        raw::upgrade(connection)
            .and_then(|()| raw::complete(connection))
            .and_then(|()| connection.pragma_update(None, "user_version", SCHEMA_VERSION))
    }
    .map_err(failed())
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    SCHEMA.iter().try_for_each(|tables| transaction.execute_batch(tables))?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

fn position(connection: &Connection, source: &Source) -> rusqlite::Result<Option<u64>> {
    connection
        .prepare_cached("SELECT position FROM positions WHERE host = ?1 AND epoch = ?2")?
        .query_row((&source.host, stored(source.epoch)), |row| row.get(0))
        .optional()
}

fn note(transaction: &Transaction<'_>, source: &Source, last: &Entry) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO positions VALUES (?1, ?2, ?3)")?
        .execute((&source.host, stored(source.epoch), stored(last.number.saturating_add(1))))
        .map(drop)
}

fn error(what: &str, path: &Path) -> impl FnOnce(rusqlite::Error) -> SinkError {
    let what = format!("cannot {what} {}", path.display());
    move |cause| {
        let is_passing = matches!(
            cause.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::OutOfMemory
            )
        );
        SinkError { what, is_passing, cause: cause.into() }
    }
}

fn open_error(path: &Path, cause: std::io::Error) -> SinkError {
    SinkError { what: format!("cannot open {}", path.display()), is_passing: true, cause: cause.into() }
}

fn refused(path: &Path, reason: String) -> SinkError {
    SinkError { what: format!("cannot use {}", path.display()), is_passing: false, cause: reason.into() }
}
