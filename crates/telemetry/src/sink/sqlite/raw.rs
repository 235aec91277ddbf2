//! Storage of records as SQLite rows, with the columns of `record::rows`.

use std::net::IpAddr;

use rusqlite::types::{ToSqlOutput, Value as Stored, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql};
use thalweg_record::rows::{self, Kind, Table, Value};
use thalweg_record::{Entry, Source};

/// Inserts a row for each entry.
pub(super) fn insert(connection: &Connection, source: &Source, entries: &[Entry]) -> rusqlite::Result<()> {
    let mut statements = [const { None }; Table::ALL.len()];
    for entry in entries {
        let table = Table::of(&entry.record);
        let statement = match &mut statements[table as usize] {
            Some(statement) => statement,
            none => none.insert(prepare(connection, table)?),
        };
        insert_row(statement, source, entry)?;
    }
    Ok(())
}

/// Converts the responses of a file of version 1, which measured goodput until the kernel took the
/// last byte: renames that time, and drops the rates.
pub(super) fn upgrade(connection: &mut Connection) -> rusqlite::Result<()> {
    if !connection.column_exists(None, "responses", "duration_us")? {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "ALTER TABLE responses RENAME COLUMN duration_us TO written_us;
         ALTER TABLE responses DROP COLUMN goodput_bytes_per_s;
         UPDATE responses_5m SET goodput = '{}';",
    )?;
    transaction.commit()
}

/// Adds columns missing from tables that were created by an earlier release. Existing rows get
/// NULL. All columns added after the first release are nullable, so that these rows remain
/// recognisable.
pub(super) fn complete(connection: &Connection) -> rusqlite::Result<()> {
    for table in Table::ALL {
        for column in table.columns().iter().filter(|column| column.is_nullable) {
            if !connection.column_exists(None, table.name(), column.name)? {
                let kind = match column.kind {
                    Kind::Name | Kind::Text | Kind::Ip => "TEXT",
                    Kind::Bool | Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Time => "INTEGER",
                };
                let add = format!("ALTER TABLE {} ADD COLUMN {} {kind}", table.name(), column.name);
                connection.execute_batch(&add)?;
            }
        }
    }
    Ok(())
}

fn prepare(connection: &Connection, table: Table) -> rusqlite::Result<CachedStatement<'_>> {
    let names: Vec<_> = table.columns().iter().map(|column| column.name).collect();
    let places = vec!["?"; names.len()].join(", ");
    connection.prepare_cached(&format!(
        "INSERT INTO {} ({}) VALUES ({places})",
        table.name(),
        names.join(", ")
    ))
}

fn insert_row(statement: &mut CachedStatement<'_>, source: &Source, entry: &Entry) -> rusqlite::Result<()> {
    let (mut at, mut bound) = (0, Ok(()));
    rows::row(source, entry, &mut |value| {
        at += 1;
        if bound.is_ok() {
            bound = statement.raw_bind_parameter(at, Cell(value));
        }
    });
    bound?;
    statement.raw_execute().map(drop)
}

/// A value in its SQLite representation; see `schema/sqlite`.
struct Cell<'a>(Value<'a>);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let integer = |number| ToSqlOutput::Borrowed(ValueRef::Integer(number));
        Ok(match &self.0 {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Bool(value) => integer((*value).into()),
            Value::Number(number) | Value::Time(number) => integer(stored(*number)),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Ip(IpAddr::V4(ip)) => ToSqlOutput::Owned(Stored::Text(ip.to_string())),
            Value::Ip(IpAddr::V6(ip)) => ToSqlOutput::Owned(Stored::Text(ip.to_string())),
        })
    }
}

/// Converts a number to SQLite's signed range. Numbers above the maximum become the maximum.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
