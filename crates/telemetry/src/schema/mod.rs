//! ClickHouse schema: embeds `schema/clickhouse/*.sql`, applies it to a server, and compares a
//! server with it.
//!
//! **Invariant:** nothing that exists on a server is dropped or changed. `apply` creates missing
//! tables, views and columns; `diff` reports differences, and the operator decides.
//! **Invariant:** views are created after all tables.

mod declared;
mod options;
mod rollup;
mod shape;

use std::collections::BTreeMap;

use crate::clickhouse::server::Server;
use crate::error::SinkError;
use declared::Declared;
use shape::Shape;

pub use options::{Cluster, Options};
pub(crate) use rollup::Rollup;

/// Name and content of each schema file, in display order.
pub const FILES: [(&str, &str); 7] = [
    ("sockets.sql", include_str!("../../../../schema/clickhouse/sockets.sql")),
    ("responses.sql", include_str!("../../../../schema/clickhouse/responses.sql")),
    ("losses.sql", include_str!("../../../../schema/clickhouse/losses.sql")),
    ("refused.sql", include_str!("../../../../schema/clickhouse/refused.sql")),
    ("positions.sql", include_str!("../../../../schema/clickhouse/positions.sql")),
    ("sockets_5m.sql", include_str!("../../../../schema/clickhouse/sockets_5m.sql")),
    ("responses_5m.sql", include_str!("../../../../schema/clickhouse/responses_5m.sql")),
];

/// Tables and views on a server, by name.
type Found = BTreeMap<String, Existing>;

/// A table or view on a server.
struct Existing {
    /// Name and type of each column, in order.
    columns: Vec<(String, String)>,
    shape: Shape,
}

fn declared() -> impl Iterator<Item = Declared> {
    FILES.iter().flat_map(|(_, text)| declared::statements(text))
}

/// Applies the schema with default options to a server; see [`Options::apply`].
///
/// # Errors
///
/// Returns an error if the server rejects a statement or cannot be reached.
pub fn apply(server: &Server) -> Result<Vec<String>, SinkError> {
    Options::default().apply(server)
}

/// Compares a server with the schema with default options; see [`Options::diff`].
///
/// # Errors
///
/// Returns an error if a query fails.
pub fn diff(server: &Server) -> Result<Vec<String>, SinkError> {
    Options::default().diff(server)
}

impl Options {
    /// Applies the schema to a server: creates missing tables and views, and adds missing columns
    /// to existing tables. Returns one line per change.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects a statement or cannot be reached. Changes made before
    /// the error remain.
    pub fn apply(&self, server: &Server) -> Result<Vec<String>, SinkError> {
        let found = found(server)?;
        let mut done = Vec::new();
        let (views, tables): (Vec<_>, Vec<_>) = self.declared().into_iter().partition(Declared::is_view);
        let on_cluster = self.on_cluster();
        for Declared { name, statement, columns } in tables.into_iter().chain(views) {
            let Some(Existing { columns: has, .. }) = found.get(&name) else {
                server.execute(&statement)?;
                done.push(format!("created {name}"));
                continue;
            };
            let mut position = "FIRST".to_owned();
            for column in columns {
                if !has.iter().any(|(known, _)| *known == column.name) {
                    let definition = &column.definition;
                    server.execute(&format!(
                        "ALTER TABLE {name}{on_cluster} ADD COLUMN {definition} {position}"
                    ))?;
                    done.push(format!("added column {} to {name}", column.name));
                }
                position = format!("AFTER {}", column.name);
            }
        }
        Ok(done)
    }

    /// Compares a server with the schema and returns one line per difference: missing tables, views
    /// and columns, differing definitions, and additional columns. Tables outside the schema are
    /// ignored, and so is whether engines are replicated.
    ///
    /// # Errors
    ///
    /// Returns an error if a query fails.
    pub fn diff(&self, server: &Server) -> Result<Vec<String>, SinkError> {
        let found = found(server)?;
        let mut lines = Vec::new();
        // The cluster is not part of a table's definition.
        let options = Options { cluster: None, ..self.clone() };
        for one in options.declared() {
            let Some(Existing { columns: has, shape }) = found.get(&one.name) else {
                lines.push(format!("{}: is missing", one.name));
                continue;
            };
            let to_be = Shape::of(&formatted(server, &one.statement)?, "");
            // View columns are not compared: they follow from the view's query, which is compared
            // below.
            let is_view = one.is_view();
            let Declared { name, columns, .. } = one;
            for column in &columns {
                match has.iter().find(|(known, _)| *known == column.name) {
                    None => lines.push(format!("{name}.{}: is missing", column.name)),
                    Some((_, kind)) if *kind != column.kind => {
                        lines.push(format!("{name}.{}: is {kind}, expected {}", column.name, column.kind));
                    }
                    Some(_) => {}
                }
            }
            let is_declared = |name: &str| is_view || columns.iter().any(|column| column.name == name);
            for (more, _) in has.iter().filter(|(known, _)| !is_declared(known)) {
                lines.push(format!("{name}.{more}: is not in the schema"));
            }
            lines.extend(shape.differences(&to_be).iter().map(|difference| format!("{name}: {difference}")));
        }
        Ok(lines)
    }

    fn declared(&self) -> Vec<Declared> {
        FILES
            .iter()
            .flat_map(|(_, text)| declared::statements(&self.adapt(text)).collect::<Vec<_>>())
            .collect()
    }
}

/// Formats a statement on the server, so that statements differing only in layout compare equal.
fn formatted(server: &Server, statement: &str) -> Result<String, SinkError> {
    let quoted = statement.replace('\\', "\\\\").replace('\'', "\\'");
    let query = format!("SELECT formatQuerySingleLine('{quoted}')");
    Ok(answer(server, &query)?.concat().concat())
}

fn found(server: &Server) -> Result<Found, SinkError> {
    let names: Vec<_> = declared().map(|one| format!("'{}'", one.name)).collect();
    let tables = format!(
        "SELECT database, name, formatQuerySingleLine(create_table_query) FROM system.tables \
         WHERE database = currentDatabase() AND name IN ({})",
        names.join(", ")
    );
    let mut found = Found::new();
    for row in answer(server, &tables)? {
        if let [database, name, statement] = row.as_slice() {
            let shape = Shape::of(statement, database);
            found.insert(name.clone(), Existing { columns: Vec::new(), shape });
        }
    }
    let columns = "SELECT table, name, type FROM system.columns WHERE database = currentDatabase() ORDER BY table, position";
    for row in answer(server, columns)? {
        if let [table, name, kind] = row.as_slice()
            && let Some(existing) = found.get_mut(table)
        {
            existing.columns.push((name.clone(), kind.clone()));
        }
    }
    Ok(found)
}

/// Runs a query whose columns are all strings and returns its rows.
fn answer(server: &Server, query: &str) -> Result<Vec<Vec<String>>, SinkError> {
    let answer = server.query(query, "JSONCompactEachRow")?;
    let rows = serde_json::Deserializer::from_slice(&answer).into_iter();
    rows.collect::<Result<_, _>>().map_err(|cause| SinkError {
        what: "cannot read the server's table list".into(),
        is_passing: false,
        cause: Box::new(cause),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect_file;
    use thalweg_record::rows::{Column, Kind, Table};

    use super::*;
    use crate::clickhouse::rowbinary;

    const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema");

    /// Checks the columns in the schema files against the declared record tables. Run with
    /// `UPDATE_EXPECT=1` to update the files.
    #[test]
    fn schema_files_have_the_declared_columns() {
        let mut sqlite = fs::read_to_string(format!("{DIR}/sqlite/records.sql")).unwrap();
        for table in Table::ALL {
            let file = format!("{DIR}/clickhouse/{}.sql", table.name());
            let text = fs::read_to_string(&file).unwrap();
            expect_file![file].assert_eq(&with_columns(&text, "\n(\n", "\n)\n", table, clickhouse_column));
            let begin = format!("CREATE TABLE {} (\n", table.name());
            sqlite = with_columns(&sqlite, &begin, "\n) STRICT;", table, sqlite_column);
        }
        expect_file![format!("{DIR}/sqlite/records.sql")].assert_eq(&sqlite);
    }

    /// Replaces a table's column lines in `text`, between `begin` and `end`.
    fn with_columns(
        text: &str,
        begin: &str,
        end: &str,
        table: Table,
        line: fn(&Column, &str) -> String,
    ) -> String {
        let (before, rest) = text.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        let columns = table.columns();
        let lines = columns
            .iter()
            .enumerate()
            .map(|(at, column)| line(column, if at + 1 < columns.len() { "," } else { "" }));
        format!("{before}{begin}{}{end}{after}", lines.collect::<Vec<_>>().join("\n"))
    }

    fn clickhouse_column(column: &Column, comma: &str) -> String {
        let codec = match column.kind {
            Kind::Name => "",
            Kind::Time => " CODEC(Delta(8), ZSTD(1))",
            _ if ["epoch", "number"].contains(&column.name) => " CODEC(Delta(8), ZSTD(1))",
            Kind::U8 | Kind::U32 | Kind::U64 if !column.is_id => " CODEC(T64, ZSTD(1))",
            _ => " CODEC(ZSTD(1))",
        };
        let about = match about(column).replace('\'', "\\'") {
            none if none.is_empty() => none,
            about => format!(" COMMENT '{about}'"),
        };
        format!("    {} {}{codec}{about}{comma}", column.name, rowbinary::type_of(column))
    }

    fn sqlite_column(column: &Column, comma: &str) -> String {
        let kind = if matches!(column.kind, Kind::Name | Kind::Text | Kind::Ip) { "TEXT" } else { "INTEGER" };
        let null = if column.is_nullable { "" } else { " NOT NULL" };
        let line = format!("    {} {kind}{null}{comma}", column.name);
        format!("{line:<48} -- {}", about(column)).trim_end_matches(" -- ").trim_end().to_owned()
    }

    fn about(column: &Column) -> String {
        column.doc.concat().trim().trim_end_matches('.').to_owned()
    }

    #[test]
    fn files_declare_the_expected_tables_and_views() {
        let names: Vec<_> = declared().map(|one| one.name).collect();
        assert_eq!(
            names,
            [
                "sockets",
                "responses",
                "losses",
                "refused",
                "positions",
                "sockets_5m",
                "sockets_5m_view",
                "responses_5m",
                "responses_5m_view"
            ]
        );
    }
}
