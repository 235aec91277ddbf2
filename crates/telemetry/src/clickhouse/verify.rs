//! Whether a block is in its table and in the table's rollup, and the way there for what is not.
//!
//! A `MergeTree` without replicas writes a block's token into its log before it takes the block's part in
//! (`MergeTreeSink::finishDelayedChunk`). A server that is killed between the two knows the token and lacks the block; the repeat
//! under the same token is dropped. Table and rollup each have this gap.
//!
//! The block's rows are put into a table aside. Rows whose names the table lacks, and the view's query over the block where
//! the rollup lacks it, are put into further tables aside and moved (`MOVE PARTITION`): no view is run by a move, no token asked for,
//! and what was moved is no longer there to be moved again. Windows of the rollup are compared by all of its sums, for each
//! network of the block: with the block they are what the view's query gives over the table; without, less by its own.
//!
//! **Invariant:** a table aside is named after the block's token, and is dropped before it is made: what a killed process has left is
//! replaced by who takes its block over, and one that was held up finds its own gone.
//! **Invariant:** it is asked only after the insert was answered; an attempt that is still under way is dropped by its token.

use thalweg_record::rows::Table;
use twox_hash::XxHash3_64;

use super::Server;
use crate::SinkError;
use crate::schema::Rollup;

/// The length of a rollup's window, us, as `schema/` has it.
const WINDOW_US: i64 = 300_000_000;
/// What is put aside is a single part in each partition, which a move takes whole: no block has more rows.
const ASIDE_ROWS_MAX: u64 = 100_000_000;
/// Engines that note token and part in one step.
const WITHOUT_GAP: [&str; 2] = ["Replicated", "Shared"];

/// What tables aside have: the block, rows that the table lacks, what the rollup lacks.
const BLOCK: &str = "block";
const ROWS: &str = "rows";
const ROLLUP: &str = "rollup";

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
    /// It was all there.
    Whole,
    /// Something was not, and is now.
    Restored,
    /// The rollup is neither as with the block nor as without it: somebody else's block may be in the table and not in the rollup
    /// yet.
    Unclear,
    /// A table is of an engine that is not known here, as one that only leads to others: nothing was looked at.
    Foreign,
}

/// Looks for a block that was inserted, and brings what is not there.
///
/// # Errors
/// When the server refuses something or is not there. It may be asked again.
pub(super) fn verify(server: &Server, target: &Target, token: &str, rows: &[u8]) -> Result<Found, SinkError> {
    let rollup = target.records.and_then(Rollup::of);
    let names = [Some(target.table), rollup.as_ref().map(|rollup| rollup.name.as_str())];
    let names: Vec<_> = names.into_iter().flatten().map(|name| format!("'{name}'")).collect();
    let engines = server.text(&format!(
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
    let aside = format!("thalweg_verify_{}_{:016x}", target.table, XxHash3_64::oneshot(token.as_bytes()));
    let look = Look { server, target, rollup, token, block: format!("{aside}_{BLOCK}"), aside };
    let found = look.run(rows);
    // What cannot be dropped now is dropped by the next look.
    let dropped = [BLOCK, ROWS, ROLLUP].map(|what| look.drop_aside(&format!("{}_{what}", look.aside)));
    let found = found?;
    dropped.into_iter().collect::<Result<(), _>>().map(|()| found)
}

/// A look for one block.
struct Look<'a> {
    server: &'a Server,
    target: &'a Target,
    rollup: Option<Rollup>,
    token: &'a str,
    /// The table that has the block's rows.
    block: String,
    aside: String,
}

impl Look<'_> {
    fn run(&self, rows: &[u8]) -> Result<Found, SinkError> {
        let Target { table, columns, .. } = self.target;
        self.make_aside(&self.block, table)?;
        self.server.insert(&self.block, columns, self.token, rows.to_vec())?;
        let bounds = format!(
            "SELECT toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time)) FROM {}",
            self.block
        );
        let bounds = self.server.text(&bounds)?;
        let numbers: Vec<i64> = bounds.split('\t').filter_map(|number| number.parse().ok()).collect();
        let &[first_us, last_us] = numbers.as_slice() else {
            return Err(unreadable(format!("no times of a block: {bounds}")));
        };
        let is_restored = self.bring_rows(first_us, last_us)?;
        let Some(rollup) = &self.rollup else { return Ok(found(is_restored)) };
        let windows = self.windows(rollup, first_us, last_us);
        let counts = format!(
            "SELECT countIf(state = 'lacking'), countIf(state = 'unclear') FROM ({windows}) SETTINGS join_use_nulls = 0"
        );
        let counts = self.server.text(&counts)?;
        let Some((lacking, unclear)) = counts.split_once('\t') else {
            return Err(unreadable(format!("no counts of windows: {counts}")));
        };
        if lacking != "0" {
            self.bring_rollup(rollup, &windows)?;
        }
        Ok(if unclear == "0" { found(is_restored || lacking != "0") } else { Found::Unclear })
    }

    /// Brings the rows that the table lacks; whether there were some.
    fn bring_rows(&self, first_us: i64, last_us: i64) -> Result<bool, SinkError> {
        let Target { table, name, columns, .. } = self.target;
        let Self { block, .. } = self;
        let columns = columns.join(", ");
        let near = self.near(first_us, last_us);
        let missing = format!(
            "SELECT {columns} FROM {block} WHERE ({name}) NOT IN (SELECT {name} FROM {table} WHERE {near})"
        );
        self.bring(ROWS, table, &columns, &missing)
    }

    fn bring_rollup(&self, rollup: &Rollup, windows: &str) -> Result<bool, SinkError> {
        let columns = rollup.columns.join(", ");
        let query = rollup.query_over(&self.block);
        let lacking = format!("SELECT window FROM ({windows}) WHERE state = 'lacking'");
        let query = format!("SELECT {columns} FROM ({query}) WHERE window IN ({lacking})");
        self.bring(ROLLUP, &rollup.name, &columns, &query)
    }

    /// Moves the rows of a query into a table; whether there were some.
    fn bring(&self, what: &str, table: &str, columns: &str, query: &str) -> Result<bool, SinkError> {
        let aside = format!("{}_{what}", self.aside);
        self.make_aside(&aside, table)?;
        let token = self.token.replace('\\', "\\\\").replace('\'', "\\'");
        self.server.execute(&format!(
            "INSERT INTO {aside} ({columns}) SETTINGS insert_deduplication_token = '{token}', join_use_nulls = 0, \
             max_insert_threads = 1, min_insert_block_size_rows = {ASIDE_ROWS_MAX}, min_insert_block_size_bytes = 0 {query}"
        ))?;
        let partitions = self.server.text(&format!("SELECT DISTINCT _partition_id FROM {aside}"))?;
        for partition in partitions.lines() {
            let statement = format!("ALTER TABLE {aside} MOVE PARTITION ID '{partition}' TO TABLE {table}");
            self.server.execute(&statement)?;
        }
        Ok(!partitions.is_empty())
    }

    /// The windows of the block, each with its state.
    fn windows(&self, rollup: &Rollup, first_us: i64, last_us: i64) -> String {
        let Target { table, .. } = self.target;
        let (first_us, last_us) = (first_us - WINDOW_US, last_us + WINDOW_US);
        let near = self.near(first_us, last_us);
        let sums: Vec<_> = rollup.sums.iter().map(|sum| format!("sum({sum})")).collect();
        let sums = |from: &str| {
            let sums = sums.join(", ");
            format!("SELECT window, pop, prefix, [{sums}] AS sums FROM {from} GROUP BY window, pop, prefix")
        };
        let own = sums(&format!("({})", rollup.query_over(&self.block)));
        let whole =
            sums(&format!("({})", rollup.query_over(&format!("(SELECT * FROM {table} WHERE {near})"))));
        let kept = sums(&format!(
            "(SELECT * FROM {} WHERE window BETWEEN {} AND {} AND (pop, prefix) IN (SELECT pop, prefix FROM {}))",
            rollup.name,
            first_us.div_euclid(1_000_000),
            last_us.div_euclid(1_000_000),
            self.block
        ));
        let key = "window, pop, prefix";
        format!(
            "SELECT window, multiIf(min(is_there), 'there', min(is_lacking), 'lacking', 'unclear') AS state FROM (\
               SELECT window, arrayResize(kept.sums, length(own.sums)) AS has, \
                 arrayResize(whole.sums, length(own.sums)) AS wants, has = wants AS is_there, \
                 arrayMap((a, b) -> a + b, has, own.sums) = wants AS is_lacking \
               FROM ({own}) AS own LEFT JOIN ({whole}) AS whole USING ({key}) LEFT JOIN ({kept}) AS kept USING ({key})\
             ) GROUP BY window"
        )
    }

    /// What is true of the table's rows that may be of the block, in terms of its partitions and its sorting.
    fn near(&self, first_us: i64, last_us: i64) -> String {
        let Target { near, .. } = self.target;
        let [first, last] = [first_us, last_us].map(|us| format!("fromUnixTimestamp64Micro({us})"));
        format!("time BETWEEN {first} AND {last} AND ({near}) IN (SELECT {near} FROM {})", self.block)
    }

    fn make_aside(&self, name: &str, like: &str) -> Result<(), SinkError> {
        self.drop_aside(name)?;
        self.server.execute(&format!("CREATE TABLE {name} AS {like}"))
    }

    fn drop_aside(&self, name: &str) -> Result<(), SinkError> {
        self.server.execute(&format!("DROP TABLE IF EXISTS {name} SYNC"))
    }
}

fn found(is_restored: bool) -> Found {
    if is_restored { Found::Restored } else { Found::Whole }
}

fn unreadable(answer: String) -> SinkError {
    SinkError { what: "cannot read what ClickHouse answers".into(), is_passing: false, cause: answer.into() }
}
