//! Predefined queries over the aggregates, and of `hd_ratio` over the responses themselves.
//! `schema/queries` contains one version of each query per database. Both versions return the same
//! columns with the same meaning.

use std::path::Path;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::clickhouse::Server;
use crate::error::Error;

/// Maximum number of rows per result. Further rows are dropped.
pub const ROWS_MAX: usize = 100_000;

/// A named query.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Name of the query.
    pub name: &'static str,
    /// One-line description of the query's result.
    pub about: &'static str,
    sqlite: &'static str,
    clickhouse: &'static str,
}

/// Column by which a query groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Client network.
    Prefix,
    /// Client autonomous system.
    Asn,
    /// Client region.
    Region,
    /// Congestion control.
    CongestionControl,
}

/// Parameters of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Start of the time range, inclusive, in seconds since the Unix epoch. The start of each
    /// window is compared with it.
    pub since: u64,
    /// End of the time range, exclusive, in seconds since the Unix epoch.
    pub until: u64,
    /// Column to group by, for queries whose [grouping can be selected](Query::has_by).
    pub by: By,
}

/// Result of a query.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// Column names.
    pub columns: Vec<String>,
    /// Rows, with one value per column: null, number or string.
    pub rows: Vec<Vec<Value>>,
}

macro_rules! query {
    ($name:literal, $about:literal) => {
        Query {
            name: $name,
            about: $about,
            sqlite: include_str!(concat!("../../../schema/queries/", $name, ".sqlite.sql")),
            clickhouse: include_str!(concat!("../../../schema/queries/", $name, ".clickhouse.sql")),
        }
    };
}

/// All queries.
pub const QUERIES: [Query; 6] = [
    query!("delivery_rate", "percentiles of sockets' delivery rate, in bytes/s"),
    query!("goodput", "percentiles of responses' goodput, in bytes/s"),
    query!("hd_ratio", "share of responses that reached 2.5 Mbit/s, and round-trip times"),
    query!("ttfb", "percentiles of TTFB for each five-minute window, in µs"),
    query!("slowest_prefixes", "the client networks with the lowest delivery rate"),
    query!("losses", "number of lost records, by host and stage"),
];

impl By {
    /// All groupings.
    pub const ALL: [Self; 4] = [Self::Prefix, Self::Asn, Self::Region, Self::CongestionControl];

    /// Returns the column's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Asn => "asn",
            Self::Region => "region",
            Self::CongestionControl => "congestion_control",
        }
    }

    /// Returns the grouping by the column named `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }
}

impl Query {
    /// Returns the query named `name`.
    pub fn named(name: &str) -> Option<Self> {
        QUERIES.into_iter().find(|query| query.name == name)
    }

    /// Returns whether the query's grouping can be selected.
    pub fn has_by(&self) -> bool {
        self.sqlite.contains("$by")
    }

    /// Runs the query on a SQLite file, which may be written to concurrently.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing, is not a telemetry file, or cannot be read.
    pub fn ask_sqlite(&self, path: &Path, parameters: &Parameters) -> Result<Answer, Error> {
        let failed = |cause: rusqlite::Error| {
            Error::of(format!("cannot run query {} on {}", self.name, path.display()), cause)
        };
        let connection = open(path)?;
        answer(&connection, &filled(self.sqlite, parameters)).map_err(failed)
    }

    /// Runs the query on a ClickHouse server.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the query or cannot be reached, or if the result is
    /// malformed.
    pub fn ask_clickhouse(&self, server: &Server, parameters: &Parameters) -> Result<Answer, Error> {
        let text = filled(self.clickhouse, parameters);
        let answer = server
            .query(&text, "JSONCompactEachRowWithNames")
            .map_err(|error| Error::of(error.what, error.cause))?;
        let rows: Result<Vec<Vec<Value>>, _> =
            serde_json::Deserializer::from_slice(&answer).into_iter().take(ROWS_MAX + 1).collect();
        let mut rows =
            rows.map_err(|cause| Error::of(format!("cannot read the result of query {}", self.name), cause))?;
        if rows.is_empty() {
            return Err(Error::refused(format!("result of query {} has no columns", self.name)));
        }
        let columns =
            rows.remove(0).iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
        Ok(Answer { columns, rows })
    }
}

/// Opens a telemetry file for reading. It may be written to concurrently.
///
/// # Errors
///
/// Returns an error if the file is missing or not a database.
pub(crate) fn open(path: &Path) -> Result<Connection, Error> {
    let failed = |cause: rusqlite::Error| Error::of(format!("cannot open {}", path.display()), cause);
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    // The bundled SQLite lacks mathematical functions.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection
        .create_scalar_function("pow", 2, flags, |context| {
            let (base, exponent) = (context.get::<Option<f64>>(0)?, context.get::<Option<f64>>(1)?);
            Ok(base.zip(exponent).map(|(base, exponent)| base.powf(exponent)))
        })
        .and_then(|()| {
            connection.create_scalar_function("log2", 1, flags, |context| {
                Ok(context.get::<Option<f64>>(0)?.map(f64::log2))
            })
        })
        .map_err(failed)?;
    Ok(connection)
}

/// Replaces a query's parameters by numbers and by the column name of a [`By`].
pub fn filled(text: &str, parameters: &Parameters) -> String {
    text.replace("$since", &parameters.since.to_string())
        .replace("$until", &parameters.until.to_string())
        .replace("$by", parameters.by.as_str())
}

fn answer(connection: &Connection, text: &str) -> rusqlite::Result<Answer> {
    let mut statement = connection.prepare(text)?;
    let columns: Vec<_> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut found = statement.query([])?;
    let mut rows = Vec::new();
    while rows.len() < ROWS_MAX
        && let Some(row) = found.next()?
    {
        rows.push((0..columns.len()).map(|at| row.get_ref(at).map(value)).collect::<Result<_, _>>()?);
    }
    Ok(Answer { columns, rows })
}

pub(crate) fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
    }
}
