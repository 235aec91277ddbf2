//! What the console asks of the embedded store: sockets as they are, how TTFB is distributed, and the single responses behind
//! it. The questions are SQL in `schema/queries/console/`, and each answer has its own with it.

use std::path::Path;

use rusqlite::types::Value as Bound;
use serde_json::{Map, Value, json};

use crate::Error;
use crate::query::{open, value};

/// Rows of one answer.
pub const ROWS_MAX: u32 = 1000;
/// Groups of responses in one answer.
const GROUPS_MAX: u32 = 50;

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

/// The sockets that were seen since `since_us` (microseconds since the Unix epoch): `{sql, at_us, sockets}`.
///
/// # Errors
/// When the file cannot be read.
pub fn sockets(path: &Path, since_us: i64, limit: u32) -> Result<Value, Error> {
    let bound = [(":since_us", since_us.into()), (":limit", limit.min(ROWS_MAX).into())];
    let rows = ask(path, SOCKETS, &bound)?;
    Ok(json!({ "sql": SOCKETS, "at_us": crate::clock::unix_us(), "sockets": rows }))
}

/// How TTFB is distributed by group: `{sql, groups}`.
///
/// # Errors
/// When the file cannot be read.
pub fn ttfb(path: &Path, since_us: i64, by: Group) -> Result<Value, Error> {
    let sql = TTFB.replace("$by", by.as_str());
    let rows = ask(path, &sql, &[(":since_us", since_us.into()), (":limit", GROUPS_MAX.into())])?;
    Ok(json!({ "sql": sql, "groups": rows }))
}

/// Single responses: `{sql, responses}`.
///
/// # Errors
/// When the file cannot be read.
pub fn responses(path: &Path, since_us: i64, limit: u32, wanted: &Wanted) -> Result<Value, Error> {
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
    let rows = ask(path, &sql, &bound)?;
    Ok(json!({ "sql": sql, "responses": rows }))
}

/// Columns whose text is JSON, and those that are 0 or 1 for no or yes.
const JSON: [&str; 2] = ["history", "buckets"];
const BOOL: [&str; 4] = ["is_ended", "delivery_rate_app_limited", "is_holdout", "cmcd_bs"];

/// The rows as objects.
fn ask(path: &Path, sql: &str, bound: &[(&str, Bound)]) -> Result<Vec<Value>, Error> {
    let failed = |cause: rusqlite::Error| Error::of(format!("cannot read {}", path.display()), cause);
    let connection = open(path)?;
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

fn shaped(column: &str, value: Value) -> Value {
    match &value {
        Value::String(text) if JSON.contains(&column) => serde_json::from_str(text).unwrap_or(value),
        Value::Number(number) if BOOL.contains(&column) => Value::Bool(number.as_i64() != Some(0)),
        _ => value,
    }
}
