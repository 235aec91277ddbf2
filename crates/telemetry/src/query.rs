//! Ready queries: what an operator asks most, over the aggregates. `schema/queries` has their text for each database, with the
//! same meaning and the same columns.

use std::path::Path;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::Error;
use crate::clickhouse::Server;

/// Rows of an answer, at most; further ones are left out.
pub const ROWS_MAX: usize = 100_000;

/// A query by name.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Its name.
    pub name: &'static str,
    /// What it answers, in a line.
    pub about: &'static str,
    sqlite: &'static str,
    clickhouse: &'static str,
}

/// What a query groups by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The client's network.
    Prefix,
    /// The client's autonomous system.
    Asn,
    /// The client's region.
    Region,
    /// The congestion control.
    CongestionControl,
}

/// What a query is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// The first second: windows that begin then or later.
    pub since: u64,
    /// The second after the last.
    pub until: u64,
    /// What it groups by, where it [does](Query::has_by).
    pub by: By,
}

/// What came of a query.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows, a value for each column: null, number or string.
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
pub const QUERIES: [Query; 5] = [
    query!("delivery_rate", "percentiles of sockets' delivery rate, in bytes/s"),
    query!("goodput", "percentiles of responses' goodput, in bytes/s"),
    query!("ttfb", "percentiles of TTFB for each five minutes"),
    query!("slowest_prefixes", "the client networks with the lowest delivery rate"),
    query!("losses", "records that were lost, and where"),
];

impl By {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Prefix, Self::Asn, Self::Region, Self::CongestionControl];

    /// The column's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Asn => "asn",
            Self::Region => "region",
            Self::CongestionControl => "congestion_control",
        }
    }

    /// The value of a column's name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }
}

impl Query {
    /// The query of a name.
    pub fn named(name: &str) -> Option<Self> {
        QUERIES.into_iter().find(|query| query.name == name)
    }

    /// Whether it groups by what is asked for.
    pub fn has_by(&self) -> bool {
        self.sqlite.contains("$by")
    }

    /// Asks a SQLite file, beside whoever writes it.
    ///
    /// # Errors
    /// When the file is not there, is no file of telemetry, or cannot be read.
    pub fn ask_sqlite(&self, path: &Path, parameters: &Parameters) -> Result<Answer, Error> {
        let failed = |cause: rusqlite::Error| {
            Error::of(format!("cannot answer {} from {}", self.name, path.display()), cause)
        };
        let connection = open(path)?;
        answer(&connection, &filled(self.sqlite, parameters)).map_err(failed)
    }

    /// Asks a ClickHouse server.
    ///
    /// # Errors
    /// When the server refuses or is not there, or answers what is no row.
    pub fn ask_clickhouse(&self, server: &Server, parameters: &Parameters) -> Result<Answer, Error> {
        let text = filled(self.clickhouse, parameters);
        let answer = server
            .query(&text, "JSONCompactEachRowWithNames")
            .map_err(|error| Error::of(error.what, error.cause))?;
        let rows: Result<Vec<Vec<Value>>, _> =
            serde_json::Deserializer::from_slice(&answer).into_iter().take(ROWS_MAX + 1).collect();
        let mut rows =
            rows.map_err(|cause| Error::of(format!("cannot read the answer to {}", self.name), cause))?;
        if rows.is_empty() {
            return Err(Error::refused(format!("the answer to {} has no columns", self.name)));
        }
        let columns =
            rows.remove(0).iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
        Ok(Answer { columns, rows })
    }
}

/// Opens a file of telemetry to read, beside whoever writes it.
///
/// # Errors
/// When it is not there, or is no database.
pub(crate) fn open(path: &Path) -> Result<Connection, Error> {
    let failed = |cause: rusqlite::Error| Error::of(format!("cannot open {}", path.display()), cause);
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    // The bundled SQLite is built without functions of mathematics.
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

/// A query's text with its parameters put in: each is a number or one of [`By`]'s words.
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
