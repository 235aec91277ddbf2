//! The ClickHouse schema: `schema/clickhouse/*.sql` embedded, brought to a server, and compared with what a server has.
//!
//! **Invariant:** nothing is dropped or changed in a server: `apply` makes what is missing; what differs is told by `diff`, and is an
//! operator's to change.
//! **Invariant:** a view is made after every table.

mod declared;
mod rollup;
mod shape;

use std::collections::BTreeMap;

use crate::SinkError;
use crate::clickhouse::Server;
use declared::Declared;
use shape::Shape;

pub(crate) use rollup::Rollup;

/// The files, in the order in which they are told.
pub const FILES: [(&str, &str); 7] = [
    ("sockets.sql", include_str!("../../../../schema/clickhouse/sockets.sql")),
    ("responses.sql", include_str!("../../../../schema/clickhouse/responses.sql")),
    ("losses.sql", include_str!("../../../../schema/clickhouse/losses.sql")),
    ("refused.sql", include_str!("../../../../schema/clickhouse/refused.sql")),
    ("positions.sql", include_str!("../../../../schema/clickhouse/positions.sql")),
    ("sockets_5m.sql", include_str!("../../../../schema/clickhouse/sockets_5m.sql")),
    ("responses_5m.sql", include_str!("../../../../schema/clickhouse/responses_5m.sql")),
];

/// The tables and views of a server, by name.
type Found = BTreeMap<String, Existing>;

/// A table or view of a server.
struct Existing {
    /// Name and type, in order.
    columns: Vec<(String, String)>,
    shape: Shape,
}

fn declared() -> impl Iterator<Item = Declared> {
    FILES.iter().flat_map(|(_, text)| declared::statements(text))
}

/// Brings a server to the schema: makes the tables and views that it lacks, and adds the columns that its tables lack. Gives a
/// line for each thing done; none if nothing was missing.
///
/// # Errors
/// When the server refuses a statement or is not there; what was done before stays.
pub fn apply(server: &Server) -> Result<Vec<String>, SinkError> {
    let found = found(server)?;
    let mut done = Vec::new();
    let (views, tables): (Vec<_>, Vec<_>) = declared().partition(Declared::is_view);
    for Declared { name, statement, columns } in tables.into_iter().chain(views) {
        let Some(Existing { columns: has, .. }) = found.get(&name) else {
            server.execute(&statement)?;
            done.push(format!("made {name}"));
            continue;
        };
        let mut place = "FIRST".to_owned();
        for column in columns {
            if !has.iter().any(|(known, _)| *known == column.name) {
                server.execute(&format!("ALTER TABLE {name} ADD COLUMN {} {place}", column.definition))?;
                done.push(format!("added column {} to {name}", column.name));
            }
            place = format!("AFTER {}", column.name);
        }
    }
    Ok(done)
}

/// What a server has otherwise than the schema, a line each: what lacks, what differs, and what is more in the schema's tables.
/// Other tables are not looked at.
///
/// # Errors
/// When the server cannot be asked.
pub fn diff(server: &Server) -> Result<Vec<String>, SinkError> {
    let found = found(server)?;
    let mut lines = Vec::new();
    for one in declared() {
        let Some(Existing { columns: has, shape }) = found.get(&one.name) else {
            lines.push(format!("{}: is missing", one.name));
            continue;
        };
        let to_be = Shape::of(&formatted(server, &one.statement)?, "");
        // A view's columns are those of its query.
        let is_view = one.is_view();
        let Declared { name, columns, .. } = one;
        for column in &columns {
            match has.iter().find(|(known, _)| *known == column.name) {
                None => lines.push(format!("{name}.{}: is missing", column.name)),
                Some((_, kind)) if *kind != column.kind => {
                    lines.push(format!("{name}.{}: is {kind}, to be {}", column.name, column.kind));
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

/// A statement as the server writes it, which says the same alike.
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

/// The rows that a query of texts answers.
fn answer(server: &Server, query: &str) -> Result<Vec<Vec<String>>, SinkError> {
    let answer = server.query(query, "JSONCompactEachRow")?;
    let rows = serde_json::Deserializer::from_slice(&answer).into_iter();
    rows.collect::<Result<_, _>>().map_err(|cause| SinkError {
        what: "cannot read what the server says of its tables".into(),
        is_passing: false,
        cause: Box::new(cause),
    })
}

#[cfg(test)]
mod tests {
    use thalweg_record::rows::Table;

    use super::*;
    use crate::clickhouse::rowbinary;

    #[test]
    fn tables_of_records_have_the_columns_of_rows() {
        for table in Table::ALL {
            let declared = declared().find(|one| one.name == table.name()).expect("each table is declared");
            let columns: Vec<_> =
                declared.columns.into_iter().map(|column| (column.name, column.kind)).collect();
            let expected: Vec<_> = table
                .columns()
                .iter()
                .map(|column| (column.name.to_owned(), rowbinary::type_of(column)))
                .collect();
            assert_eq!(columns, expected, "{}", table.name());
        }
    }

    #[test]
    fn every_statement_of_the_files_is_known() {
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
