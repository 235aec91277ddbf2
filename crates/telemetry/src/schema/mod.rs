//! The ClickHouse schema: `schema/clickhouse/*.sql` embedded, brought to a server, and compared with what a server has.
//!
//! **Invariant:** nothing is dropped or changed in a server: `apply` makes what is missing; what differs is told by `diff`, and is an
//! operator's to change.

mod declared;

use std::collections::BTreeMap;

use crate::SinkError;
use crate::clickhouse::Server;
use declared::Declared;

/// The files, in the order in which they are applied: a view comes after the tables that it reads and writes.
pub const FILES: [(&str, &str); 7] = [
    ("sockets.sql", include_str!("../../../../schema/clickhouse/sockets.sql")),
    ("responses.sql", include_str!("../../../../schema/clickhouse/responses.sql")),
    ("losses.sql", include_str!("../../../../schema/clickhouse/losses.sql")),
    ("refused.sql", include_str!("../../../../schema/clickhouse/refused.sql")),
    ("positions.sql", include_str!("../../../../schema/clickhouse/positions.sql")),
    ("sockets_5m.sql", include_str!("../../../../schema/clickhouse/sockets_5m.sql")),
    ("responses_5m.sql", include_str!("../../../../schema/clickhouse/responses_5m.sql")),
];

/// The tables and views of a server with their columns: name and type, in order.
type Found = BTreeMap<String, Vec<(String, String)>>;

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
    for Declared { name, statement, columns } in declared() {
        let Some(has) = found.get(&name) else {
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
    for Declared { name, columns, .. } in declared() {
        let Some(has) = found.get(&name) else {
            lines.push(format!("{name}: is missing"));
            continue;
        };
        // A view's columns are those of its query, which says itself what it gives.
        if columns.is_empty() {
            continue;
        }
        for column in &columns {
            match has.iter().find(|(known, _)| *known == column.name) {
                None => lines.push(format!("{name}.{}: is missing", column.name)),
                Some((_, kind)) if *kind != column.kind => {
                    lines.push(format!("{name}.{}: is {kind}, to be {}", column.name, column.kind));
                }
                Some(_) => {}
            }
        }
        for (more, _) in has.iter().filter(|(known, _)| !columns.iter().any(|column| column.name == *known)) {
            lines.push(format!("{name}.{more}: is not in the schema"));
        }
    }
    Ok(lines)
}

fn found(server: &Server) -> Result<Found, SinkError> {
    let answer = server.query(
        "SELECT table, name, type FROM system.columns WHERE database = currentDatabase() ORDER BY table, position",
        "JSONCompactEachRow",
    )?;
    let mut found = Found::new();
    for row in serde_json::Deserializer::from_slice(&answer).into_iter::<(String, String, String)>() {
        let (table, name, kind) = row.map_err(|cause| SinkError {
            what: "cannot read the answer of system.columns".into(),
            is_passing: false,
            cause: Box::new(cause),
        })?;
        found.entry(table).or_default().push((name, kind));
    }
    Ok(found)
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
