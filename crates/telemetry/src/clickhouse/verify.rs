//! Whether a block is in its table and in the table's rollup, and the way there for what is not.
//!
//! A `MergeTree` without replicas writes a block's token into its log before it takes the block's part in
//! (`MergeTreeSink::finishDelayedChunk`). A server that is killed between the two knows the token and lacks the block; the repeat
//! under the same token is dropped. Table and rollup each have this gap.
//!
//! The block's rows are put into a table aside. Rows whose names the table lacks, and the view's query over the block where
//! the rollup lacks it, are put into further tables aside and moved (`MOVE PARTITION`): no view is run by a move, no token asked for,
//! and what was moved is no longer there to be moved again. A kill around a move is harmless: the next look drops the table aside, and
//! asks for what is missing after that. Windows of the rollup are compared by all of its sums, for each
//! network of the block: with the block they are what the view's query gives over the table; without, less by its own.
//!
//! **Invariant:** a look is closed by what was found after the last move.
//! **Invariant:** what a table lacks is asked for after the table aside was made, so after all moves of other looks.
//! **Invariant:** it is asked only after the insert was answered; an attempt that is still under way is dropped by its token.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use thalweg_record::rows::Table;

use super::aside::Asides;
use super::{Rows, Server};
use crate::SinkError;
use crate::schema::Rollup;

/// The length of a rollup's window, us, as `schema/` has it.
const WINDOW_US: i64 = 300_000_000;
/// Windows that one look compares and brings; further ones are left to the next.
const WINDOWS_MAX: usize = 10_000;
/// A window that lacks a block has to do so twice, this much apart: another block of the same sums may have been on its way.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Engines that note token and part in one step.
const WITHOUT_GAP: [&str; 2] = ["Replicated", "Shared"];

/// What tables aside have: the block, rows that the table lacks, what the rollup lacks.
const BLOCK: &str = "block";
const ROWS: &str = "rows";
const ROLLUP: &str = "rollup";

/// The state of a window that is less by just the block's share.
const LACKING: &str = "lacking";

/// A table into which blocks are inserted.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) table: &'static str,
    /// Its columns, in the order of the rows.
    pub(super) columns: Vec<&'static str>,
    /// What names a row, which has the same `time` each time that it comes.
    name: &'static str,
    /// What its rows are sorted by first: a look for a block reads only what is near it.
    near: &'static str,
    /// Which it is of the tables of records, if it is one.
    records: Option<Table>,
}

impl Target {
    /// A table of records.
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

    /// The table of messages that could not be read.
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

/// What was found of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is all there.
    Whole,
    /// The rollup is neither as with the block nor as without it: somebody else's block may be in the table and not in the rollup
    /// yet.
    Unclear,
    /// A table is of an engine that is not known here, as one that only leads to others: nothing was looked at.
    Foreign,
}

/// Looks for a block that was inserted, and brings what is not there; what it brings is noted in `was_restored`, also where it
/// fails afterwards.
///
/// # Errors
/// When the server refuses something or is not there, or another process looks for the block. It may be asked again.
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
    let asides = Asides::of(server, target.table, token);
    let engines = asides.ask(&format!(
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
    let block = asides.name(BLOCK);
    let look = Look { server, target, rollup, token, asides, block, was_restored };
    let found = look.run(rows);
    // What cannot be dropped now is dropped by the next look.
    let dropped = [ROWS, ROLLUP, BLOCK].iter().try_for_each(|what| look.asides.drop(what));
    found.and_then(|found| dropped.map(|()| found))
}

/// A look for one block.
struct Look<'a> {
    server: &'a Server,
    target: &'a Target,
    rollup: Option<Rollup>,
    token: &'a str,
    asides: Asides<'a>,
    /// The table aside that has the block's rows.
    block: String,
    was_restored: &'a Cell<bool>,
}

impl Look<'_> {
    fn run(&self, rows: &Rows) -> Result<Found, SinkError> {
        let Target { table, columns, .. } = self.target;
        self.asides.make(BLOCK, table)?;
        self.server.insert(&self.block, columns, self.token, rows.bytes.clone())?;
        let bounds = self.asides.ask(&format!(
            "SELECT toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time)), count() FROM {}",
            self.block
        ))?;
        let numbers: Vec<i64> = bounds.split('\t').filter_map(|number| number.parse().ok()).collect();
        let &[first_us, last_us, count] = numbers.as_slice() else {
            return Err(failed(format!("no times of a block: {bounds}")));
        };
        if u64::try_from(count) != Ok(rows.count) {
            return Err(failed(format!("{count} rows of a block of {}", rows.count)));
        }
        self.bring_rows(first_us, last_us)?;
        match &self.rollup {
            Some(rollup) => self.bring_windows(rollup, first_us, last_us),
            None => Ok(Found::Whole),
        }
    }

    /// Brings the rows that the table lacks.
    fn bring_rows(&self, first_us: i64, last_us: i64) -> Result<(), SinkError> {
        let Target { table, name, columns, .. } = self.target;
        let Self { block, .. } = self;
        let columns = columns.join(", ");
        let near = self.near(first_us, last_us);
        let missing = format!("FROM {block} WHERE ({name}) NOT IN (SELECT {name} FROM {table} WHERE {near})");
        let count = || self.asides.ask(&format!("SELECT count() {missing}"));
        if count()? == "0" {
            return Ok(());
        }
        self.asides.make(ROWS, table)?;
        self.bring(ROWS, table, &columns, &format!("SELECT {columns} {missing}"))?;
        match count()?.as_str() {
            "0" => Ok(()),
            left => Err(failed(format!("{left} rows of a block are missing after their move"))),
        }
    }

    /// Brings the block to the windows of the rollup that lack it.
    fn bring_windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> Result<Found, SinkError> {
        let query = self.windows(rollup, first_us, last_us);
        // Each with what it has and should have, so that what is in both of two answers has not changed.
        let ask = || -> Result<BTreeSet<String>, SinkError> {
            Ok(self.asides.ask(&query)?.lines().map(str::to_owned).collect())
        };
        let before = ask()?;
        if before.is_empty() {
            return Ok(Found::Whole);
        }
        if !before.iter().any(|line| line.ends_with(LACKING)) {
            return Ok(Found::Unclear);
        }
        self.asides.make(ROLLUP, &rollup.name)?;
        thread::sleep(AGAIN_AFTER);
        let now = ask()?;
        let lacking = now.intersection(&before).filter(|line| line.ends_with(LACKING));
        let lacking: Vec<_> = lacking.filter_map(|line| line.split('\t').next()).collect();
        if !lacking.is_empty() {
            let columns = rollup.columns.join(", ");
            let over = rollup.query_over(&self.block);
            let query = format!("SELECT {columns} FROM ({over}) WHERE window IN ({})", lacking.join(", "));
            self.bring(ROLLUP, &rollup.name, &columns, &query)?;
        }
        Ok(if ask()?.is_empty() { Found::Whole } else { Found::Unclear })
    }

    /// Moves the rows of a query into a table, by a table aside that was just made.
    fn bring(&self, what: &str, table: &str, columns: &str, query: &str) -> Result<(), SinkError> {
        self.asides.fill(what, columns, self.token, query)?;
        let aside = self.asides.name(what);
        let partitions = self.asides.ask(&format!("SELECT DISTINCT _partition_id FROM {aside}"))?;
        for partition in partitions.lines() {
            let moved = format!("ALTER TABLE {aside} MOVE PARTITION ID '{partition}' TO TABLE {table}");
            self.asides.execute(&moved)?;
            self.was_restored.set(true);
        }
        Ok(())
    }

    /// The windows of the block that are not as they are with it: which, a digest of their sums, and their state.
    fn windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> String {
        let Target { table, .. } = self.target;
        // A window begins and ends within a day, so its rows are on the days of the block.
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

    /// What is true of the table's rows that may be of the block, in terms of its partitions and its sorting. A time that is far from
    /// the others does not bring in the days between.
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
    SinkError { what: "cannot look for a block".into(), is_passing: true, cause: cause.into() }
}
