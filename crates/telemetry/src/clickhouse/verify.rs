//! Block verification: checks whether a block is in its table and in the table's rollup, and
//! restores missing rows.
//!
//! Deterministic blocks and the deduplication window alone do not prevent loss. A `MergeTree`
//! without replicas writes a block's token to `deduplication_log` before it renames the block's
//! part from `tmp_insert_*` (`MergeTreeSink::finishDelayedChunk`; the order of the two system calls
//! is the same in 26.9). A server killed between the two has the token but not the block, and drops
//! the repeated block, so the table has none of its rows. Retrying under a new token instead would
//! duplicate every block that was stored. The table and its rollup each have this gap. Replicated
//! tables commit token and part together and are not verified.
//!
//! The block's rows are inserted into a staging table. Rows whose keys the table lacks are copied
//! to a second staging table; if the rollup lacks the block, the view's query over the block fills
//! a third. The second and third are moved into place with `MOVE PARTITION`: a move runs no view
//! and checks no token, and moved rows cannot be moved again. A crash around a move is harmless:
//! the next verification drops the staging tables and then queries the missing rows. Rollup windows
//! are compared by all their sums, for each network in the block. If the rollup has the block, its
//! sums equal the view's query over the table; if not, they are lower by exactly the block's own
//! sums.
//!
//! **Invariant:** a verification ends with a check after the last move.
//! **Invariant:** missing rows are queried after the staging table was created, and thus after all
//! moves of other verifications.
//! **Invariant:** missing rows are queried only after the insert has succeeded, so an attempt still
//! in progress is dropped by its token.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use thalweg_record::rows::Table;

use super::server::{Rows, Server};
use super::staging::Staging;
use crate::error::SinkError;
use crate::schema::Rollup;

/// Length of a rollup window in microseconds, as in `schema/`.
const WINDOW_US: i64 = 300_000_000;
/// Maximum windows that one verification compares and restores; the next one handles the rest.
const WINDOWS_MAX: usize = 10_000;
/// Delay between two checks of a window. The window must lack the block in both, because at the
/// first check another block with the same sums may have been in progress.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Prefixes of table engines that commit token and part in one step.
const WITHOUT_GAP: [&str; 2] = ["Replicated", "Shared"];

/// Staging tables: the block, the rows that the table lacks, and the windows that the rollup lacks.
const BLOCK: &str = "block";
const ROWS: &str = "rows";
const ROLLUP: &str = "rollup";

/// State of a window whose sums are lower by exactly the block's sums.
const LACKING: &str = "lacking";

/// A table into which blocks are inserted.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) table: &'static str,
    /// The table's columns, in row order.
    pub(super) columns: Vec<&'static str>,
    /// Columns that identify a row. A repeated row has the same `time`.
    name: &'static str,
    /// Leading sorting columns, which limit the rows that a verification reads to those near the
    /// block.
    near: &'static str,
    /// The record table, if this is one.
    records: Option<Table>,
}

impl Target {
    /// Returns the target for a record table.
    pub(crate) fn of(table: Table) -> Self {
        let near = match table {
            Table::Sockets | Table::Responses => "pop, prefix",
            Table::Losses => "host",
        };
        Self {
            table: table.name(),
            columns: table.columns().iter().map(|column| column.name).collect(),
            name: "host, epoch, number",
            near,
            records: Some(table),
        }
    }

    /// Returns the target for `refused`, the table of messages that could not be decoded.
    pub(crate) fn refused(columns: &[&'static str]) -> Self {
        Self {
            table: "refused",
            columns: columns.to_vec(),
            name: "topic, kafka_partition, kafka_offset",
            near: "topic, kafka_partition",
            records: None,
        }
    }
}

/// Result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The block is complete.
    Whole,
    /// The rollup's sums match neither with nor without the block. Another block may be in the
    /// table but not in the rollup yet.
    Unclear,
    /// The table or its rollup has an unsupported engine, such as one that only forwards to other
    /// tables; nothing was checked.
    Foreign,
}

/// Verifies a block after its insert and restores missing rows. Sets `was_restored` if any were
/// restored, even if the verification then fails.
///
/// # Errors
/// If the server refuses a statement or cannot be reached, or another process is verifying the same
/// block. Retrying is safe.
pub(super) fn verify(
    server: &Server,
    target: &Target,
    token: &str,
    rows: &Rows,
    was_restored: &Cell<bool>,
) -> Result<Found, SinkError> {
    let rollup = target.records.and_then(Rollup::of);
    let names = [Some(target.table), rollup.as_ref().map(|rollup| rollup.name.as_str())];
    let names: Vec<_> = names.into_iter().flatten().map(|name| format!("'{name}'")).collect();
    let staging = Staging::of(server, target.table, token);
    let engines = staging.query(&format!(
        "SELECT engine FROM system.tables WHERE database = currentDatabase() AND name IN ({})",
        names.join(", ")
    ))?;
    let has_gap = |engine: &str| !WITHOUT_GAP.iter().any(|word| engine.starts_with(word));
    if !engines.lines().any(has_gap) {
        return Ok(Found::Whole);
    }
    if !engines.lines().all(|engine| has_gap(engine) && engine.ends_with("MergeTree")) {
        return Ok(Found::Foreign);
    }
    let block = staging.name(BLOCK);
    let verification = Verification { server, target, rollup, token, staging, block, was_restored };
    let found = verification.run(rows);
    // Staging tables that cannot be dropped now are dropped by the next verification.
    let dropped = [ROWS, ROLLUP, BLOCK].iter().try_for_each(|what| verification.staging.drop(what));
    found.and_then(|found| dropped.map(|()| found))
}

/// A verification of one block.
struct Verification<'a> {
    server: &'a Server,
    target: &'a Target,
    rollup: Option<Rollup>,
    token: &'a str,
    staging: Staging<'a>,
    /// Name of the staging table with the block's rows.
    block: String,
    was_restored: &'a Cell<bool>,
}

impl Verification<'_> {
    fn run(&self, rows: &Rows) -> Result<Found, SinkError> {
        let Target { table, columns, .. } = self.target;
        self.staging.create(BLOCK, table)?;
        self.server.insert(&self.block, columns, self.token, rows.bytes.clone())?;
        let bounds = self.staging.query(&format!(
            "SELECT toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time)), count() FROM {}",
            self.block
        ))?;
        let numbers: Vec<i64> = bounds.split('\t').filter_map(|number| number.parse().ok()).collect();
        let &[first_us, last_us, count] = numbers.as_slice() else {
            return Err(failed(format!("unexpected time bounds of the staged block: {bounds}")));
        };
        if u64::try_from(count) != Ok(rows.count) {
            return Err(failed(format!("{count} rows staged, expected {}", rows.count)));
        }
        self.restore_rows(first_us, last_us)?;
        match &self.rollup {
            Some(rollup) => self.restore_windows(rollup, first_us, last_us),
            None => Ok(Found::Whole),
        }
    }

    /// Restores the rows that the table lacks.
    fn restore_rows(&self, first_us: i64, last_us: i64) -> Result<(), SinkError> {
        let Target { table, name, columns, .. } = self.target;
        let Self { block, .. } = self;
        let columns = columns.join(", ");
        let near = self.near(first_us, last_us);
        let missing = format!("FROM {block} WHERE ({name}) NOT IN (SELECT {name} FROM {table} WHERE {near})");
        let count = || self.staging.query(&format!("SELECT count() {missing}"));
        if count()? == "0" {
            return Ok(());
        }
        self.staging.create(ROWS, table)?;
        self.stage_and_move(ROWS, table, &columns, &format!("SELECT {columns} {missing}"))?;
        match count()?.as_str() {
            "0" => Ok(()),
            left => Err(failed(format!("{left} rows of a block are missing after their move"))),
        }
    }

    /// Adds the block to the windows of the rollup that lack it.
    fn restore_windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> Result<Found, SinkError> {
        let query = self.windows(rollup, first_us, last_us);
        // Each line has a digest of the actual and expected sums, so if both checks return a line,
        // the window has not changed.
        let query_windows = || -> Result<BTreeSet<String>, SinkError> {
            Ok(self.staging.query(&query)?.lines().map(str::to_owned).collect())
        };
        let before = query_windows()?;
        if before.is_empty() {
            return Ok(Found::Whole);
        }
        if !before.iter().any(|line| line.ends_with(LACKING)) {
            return Ok(Found::Unclear);
        }
        self.staging.create(ROLLUP, &rollup.name)?;
        thread::sleep(AGAIN_AFTER);
        let now = query_windows()?;
        let lacking = now.intersection(&before).filter(|line| line.ends_with(LACKING));
        let lacking: Vec<_> = lacking.filter_map(|line| line.split('\t').next()).collect();
        if !lacking.is_empty() {
            let columns = rollup.columns.join(", ");
            let over = rollup.query_over(&self.block);
            let query = format!("SELECT {columns} FROM ({over}) WHERE window IN ({})", lacking.join(", "));
            self.stage_and_move(ROLLUP, &rollup.name, &columns, &query)?;
        }
        Ok(if query_windows()?.is_empty() { Found::Whole } else { Found::Unclear })
    }

    /// Moves a query's rows into a table, via a newly created staging table.
    fn stage_and_move(&self, what: &str, table: &str, columns: &str, query: &str) -> Result<(), SinkError> {
        self.staging.fill(what, columns, self.token, query)?;
        let staged = self.staging.name(what);
        let partitions = self.staging.query(&format!("SELECT DISTINCT _partition_id FROM {staged}"))?;
        for partition in partitions.lines() {
            let moved = format!("ALTER TABLE {staged} MOVE PARTITION ID '{partition}' TO TABLE {table}");
            self.staging.execute(&moved)?;
            self.was_restored.set(true);
        }
        Ok(())
    }

    /// Builds the query for windows that do not include the block yet: window, digest of the sums,
    /// state.
    fn windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> String {
        let Target { table, .. } = self.target;
        // A window lies within one day, so its rows are in the same days as the block's.
        let near = self.near(first_us - WINDOW_US, last_us + WINDOW_US);
        let sums: Vec<_> = rollup.sums.iter().map(|sum| format!("sum({sum})")).collect();
        let sums = |from: &str| {
            let sums = sums.join(", ");
            format!("SELECT window, pop, prefix, [{sums}] AS sums FROM ({from}) GROUP BY window, pop, prefix")
        };
        let block = rollup.query_over(&self.block);
        let of_block = format!("window IN (SELECT window FROM ({block}))");
        let own = sums(&block);
        let table = rollup.query_over(&format!("(SELECT * FROM {table} WHERE {near})"));
        let whole = sums(&format!("SELECT * FROM ({table}) WHERE {of_block}"));
        let kept = sums(&format!(
            "SELECT * FROM {} WHERE {of_block} AND (pop, prefix) IN (SELECT pop, prefix FROM {})",
            rollup.name, self.block
        ));
        let key = "window, pop, prefix";
        format!(
            "SELECT window, sum(digest), multiIf(min(is_there), 'there', min(is_lacking), '{LACKING}', 'unclear') AS state FROM (\
               SELECT window, arrayResize(kept.sums, length(own.sums)) AS has, \
                 arrayResize(whole.sums, length(own.sums)) AS wants, has = wants AS is_there, \
                 arrayMap((a, b) -> a + b, has, own.sums) = wants AS is_lacking, cityHash64({key}, has, wants) AS digest \
               FROM ({own}) AS own LEFT JOIN ({whole}) AS whole USING ({key}) LEFT JOIN ({kept}) AS kept USING ({key})\
             ) GROUP BY window HAVING state != 'there' ORDER BY window LIMIT {WINDOWS_MAX}"
        )
    }

    /// Builds a condition on partitions and sorting columns that holds for all of the block's rows
    /// in the table. The days between a block's outlying times are excluded.
    fn near(&self, first_us: i64, last_us: i64) -> String {
        let Target { near, .. } = self.target;
        let Self { block, .. } = self;
        let [first, last] = [first_us, last_us].map(|us| format!("fromUnixTimestamp64Micro({us})"));
        format!(
            "time BETWEEN {first} AND {last} AND toDate(time) IN (SELECT toDate(time) FROM {block}) \
             AND ({near}) IN (SELECT {near} FROM {block})"
        )
    }
}

fn failed(cause: String) -> SinkError {
    SinkError { what: "cannot verify a block".into(), is_passing: true, cause: cause.into() }
}
