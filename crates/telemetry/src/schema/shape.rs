//! Shape of a table or view: everything except its columns. For a table these are the engine, keys,
//! TTL and settings; for a view, the target and query. Shapes are parsed from CREATE statements
//! formatted by the server, so that layout does not affect comparisons. Does no I/O.

/// Clauses of a CREATE TABLE statement, in the order in which the server prints them.
const CLAUSES: [(&str, &str); 8] = [
    ("engine", " ENGINE = "),
    ("partition key", " PARTITION BY "),
    ("primary key", " PRIMARY KEY "),
    ("order", " ORDER BY "),
    ("sampling key", " SAMPLE BY "),
    ("TTL", " TTL "),
    (SETTINGS, " SETTINGS "),
    (COMMENT, " COMMENT "),
];
const SETTINGS: &str = "settings";
const COMMENT: &str = "comment";
/// Prefixes of engines that share a table between servers: `Replicated` in ClickHouse, `Shared` in
/// ClickHouse Cloud.
const REPLICATED: [&str; 2] = ["Replicated", "Shared"];
/// Prefix of the settings that apply to non-replicated tables. Each has a counterpart for
/// replicated tables, with the prefix `replicated_`.
const NOT_REPLICATED: &str = "non_replicated_";

/// Clauses and settings of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    clauses: Vec<(&'static str, String)>,
    settings: Vec<(String, String)>,
}

impl Shape {
    /// Parses the shape of a table or view from its CREATE statement. In a view's statement, table
    /// names may be qualified with `database`.
    pub(super) fn of(statement: &str, database: &str) -> Self {
        if statement.starts_with("CREATE MATERIALIZED VIEW ") {
            Self::of_view(statement, database)
        } else {
            Self::of_table(statement)
        }
    }

    fn of_view(statement: &str, database: &str) -> Self {
        let (head, query) = statement.split_once(" AS ").unwrap_or((statement, ""));
        let (_, target) = head.split_once(" TO ").unwrap_or((head, ""));
        // The server qualifies table names with the database name.
        let [plain, quoted] = [format!("{database}."), format!("`{database}`.")];
        let local = |text: &str, before: &str| {
            let text = text.replace(&format!("{before}{plain}"), before);
            text.replace(&format!("{before}{quoted}"), before)
        };
        let target = target.split([' ', '(']).next().unwrap_or_default();
        let clauses = vec![
            ("target", local(&format!(" {target}"), " ").trim().to_owned()),
            ("query", local(query, " FROM ")),
        ];
        Self { clauses, settings: Vec::new() }
    }

    fn of_table(statement: &str) -> Self {
        let mut found: Vec<(&'static str, &str)> = Vec::new();
        let mut rest = statement;
        for (name, word) in CLAUSES {
            let Some((before, after)) = rest.split_once(word) else { continue };
            if let Some((_, text)) = found.last_mut() {
                *text = before;
            }
            found.push((name, after));
            rest = after;
        }
        let mut shape = Self { clauses: Vec::new(), settings: Vec::new() };
        for (name, text) in found {
            match name {
                SETTINGS => shape.settings = text.split(", ").filter_map(setting).collect(),
                COMMENT => {}
                _ => shape.clauses.push((name, text.trim_end_matches("()").to_owned())),
            }
        }
        shape.forget_replication();
        shape
    }

    /// Converts a replicated table's shape to its non-replicated equivalent, so that operators can
    /// use replicated tables on clusters without being shown differences.
    fn forget_replication(&mut self) {
        let Some((_, engine)) = self.clauses.iter_mut().find(|(name, _)| *name == "engine") else { return };
        if let Some(kind) = REPLICATED.iter().find_map(|word| engine.strip_prefix(word)) {
            // The Keeper path and replica name come first and are quoted; a version column is
            // unquoted.
            let (name, arguments) = kind.trim_end_matches(')').split_once('(').unwrap_or((kind, ""));
            let own: Vec<_> =
                arguments.split(", ").filter(|one| !one.is_empty() && !one.starts_with('\'')).collect();
            *engine = if own.is_empty() { name.to_owned() } else { format!("{name}({})", own.join(", ")) };
        }
        for (name, _) in &mut self.settings {
            if let Some(shared) = name.strip_prefix(NOT_REPLICATED) {
                *name = format!("replicated_{shared}");
            }
        }
    }

    /// Returns one line per difference from the declared shape. Settings not declared in the schema
    /// are the operator's choice and are ignored.
    pub(super) fn differences(&self, to_be: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let names = CLAUSES.iter().map(|(name, _)| *name).chain(["target", "query"]);
        for name in names {
            let text = |shape: &Self| {
                let clause = shape.clauses.iter().find(|(known, _)| *known == name);
                clause.map_or("none".to_owned(), |(_, text)| text.clone())
            };
            let (is, to_be) = (text(self), text(to_be));
            if is != to_be {
                lines.push(format!("{name} is {is}, expected {to_be}"));
            }
        }
        for (name, to_be) in &to_be.settings {
            match self.settings.iter().find(|(known, _)| known == name) {
                Some((_, is)) if is == to_be => {}
                Some((_, is)) => lines.push(format!("setting {name} is {is}, expected {to_be}")),
                None => lines.push(format!("setting {name} is not set, expected {to_be}")),
            }
        }
        lines
    }
}

fn setting(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(" = ")?;
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const TABLE: &str = "CREATE TABLE losses (`time` DateTime64(6, 'UTC') COMMENT 'when') ENGINE = MergeTree \
        PARTITION BY toStartOfMonth(time) ORDER BY (host, time) TTL toDateTime(time) + toIntervalDay(35) \
        SETTINGS non_replicated_deduplication_window = 10000";
    const VIEW: &str = "CREATE MATERIALIZED VIEW v TO t AS SELECT s.a AS a FROM s AS s";

    fn differences(is: &str, to_be: &str) -> String {
        Shape::of(is, "s").differences(&Shape::of(to_be, "")).join("\n")
    }

    #[test]
    fn differences_in_every_clause_are_reported() {
        let other = TABLE.replace("MergeTree", "SummingMergeTree").replace("toStartOfMonth", "toDate");
        let other =
            other.replace("(host, time)", "time").replace(" TTL toDateTime(time) + toIntervalDay(35)", "");
        let other = other.replace("10000", "10, index_granularity = 8192");
        expect![[r#"
            engine is SummingMergeTree, expected MergeTree
            partition key is toDate(time), expected toStartOfMonth(time)
            order is time, expected (host, time)
            TTL is none, expected toDateTime(time) + toIntervalDay(35)
            setting replicated_deduplication_window is 10, expected 10000"#]]
        .assert_eq(&differences(&other, TABLE));
    }

    #[test]
    fn replicated_table_with_the_same_window_is_equal() {
        let engine = "ReplicatedMergeTree('/clickhouse/{shard}/losses', '{replica}')";
        let other = TABLE.replace("MergeTree", engine);
        let window =
            "SETTINGS replicated_deduplication_window = 10000, storage_policy = 'cold' COMMENT 'mine'";
        let (table, _) = other.split_once("SETTINGS").unwrap();
        assert_eq!(differences(&format!("{table}{window}"), TABLE), "");
        expect!["setting replicated_deduplication_window is not set, expected 10000"]
            .assert_eq(&differences(table.trim_end(), TABLE));
    }

    #[test]
    fn view_is_compared_by_target_and_query_without_database() {
        let on_server = "CREATE MATERIALIZED VIEW s.v TO s.t (`a` Int8) AS SELECT s.a AS a FROM s.s AS s";
        assert_eq!(differences(on_server, VIEW), "");
        let other = on_server.replace("s.t ", "elsewhere.t ").replace("s.a AS a", "s.b AS a");
        expect![[r#"
            target is elsewhere.t, expected t
            query is SELECT s.b AS a FROM s AS s, expected SELECT s.a AS a FROM s AS s"#]]
        .assert_eq(&differences(&other, VIEW));
    }
}
