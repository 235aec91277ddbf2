//! Staging tables used by a verification: their names, their ownership, and the statements on them.
//!
//! **Invariant:** a staging table's name contains a hash of the block's token and the
//! verification's nonce. Creating a staging table drops those of all other verifications of the
//! same block. Tables left by a crashed process are thus soon dropped, and of several concurrent
//! verifications at most one still has its tables. Once a verification has created its table, its
//! queries see every move made by earlier verifications.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use twox_hash::XxHash3_64;

use super::server::Server;
use crate::error::SinkError;

/// Time limit of a verification. After this time, it starts no more statements and fails.
pub(super) const VERIFY_TIME_MAX: Duration = Duration::from_secs(60);
/// Server-side time limit for each statement of a verification, in seconds.
const EXECUTION_SECONDS_MAX: u64 = 30;
/// Maximum number of rows per staged part. The limit exceeds any block's row count, because staged
/// rows must form a single part per partition, which one move transfers completely.
const STAGED_ROWS_MAX: u64 = 100_000_000;

/// The staging tables used by one verification.
pub(super) struct Staging<'a> {
    server: &'a Server,
    prefix: String,
    nonce: String,
    started: Instant,
}

impl<'a> Staging<'a> {
    /// Prepares to verify the block with the given token in `table`. Creates no staging table yet.
    pub(super) fn of(server: &'a Server, table: &str, token: &str) -> Self {
        let prefix = format!("thalweg_verify_{table}_{:016x}", XxHash3_64::oneshot(token.as_bytes()));
        // Random nonce: each `RandomState` has different keys.
        let nonce = format!("{:016x}", RandomState::new().hash_one(token));
        Self { server, prefix, nonce, started: Instant::now() }
    }

    /// Returns the name of this verification's staging table for `what`.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{}_{what}_{}", self.prefix, self.nonce)
    }

    /// Creates an empty staging table with the structure of `like`, then drops the staging tables
    /// of other verifications of the same block.
    pub(super) fn create(&self, what: &str, like: &str) -> Result<(), SinkError> {
        let Self { prefix, nonce, .. } = self;
        self.execute(&format!("CREATE TABLE {} AS {like}", self.name(what)))?;
        let others = self.query(&format!(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, '{prefix}_') \
             AND NOT endsWith(name, '{nonce}')"
        ))?;
        others.lines().try_for_each(|name| self.drop_table(name))
    }

    /// Runs a SELECT and returns its result, one line per row, with tab-separated columns.
    pub(super) fn query(&self, query: &str) -> Result<String, SinkError> {
        self.in_time()?;
        self.server.text(&format!(
            "{query} SETTINGS join_use_nulls = 0, max_execution_time = {EXECUTION_SECONDS_MAX}"
        ))
    }

    /// Fills a staging table with a query's result, as one part per partition.
    pub(super) fn fill(&self, what: &str, columns: &str, token: &str, query: &str) -> Result<(), SinkError> {
        let token = token.replace('\\', "\\\\").replace('\'', "\\'");
        self.execute(&format!(
            "INSERT INTO {} ({columns}) SETTINGS insert_deduplication_token = '{token}', join_use_nulls = 0, \
             max_execution_time = {EXECUTION_SECONDS_MAX}, max_insert_threads = 1, \
             min_insert_block_size_rows = {STAGED_ROWS_MAX}, min_insert_block_size_bytes = 0 {query}",
            self.name(what)
        ))
    }

    /// Runs a statement that returns no result.
    pub(super) fn execute(&self, statement: &str) -> Result<(), SinkError> {
        self.in_time()?;
        self.server.execute(statement)
    }

    /// Drops one of this verification's staging tables if it exists.
    pub(super) fn drop(&self, what: &str) -> Result<(), SinkError> {
        self.drop_table(&self.name(what))
    }

    fn drop_table(&self, name: &str) -> Result<(), SinkError> {
        self.execute(&format!("DROP TABLE IF EXISTS {name} SYNC"))
    }

    fn in_time(&self) -> Result<(), SinkError> {
        if self.started.elapsed() < VERIFY_TIME_MAX {
            return Ok(());
        }
        let cause = format!("verification took longer than {} s", VERIFY_TIME_MAX.as_secs());
        Err(SinkError { what: "cannot verify a block".into(), is_passing: true, cause: cause.into() })
    }
}
