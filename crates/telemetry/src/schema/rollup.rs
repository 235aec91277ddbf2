//! Rollup declaration: a rollup table's columns, and the query of the materialized view that fills
//! the table. Does no I/O.

use thalweg_record::rows::Table;

use super::declared;

/// A rollup table, filled from a record table by a materialized view.
#[derive(Debug)]
pub(crate) struct Rollup {
    /// Name of the rollup table.
    pub(crate) name: String,
    /// Columns, in order.
    pub(crate) columns: Vec<String>,
    /// Columns aggregated as plain sums.
    pub(crate) sums: Vec<String>,
    from: String,
    query: String,
}

impl Rollup {
    /// Returns the rollup of a record table, or `None` if the table has no rollup.
    pub(crate) fn of(table: Table) -> Option<Self> {
        let from = format!("FROM {} AS ", table.name());
        let (target, query) = declared().filter(declared::Declared::is_view).find_map(|view| {
            let (head, query) = view.statement.split_once(" AS\n")?;
            let (_, target) = head.split_once(" TO ")?;
            query.contains(&from).then(|| (target.to_owned(), query.to_owned()))
        })?;
        let declared = declared().find(|one| one.name == target)?;
        let is_sum = |kind: &str| kind.starts_with("SimpleAggregateFunction(sum,");
        let sums = declared.columns.iter().filter(|column| is_sum(&column.kind));
        Some(Self {
            sums: sums.map(|column| column.name.clone()).collect(),
            columns: declared.columns.into_iter().map(|column| column.name).collect(),
            name: target,
            from,
            query,
        })
    }

    /// Returns the view's query over `rows` instead of the record table. `rows` is another table's
    /// name, or a subquery in parentheses.
    pub(crate) fn query_over(&self, rows: &str) -> String {
        self.query.replace(&self.from, &format!("FROM {rows} AS "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollups_are_parsed_from_the_schema_files() {
        assert!(Rollup::of(Table::Losses).is_none());
        for (table, name, sums) in [
            (
                Table::Sockets,
                "sockets_5m",
                "samples bytes_acked bytes_retrans segs_out retransmits busy_us rwnd_limited_us sndbuf_limited_us",
            ),
            (Table::Responses, "responses_5m", "responses errors cut bytes"),
        ] {
            let rollup = Rollup::of(table).unwrap();
            assert_eq!((rollup.name.as_str(), rollup.sums.join(" ").as_str()), (name, sums));
            assert_eq!(&rollup.columns[..3], ["window", "pop", "prefix"]);
            let query = rollup.query_over("(SELECT 1)");
            assert_eq!(query.matches("FROM (SELECT 1) AS ").count(), 1, "{query}");
            assert!(!query.contains(&rollup.from), "{query}");
        }
    }
}
