//! The tables aside of a look for a block: what they are called, whose they are, and the statements over them.
//!
//! **Invariant:** a table aside is named after the block's token and after its look. Who makes one drops those of other looks for
//! the block after that: what a killed process has left goes, and of two looks at a time at most one has its tables still. So what a
//! look asks for after it has made one comes after all that looks before it have moved.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use twox_hash::XxHash3_64;

use super::Server;
use crate::SinkError;

/// A look begins no statement after this; it has failed then.
pub(super) const LOOK_TIME_MAX: Duration = Duration::from_secs(60);
/// How long the server may work on a statement of a look, seconds.
const EXECUTION_SECONDS_MAX: u64 = 30;
/// What is put aside is a single part in each partition, which a move takes whole: no block has more rows.
const ASIDE_ROWS_MAX: u64 = 100_000_000;

/// The tables aside of one look.
pub(super) struct Asides<'a> {
    server: &'a Server,
    prefix: String,
    nonce: String,
    begun: Instant,
}

impl<'a> Asides<'a> {
    /// Of a look for the block of a token in a table; none is made yet.
    pub(super) fn of(server: &'a Server, table: &str, token: &str) -> Self {
        let prefix = format!("thalweg_verify_{table}_{:016x}", XxHash3_64::oneshot(token.as_bytes()));
        // Its keys are random, and others each time.
        let nonce = format!("{:016x}", RandomState::new().hash_one(token));
        Self { server, prefix, nonce, begun: Instant::now() }
    }

    /// What a table is called.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{}_{what}_{}", self.prefix, self.nonce)
    }

    /// Makes an empty table like another, then drops what other looks for the block have.
    pub(super) fn make(&self, what: &str, like: &str) -> Result<(), SinkError> {
        let Self { prefix, nonce, .. } = self;
        self.execute(&format!("CREATE TABLE {} AS {like}", self.name(what)))?;
        let others = self.ask(&format!(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, '{prefix}_') \
             AND NOT endsWith(name, '{nonce}')"
        ))?;
        others.lines().try_for_each(|name| self.drop_table(name))
    }

    /// What a SELECT answers, a row a line, columns with tabs between.
    pub(super) fn ask(&self, query: &str) -> Result<String, SinkError> {
        self.in_time()?;
        self.server.text(&format!(
            "{query} SETTINGS join_use_nulls = 0, max_execution_time = {EXECUTION_SECONDS_MAX}"
        ))
    }

    /// Fills a table aside with what a query gives, in one part for each partition.
    pub(super) fn fill(&self, what: &str, columns: &str, token: &str, query: &str) -> Result<(), SinkError> {
        let token = token.replace('\\', "\\\\").replace('\'', "\\'");
        self.execute(&format!(
            "INSERT INTO {} ({columns}) SETTINGS insert_deduplication_token = '{token}', join_use_nulls = 0, \
             max_execution_time = {EXECUTION_SECONDS_MAX}, max_insert_threads = 1, \
             min_insert_block_size_rows = {ASIDE_ROWS_MAX}, min_insert_block_size_bytes = 0 {query}",
            self.name(what)
        ))
    }

    /// Runs a statement without an answer.
    pub(super) fn execute(&self, statement: &str) -> Result<(), SinkError> {
        self.in_time()?;
        self.server.execute(statement)
    }

    /// Drops the look's own table, if it is there.
    pub(super) fn drop(&self, what: &str) -> Result<(), SinkError> {
        self.drop_table(&self.name(what))
    }

    fn drop_table(&self, name: &str) -> Result<(), SinkError> {
        self.execute(&format!("DROP TABLE IF EXISTS {name} SYNC"))
    }

    fn in_time(&self) -> Result<(), SinkError> {
        if self.begun.elapsed() < LOOK_TIME_MAX {
            return Ok(());
        }
        let cause = format!("it takes longer than {} s", LOOK_TIME_MAX.as_secs());
        Err(SinkError { what: "cannot look for a block".into(), is_passing: true, cause: cause.into() })
    }
}
