//! `thalweg query`: ready queries over what an agent has kept, as a table for people or as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::Value;
use thalweg_record::units::Span;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::query::{Answer, By, Parameters, QUERIES, Query};

use crate::print_or_gone;

/// What is asked.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// The query's name.
    pub(crate) name: &'a str,
    /// What rows are of, where the query has that.
    pub(crate) by: &'a str,
    /// From when on.
    pub(crate) since: When,
    /// Until when; without it now.
    pub(crate) until: Option<When>,
    /// The file that is asked.
    pub(crate) sqlite: &'a Path,
    /// The server that is asked instead.
    pub(crate) clickhouse: Option<&'a str>,
    /// Whether the rows are printed as JSON.
    pub(crate) json: bool,
}

/// A point in time as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// This long ago.
    Ago(Duration),
    /// At this time.
    At(SystemTime),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = humantime::parse_rfc3339_weak(text) {
            return Ok(Self::At(time));
        }
        let span =
            Span::from_str(text).map_err(|error| format!("{error}; or a time, as 2026-11-21T18:00:00Z"))?;
        Ok(Self::Ago(span.duration))
    }
}

impl When {
    /// Seconds since the Unix epoch, not before that.
    fn unix_s(self, now: SystemTime) -> u64 {
        let time = match self {
            Self::Ago(span) => now.checked_sub(span).unwrap_or(UNIX_EPOCH),
            Self::At(time) => time,
        };
        time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// Prints the queries that there are.
pub(crate) fn list() {
    let rows = QUERIES.iter().map(|query| vec![query.name.to_owned(), query.about.to_owned()]);
    let heading = vec!["QUERY".to_owned(), "ANSWERS".to_owned()];
    print_or_gone(&table(&[heading].into_iter().chain(rows).collect::<Vec<_>>()));
}

/// Prints what a query answers.
///
/// # Errors
/// When the file or the server cannot be asked.
pub(crate) fn run(question: &Question<'_>) -> anyhow::Result<()> {
    let query = Query::named(question.name).context("no such query")?;
    let by = By::from_word(question.by).context("no such column")?;
    let now = SystemTime::now();
    let since = question.since.unix_s(now);
    let until = question.until.unwrap_or(When::At(now)).unix_s(now);
    anyhow::ensure!(since < until, "--since is not before --until: nothing lies in between");
    let parameters = Parameters { since, until, by };
    let answer = match question.clickhouse {
        Some(url) => query.ask_clickhouse(&Server::at(url)?, &parameters)?,
        None => query.ask_sqlite(question.sqlite, &parameters)?,
    };
    print_or_gone(&if question.json { lines(&answer)? } else { people(&answer) });
    Ok(())
}

/// An object for each row.
fn lines(answer: &Answer) -> serde_json::Result<String> {
    let mut text = String::new();
    for row in &answer.rows {
        text.push('{');
        for (at, (column, value)) in answer.columns.iter().zip(row).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}{}:{value}", serde_json::to_string(column)?)
                .expect("a String takes every write");
        }
        text.push_str("}\n");
    }
    Ok(text)
}

/// A table; without rows a line that says so.
fn people(answer: &Answer) -> String {
    if answer.rows.is_empty() {
        return "no rows: nothing was kept of that time, or too little for this query\n".to_owned();
    }
    let cell = |(column, value): (&String, &Value)| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        // The start of a window.
        Value::Number(number) if column == "window" => {
            let start = UNIX_EPOCH.checked_add(Duration::from_secs(number.as_u64().unwrap_or(0)));
            humantime::format_rfc3339_seconds(start.unwrap_or(UNIX_EPOCH)).to_string()
        }
        value => value.to_string(),
    };
    let heading = answer.columns.iter().map(|column| column.to_uppercase()).collect();
    let rows = answer.rows.iter().map(|row| answer.columns.iter().zip(row).map(cell).collect());
    table(&[heading].into_iter().chain(rows).collect::<Vec<Vec<_>>>())
}

/// Columns as wide as they need to be.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<_> =
        (0..columns).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())
            .expect("a String takes every write");
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_spans_back_or_rfc_3339() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let unix_s = |text: &str| text.parse().map(|when: When| when.unix_s(now));
        assert_eq!(unix_s("1h"), Ok(1_799_996_400));
        assert_eq!(unix_s("2027-01-15T08:00:00Z"), Ok(1_800_000_000));
        assert_eq!(unix_s("999999999h"), Ok(0));
        expect![[r#""soon" is no duration: write a number and a unit, as in 10ms, 10s or 10min; or a time, as 2026-11-21T18:00:00Z"#]].assert_eq(&unix_s("soon").unwrap_err());
    }

    #[test]
    fn an_answer_is_a_table_or_lines() {
        let answer = Answer {
            columns: vec!["window".into(), "name".into(), "p50".into()],
            rows: vec![
                vec![json!(1_800_000_000), json!("203.0.113.0/24"), json!(7)],
                vec![json!(1_800_000_300), json!(""), Value::Null],
            ],
        };
        expect![[r#"
            WINDOW                NAME            P50
            2027-01-15T08:00:00Z  203.0.113.0/24  7
            2027-01-15T08:05:00Z  -               -
        "#]]
        .assert_eq(&people(&answer));
        expect![[r#"
            {"window":1800000000,"name":"203.0.113.0/24","p50":7}
            {"window":1800000300,"name":"","p50":null}
        "#]]
        .assert_eq(&lines(&answer).unwrap());
    }
}
