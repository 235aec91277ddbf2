//! What the console asks of the embedded store: sockets as they are, how TTFB is distributed, and the single responses behind
//! it. The questions are SQL in `schema/queries/console/`, and each answer has its own with it.
//!
//! **Invariant:** an answer that takes too long, or that nobody waits for any more, is given up in the middle of its statement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rusqlite::types::Value as Bound;
use serde_json::{Map, Value, json};

use crate::Error;
use crate::query::{open, value};

/// Rows of one answer.
pub const ROWS_MAX: u32 = 1000;
/// Groups of responses in one answer.
const GROUPS_MAX: u32 = 50;
/// How long an answer may take.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Instructions of SQLite's machine between two looks at the clock: well below a millisecond.
const LOOK_EVERY: i32 = 10_000;

const SOCKETS: &str = include_str!("../../../schema/queries/console/sockets.sqlite.sql");
const TTFB: &str = include_str!("../../../schema/queries/console/ttfb.sqlite.sql");
const RESPONSES: &str = include_str!("../../../schema/queries/console/responses.sqlite.sql");

/// What responses are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Path and query.
    Path,
    /// The request's host.
    RequestHost,
    /// What the cache made of it.
    Cache,
    /// The congestion control at the end.
    CongestionControl,
    /// The client's network.
    Prefix,
}

impl Group {
    /// Every value.
    pub const ALL: [Self; 5] =
        [Self::Path, Self::RequestHost, Self::Cache, Self::CongestionControl, Self::Prefix];

    /// The column's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::RequestHost => "request_host",
            Self::Cache => "cache",
            Self::CongestionControl => "congestion_control",
            Self::Prefix => "prefix",
        }
    }

    /// The value of a column's name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == word)
    }
}

/// Which responses are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those of one group; its name is null where the record has none.
    pub group: Option<(Group, Option<String>)>,
    /// The least TTFB.
    pub ttfb_us_min: Option<i64>,
    /// What TTFB is below of.
    pub ttfb_us_max: Option<i64>,
}

/// A file that is asked, until [`ANSWER_MAX`] from its making, or until nobody waits for the answer.
#[derive(Debug, Clone)]
pub struct Asked {
    path: PathBuf,
    until: Instant,
    is_given_up: Arc<AtomicBool>,
}

impl Asked {
    /// Asks a file from now on.
    pub fn of(path: PathBuf) -> Self {
        Self { path, until: Instant::now() + ANSWER_MAX, is_given_up: Arc::default() }
    }

    /// Nobody waits for the answer any more.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Relaxed);
    }

    /// Whether an answer is still of use.
    pub fn is_over(&self) -> bool {
        self.is_given_up.load(Relaxed) || Instant::now() >= self.until
    }
}

/// The sockets that were seen since `since_us` (microseconds since the Unix epoch): `{sql, at_us, sockets}`.
///
/// # Errors
/// When the file cannot be read, or not in time.
pub fn sockets(asked: &Asked, since_us: i64, limit: u32) -> Result<Value, Error> {
    let bound = [(":since_us", since_us.into()), (":limit", limit.min(ROWS_MAX).into())];
    let rows = ask(asked, SOCKETS, &bound)?;
    Ok(json!({ "sql": SOCKETS, "at_us": crate::clock::unix_us(), "sockets": rows }))
}

/// How TTFB is distributed by group: `{sql, groups}`.
///
/// # Errors
/// When the file cannot be read, or not in time.
pub fn ttfb(asked: &Asked, since_us: i64, by: Group) -> Result<Value, Error> {
    let sql = TTFB.replace("$by", by.as_str());
    let rows = ask(asked, &sql, &[(":since_us", since_us.into()), (":limit", GROUPS_MAX.into())])?;
    Ok(json!({ "sql": sql, "groups": rows }))
}

/// Single responses: `{sql, responses}`.
///
/// # Errors
/// When the file cannot be read, or not in time.
pub fn responses(asked: &Asked, since_us: i64, limit: u32, wanted: &Wanted) -> Result<Value, Error> {
    let by = wanted.group.as_ref().map_or(Group::Path, |(group, _)| *group);
    let name = wanted.group.as_ref().and_then(|(_, name)| name.clone());
    let bound = [
        (":since_us", since_us.into()),
        (":limit", limit.min(ROWS_MAX).into()),
        (":is_any", i64::from(wanted.group.is_none()).into()),
        (":name", name.map_or(Bound::Null, Bound::Text)),
        (":ttfb_us_min", wanted.ttfb_us_min.map_or(Bound::Null, Bound::Integer)),
        (":ttfb_us_max", wanted.ttfb_us_max.map_or(Bound::Null, Bound::Integer)),
    ];
    let sql = RESPONSES.replace("$by", by.as_str());
    let rows = ask(asked, &sql, &bound)?;
    Ok(json!({ "sql": sql, "responses": rows }))
}

/// Columns whose text is JSON, and those that are 0 or 1 for no or yes.
const JSON: [&str; 2] = ["history", "buckets"];
const BOOL: [&str; 4] = ["is_ended", "delivery_rate_app_limited", "is_holdout", "cmcd_bs"];

/// The rows as objects.
fn ask(asked: &Asked, sql: &str, bound: &[(&str, Bound)]) -> Result<Vec<Value>, Error> {
    let failed = |cause: rusqlite::Error| failed(&asked.path, cause);
    let connection = open(&asked.path)?;
    let watch = asked.clone();
    connection.progress_handler(LOOK_EVERY, Some(move || watch.is_over()));
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let bound: Vec<(&str, &dyn rusqlite::ToSql)> =
        bound.iter().map(|(name, value)| (*name, value as _)).collect();
    let mut found = statement.query(&*bound).map_err(failed)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(failed)? {
        let mut object = Map::new();
        for (at, column) in columns.iter().enumerate() {
            let plain = value(row.get_ref(at).map_err(failed)?);
            object.insert(column.clone(), shaped(column, plain));
        }
        rows.push(Value::Object(object));
    }
    Ok(rows)
}

fn failed(path: &Path, cause: rusqlite::Error) -> Error {
    if cause.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        return Error::refused(format!(
            "no answer within {} s: look at a shorter time",
            ANSWER_MAX.as_secs()
        ));
    }
    Error::of(format!("cannot read {}", path.display()), cause)
}

fn shaped(column: &str, value: Value) -> Value {
    match &value {
        Value::String(text) if JSON.contains(&column) => serde_json::from_str(text).unwrap_or(value),
        Value::Number(number) if BOOL.contains(&column) => Value::Bool(number.as_i64() != Some(0)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::sqlite::{Retention, SqliteSink};
    use crate::testing::Dir;

    /// Has no end of its own.
    const ENDLESS: &str =
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) AS n FROM n";

    fn file(dir: &Dir) -> PathBuf {
        let path = dir.file("telemetry.sqlite");
        let retention =
            Retention { records: Duration::MAX, aggregates: Duration::MAX, total_bytes: u64::MAX };
        SqliteSink::open(&path, retention).unwrap();
        path
    }

    #[test]
    fn an_answer_that_takes_too_long_is_given_up() {
        let dir = Dir::new("look-late");
        let late = Asked { until: Instant::now() + Duration::from_millis(20), ..Asked::of(file(&dir)) };
        let error = ask(&late, ENDLESS, &[]).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 10 s: look at a shorter time");
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_given_up() {
        let dir = Dir::new("look-alone");
        let asked = Asked { until: Instant::now() + Duration::from_secs(3600), ..Asked::of(file(&dir)) };
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| ask(&asked, ENDLESS, &[]));
            asked.give_up();
            answer.join().unwrap().unwrap_err();
        });
    }
}
