//! Block verification: checks whether a block is in its table and in the table's rollup, and
//! restores missing rows.
//!
//! Deterministic blocks and the deduplication window alone do not prevent loss. A `MergeTree`
//! without replicas writes a block's token to `deduplication_log` before it renames the block's
//! part from `tmp_insert_*` (`MergeTreeSink::finishDelayedChunk`; the two system calls are in the
//! same order in 26.9). A server killed between these two steps has stored the token but not the
//! block. It then drops the block when it is sent again, so the block's rows are lost. Retrying
//! under a new token would not help, because it would duplicate every block that was stored after
//! all. The table and its rollup each have this gap. Replicated tables commit the token and the
//! part together, so they are not verified.
//!
//! A verification inserts the block's rows into a staging table. Rows whose keys are missing from
//! the table are copied to a second staging table. If the rollup lacks the block, the result of the
//! view's query over the block is written to a third. `MOVE PARTITION` then moves the second and
//! third into place. A move runs no view and checks no token, and moved rows cannot be moved again.
//! A crash before or after a move is harmless: the next verification drops the staging tables and
//! then determines anew which rows are missing.
//!
//! Rollup windows are compared by all their sums, for each site and prefix in the block. If the
//! rollup includes the block, its sums equal those of the view's query over the table. Otherwise,
//! they are lower by exactly the block's own sums.
//!
//! **Invariant:** a verification ends with a check after the last move.
//! **Invariant:** missing rows are determined after the staging table has been created, and thus
//! after all moves made by other verifications.
//! **Invariant:** missing rows are determined only after the insert has succeeded. An earlier
//! insert still in progress on the server is then dropped by its token.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use thalweg_record::rows::Table;

use super::server::{Rows, Server};
use super::staging::Staging;
use crate::error::SinkError;
use crate::schema::Rollup;

/// Length of a rollup window in microseconds, as in `schema/clickhouse`.
const WINDOW_US: i64 = 300_000_000;
/// Maximum number of windows compared and restored by one verification. The next verification
/// handles the rest.
const WINDOWS_MAX: usize = 10_000;
/// Delay between the two checks of a window. The window must lack the block in both checks, because
/// an insert of another block with the same sums may have been in progress during the first check.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Prefixes of table engines that commit the token and the part in one step.
const WITHOUT_GAP: [&str; 2] = ["Replicated", "Shared"];

/// Staging tables: the block, the rows missing from the table, and the windows missing from the
/// rollup.
const BLOCK: &str = "block";
const ROWS: &str = "rows";
const ROLLUP: &str = "rollup";

/// State of a window whose sums are lower than expected by exactly the block's sums.
const LACKING: &str = "lacking";

/// A table that receives blocks.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) table: &'static str,
    /// Table columns, in row order.
    pub(super) columns: Vec<&'static str>,
    /// Columns that identify a row. Repeated rows also have equal times.
    name: &'static str,
    /// Leading columns of the sorting key. They limit the rows read by a verification to those near
    /// the block.
    near: &'static str,
    /// The record table, unless the target is `refused`.
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
    /// The table and its rollup contain the entire block, or their engines cannot lose it.
    Whole,
    /// The rollup's sums match neither with nor without the block. The table may already contain
    /// another block that the rollup does not include yet.
    Unclear,
    /// The table or its rollup has an unsupported engine, such as one that only forwards rows to
    /// other tables. Nothing was checked.
    Foreign,
}

/// Verifies a block after its insert and restores missing rows. Sets `was_restored` if any rows
/// were restored, even if the verification then fails.
///
/// # Errors
///
/// Returns an error if the server rejects a statement or cannot be reached, or if another process
/// is verifying the same block. Retrying is safe.
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

/// Verification of one block.
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

    /// Restores the rows missing from the table.
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

    /// Adds the block to the rollup windows that lack it.
    fn restore_windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> Result<Found, SinkError> {
        let query = self.windows(rollup, first_us, last_us);
        // Each line contains a digest of the actual and expected sums. A line returned by both
        // checks therefore means that the window has not changed.
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

    /// Writes a query's result to a new staging table, then moves it into `table`.
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

    /// Returns the query for windows that do not include the block yet. Its columns are the window,
    /// a digest of the sums, and the state.
    fn windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> String {
        let Target { table, .. } = self.target;
        // A window lies within one day, so its rows are on the same days as the block's rows.
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

    /// Returns a condition on partitions and sorting columns that covers all of the block's rows in
    /// the table. Days between the block's first and last times that have no rows of the block are
    /// excluded.
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
