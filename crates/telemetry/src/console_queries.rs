//! The console's queries on the embedded SQLite store: live sockets, TTFB distribution, and
//! individual responses. The SQL is in `schema/queries/console/`, and each result includes the SQL
//! statement that produced it.
//!
//! **Invariant:** a query is interrupted if it takes too long or its client has disconnected.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rusqlite::types::Value as Bound;
use serde_json::{Map, Value, json};
use thalweg_record::rows::{Kind, Table};

use crate::error::Error;
use crate::query::{open, value};

/// Maximum number of rows per result.
pub const ROWS_MAX: u32 = 1000;
/// Maximum number of response groups per result.
const GROUPS_MAX: u32 = 50;
/// Maximum duration of a query.
pub const QUERY_TIME_MAX: Duration = Duration::from_secs(10);
/// Number of SQLite VM instructions between two deadline checks. Running these instructions takes
/// well under a millisecond.
const CHECK_INTERVAL_OPS: i32 = 10_000;

const SOCKETS: &str = include_str!("../../../schema/queries/console/sockets.sqlite.sql");
const TTFB: &str = include_str!("../../../schema/queries/console/ttfb.sqlite.sql");
const RESPONSES: &str = include_str!("../../../schema/queries/console/responses.sqlite.sql");

/// Column by which responses are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Path and query.
    Path,
    /// Request host.
    RequestHost,
    /// Cache result.
    Cache,
    /// Congestion control at the end of the response.
    CongestionControl,
    /// Client network.
    Prefix,
}

impl Group {
    /// All groupings.
    pub const ALL: [Self; 5] =
        [Self::Path, Self::RequestHost, Self::Cache, Self::CongestionControl, Self::Prefix];

    /// Returns the column's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::RequestHost => "request_host",
            Self::Cache => "cache",
            Self::CongestionControl => "congestion_control",
            Self::Prefix => "prefix",
        }
    }

    /// Returns the grouping by the column named `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == word)
    }
}

/// A filter on responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseFilter {
    /// Column and value to match. The value `None` matches records without a value in the column.
    pub group: Option<(Group, Option<String>)>,
    /// Minimum TTFB in microseconds, inclusive.
    pub ttfb_us_min: Option<i64>,
    /// Maximum TTFB in microseconds, exclusive.
    pub ttfb_us_max: Option<i64>,
}

/// A query on a file. It is interrupted when it is abandoned, or [`QUERY_TIME_MAX`] after its
/// creation.
#[derive(Debug, Clone)]
pub struct QueryHandle {
    path: PathBuf,
    until: Instant,
    is_abandoned: Arc<AtomicBool>,
}

impl QueryHandle {
    /// Creates a query on a file. Its time limit starts now.
    pub fn new(path: PathBuf) -> Self {
        Self { path, until: Instant::now() + QUERY_TIME_MAX, is_abandoned: Arc::default() }
    }

    /// Abandons the query, because its client has disconnected.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// Returns whether the query has been abandoned or has timed out.
    pub fn is_over(&self) -> bool {
        self.is_abandoned.load(Relaxed) || Instant::now() >= self.until
    }
}

/// Queries the sockets seen since `since_us`, in microseconds since the Unix epoch. Returns `{sql,
/// at_us, sockets}`.
///
/// # Errors
///
/// Returns an error if the file cannot be read or the query times out.
pub fn sockets(asked: &QueryHandle, since_us: i64, limit: u32) -> Result<Value, Error> {
    let bound = [(":since_us", since_us.into()), (":limit", limit.min(ROWS_MAX).into())];
    let rows = query_rows(asked, SOCKETS, &bound)?;
    Ok(json!({ "sql": SOCKETS, "at_us": crate::clock::unix_us(), "sockets": rows }))
}

/// Queries the TTFB distribution of each group of responses. Returns `{sql, groups}`.
///
/// # Errors
///
/// Returns an error if the file cannot be read or the query times out.
pub fn ttfb(asked: &QueryHandle, since_us: i64, by: Group) -> Result<Value, Error> {
    let sql = TTFB.replace("$by", by.as_str());
    let rows = query_rows(asked, &sql, &[(":since_us", since_us.into()), (":limit", GROUPS_MAX.into())])?;
    Ok(json!({ "sql": sql, "groups": rows }))
}

/// Queries individual responses. Returns `{sql, responses}`.
///
/// # Errors
///
/// Returns an error if the file cannot be read or the query times out.
pub fn responses(
    asked: &QueryHandle,
    since_us: i64,
    limit: u32,
    wanted: &ResponseFilter,
) -> Result<Value, Error> {
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
    let rows = query_rows(asked, &sql, &bound)?;
    Ok(json!({ "sql": sql, "responses": rows }))
}

/// Columns that contain JSON.
const JSON: [&str; 2] = ["history", "buckets"];

/// Returns whether a column contains booleans, which are stored as 0 or 1.
fn is_bool(name: &str) -> bool {
    let columns = || Table::ALL.iter().flat_map(|table| table.columns());
    name == "is_ended" || columns().any(|column| column.name == name && column.kind == Kind::Bool)
}

/// Runs a query and returns its rows as objects.
fn query_rows(asked: &QueryHandle, sql: &str, bound: &[(&str, Bound)]) -> Result<Vec<Value>, Error> {
    let failed = |cause: rusqlite::Error| failed(&asked.path, cause);
    let connection = open(&asked.path)?;
    let watch = asked.clone();
    connection.progress_handler(CHECK_INTERVAL_OPS, Some(move || watch.is_over()));
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let columns: Vec<(String, bool)> =
        statement.column_names().into_iter().map(|name| (name.to_owned(), is_bool(name))).collect();
    let bound: Vec<(&str, &dyn rusqlite::ToSql)> =
        bound.iter().map(|(name, value)| (*name, value as _)).collect();
    let mut found = statement.query(&*bound).map_err(failed)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(failed)? {
        let mut object = Map::new();
        for (at, (column, is_bool)) in columns.iter().enumerate() {
            let plain = value(row.get_ref(at).map_err(failed)?);
            object.insert(column.clone(), shaped(column, *is_bool, plain));
        }
        rows.push(Value::Object(object));
    }
    Ok(rows)
}

fn failed(path: &Path, cause: rusqlite::Error) -> Error {
    if cause.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        return Error::refused(format!(
            "no result within {} s: choose a shorter time range",
            QUERY_TIME_MAX.as_secs()
        ));
    }
    Error::of(format!("cannot read {}", path.display()), cause)
}

fn shaped(column: &str, is_bool: bool, value: Value) -> Value {
    match &value {
        Value::String(text) if JSON.contains(&column) => serde_json::from_str(text).unwrap_or(value),
        Value::Number(number) if is_bool => Value::Bool(number.as_i64() != Some(0)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::sqlite::{Retention, SqliteSink};
    use crate::testing::Dir;

    /// SQL of a query that never finishes.
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
    fn slow_query_is_interrupted() {
        let dir = Dir::new("look-late");
        let late =
            QueryHandle { until: Instant::now() + Duration::from_millis(20), ..QueryHandle::new(file(&dir)) };
        let error = query_rows(&late, ENDLESS, &[]).unwrap_err();
        assert_eq!(error.to_string(), "no result within 10 s: choose a shorter time range");
    }

    #[test]
    fn abandoned_query_is_interrupted() {
        let dir = Dir::new("look-alone");
        let asked =
            QueryHandle { until: Instant::now() + Duration::from_secs(3600), ..QueryHandle::new(file(&dir)) };
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| query_rows(&asked, ENDLESS, &[]));
            asked.abandon();
            answer.join().unwrap().unwrap_err();
        });
    }
}
