//! Options of the ClickHouse schema: replicated engines, a cluster, and how long rows are kept. The
//! options change the text of the schema files. Does no I/O.

use std::borrow::Cow;

/// Retention of records, as written in the schema files.
const KEEP: &str = "INTERVAL 7 DAY";
/// Retention of all other tables, as written in the schema files.
const KEEP_AGGREGATES: &str = "INTERVAL 35 DAY";

/// How the tables on a server differ from the schema files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the tables have the `Replicated` forms of their engines.
    pub is_replicated: bool,
    /// Cluster on whose servers the statements run; `None` for the connected server alone.
    pub cluster: Option<Cluster>,
    /// Days for which records are kept, instead of 7.
    pub keep_days: Option<u32>,
    /// Days for which aggregates, losses, refused messages and positions are kept, instead of 35.
    pub keep_aggregates_days: Option<u32>,
}

/// Name of a ClickHouse cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster(String);

impl std::str::FromStr for Cluster {
    type Err = String;

    /// Accepts a cluster name, or a macro such as `{cluster}`.
    fn from_str(name: &str) -> Result<Self, String> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "_-.{}".contains(c);
        if name.is_empty() || !name.chars().all(is_known) {
            return Err("expected a cluster name of letters, digits and _-., or a macro in braces".to_owned());
        }
        Ok(Self(name.to_owned()))
    }
}

impl Options {
    /// Returns the clause of a statement for the cluster, with a space before it; empty without a
    /// cluster.
    pub(super) fn on_cluster(&self) -> String {
        self.cluster.as_ref().map(|Cluster(name)| format!(" ON CLUSTER '{name}'")).unwrap_or_default()
    }

    /// Returns a schema file's text with these options.
    pub fn adapt(&self, text: &str) -> String {
        text.lines().map(|line| self.adapt_line(line) + "\n").collect()
    }

    fn adapt_line(&self, line: &str) -> String {
        let mut line = Cow::Borrowed(line);
        if let Some(rest) = line.strip_prefix("CREATE ")
            && let Some((kind, rest)) = rest.split_once(" IF NOT EXISTS ")
        {
            let (name, rest) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
            line = format!("CREATE {kind} IF NOT EXISTS {name}{}{rest}", self.on_cluster()).into();
        }
        if let Some(engine) = line.strip_prefix("ENGINE = ").filter(|_| self.is_replicated) {
            line = format!("ENGINE = Replicated{engine}").into();
        }
        if line.starts_with("SETTINGS ") && self.is_replicated {
            line =
                line.replace("non_replicated_deduplication_window", "replicated_deduplication_window").into();
        }
        if line.starts_with("TTL ") {
            let keep = |text: &str, from, days: Option<u32>| match days {
                Some(days) => text.replace(from, &format!("INTERVAL {days} DAY")),
                None => text.to_owned(),
            };
            // A line contains at most one of the two intervals.
            line = match line.contains(KEEP) {
                true => keep(&line, KEEP, self.keep_days),
                false => keep(&line, KEEP_AGGREGATES, self.keep_aggregates_days),
            }
            .into();
        }
        line.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FILES;
    use super::*;

    #[test]
    fn options_change_engine_cluster_and_retention_of_every_table() {
        let options = Options {
            is_replicated: true,
            cluster: Some("{cluster}".parse().unwrap()),
            keep_days: Some(2),
            keep_aggregates_days: Some(90),
        };
        for (name, text) in FILES {
            let adapted = options.adapt(text);
            let count = |text: &str, what| text.matches(what).count();
            assert_eq!(count(&adapted, "ENGINE = Replicated"), 1, "{name}");
            assert_eq!(count(&adapted, "SETTINGS replicated_deduplication_window = 10000"), 1, "{name}");
            assert_eq!(count(&adapted, " ON CLUSTER '{cluster}'"), count(text, "\nCREATE "), "{name}");
            let days = if ["sockets.sql", "responses.sql"].contains(&name) { 2 } else { 90 };
            assert_eq!(count(&adapted, &format!(" + INTERVAL {days} DAY")), 1, "{name}");
            assert_eq!(Options::default().adapt(text), text, "{name}");
        }
        assert!("a'b".parse::<Cluster>().is_err() && "".parse::<Cluster>().is_err());
    }
}
