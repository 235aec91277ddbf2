//! What a table or a view is beside its columns: engine, keys, TTL and settings, or target and query. Read from a CREATE
//! statement as the server formats it, so that only what means something else differs. Pure.

/// The clauses of a table's statement, in the order in which the server writes them.
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
/// Engines whose tables are the same on several servers: ClickHouse's own, and ClickHouse Cloud's.
const REPLICATED: [&str; 2] = ["Replicated", "Shared"];
/// What tables that are not replicated have before the name of a setting that both kinds have.
const NOT_REPLICATED: &str = "non_replicated_";

/// What a statement says, by what it is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    clauses: Vec<(&'static str, String)>,
    settings: Vec<(String, String)>,
}

impl Shape {
    /// The shape of what a statement makes in a database.
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
        // The server writes out where its tables are.
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

    /// A replicated table is to be as one that is not: on a cluster operators put the one for the other.
    fn forget_replication(&mut self) {
        let Some((_, engine)) = self.clauses.iter_mut().find(|(name, _)| *name == "engine") else { return };
        if let Some(kind) = REPLICATED.iter().find_map(|word| engine.strip_prefix(word)) {
            // Its path and its replica are quoted and come first; a column of versions does not.
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

    /// What this one has otherwise than it is to be. Settings that are not declared are an operator's.
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
                lines.push(format!("{name} is {is}, to be {to_be}"));
            }
        }
        for (name, to_be) in &to_be.settings {
            match self.settings.iter().find(|(known, _)| known == name) {
                Some((_, is)) if is == to_be => {}
                Some((_, is)) => lines.push(format!("setting {name} is {is}, to be {to_be}")),
                None => lines.push(format!("setting {name} is not set, to be {to_be}")),
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
    fn every_clause_is_compared() {
        let other = TABLE.replace("MergeTree", "SummingMergeTree").replace("toStartOfMonth", "toDate");
        let other =
            other.replace("(host, time)", "time").replace(" TTL toDateTime(time) + toIntervalDay(35)", "");
        let other = other.replace("10000", "10, index_granularity = 8192");
        expect![[r#"
            engine is SummingMergeTree, to be MergeTree
            partition key is toDate(time), to be toStartOfMonth(time)
            order is time, to be (host, time)
            TTL is none, to be toDateTime(time) + toIntervalDay(35)
            setting replicated_deduplication_window is 10, to be 10000"#]]
        .assert_eq(&differences(&other, TABLE));
    }

    #[test]
    fn a_replicated_table_is_the_same_with_the_same_window() {
        let engine = "ReplicatedMergeTree('/clickhouse/{shard}/losses', '{replica}')";
        let other = TABLE.replace("MergeTree", engine);
        let window =
            "SETTINGS replicated_deduplication_window = 10000, storage_policy = 'cold' COMMENT 'mine'";
        let (table, _) = other.split_once("SETTINGS").unwrap();
        assert_eq!(differences(&format!("{table}{window}"), TABLE), "");
        expect!["setting replicated_deduplication_window is not set, to be 10000"]
            .assert_eq(&differences(table.trim_end(), TABLE));
    }

    #[test]
    fn a_view_is_its_target_and_its_query_without_its_database() {
        let on_server = "CREATE MATERIALIZED VIEW s.v TO s.t (`a` Int8) AS SELECT s.a AS a FROM s.s AS s";
        assert_eq!(differences(on_server, VIEW), "");
        let other = on_server.replace("s.t ", "elsewhere.t ").replace("s.a AS a", "s.b AS a");
        expect![[r#"
            target is elsewhere.t, to be t
            query is SELECT s.b AS a FROM s AS s, to be SELECT s.a AS a FROM s AS s"#]]
        .assert_eq(&differences(&other, VIEW));
    }
}
