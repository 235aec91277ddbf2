//! `thalweg query`: predefined queries over stored telemetry, printed as a table or as JSON.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::query::{Answer, By, Parameters, QUERIES, Query};
use thalweg_units::Span;
use thalweg_units::table::Table;

use crate::print_stdout;
use crate::secret::{ClickHouseUrl, clickhouse_url};

/// Examples and notes printed after the help.
pub const HELP: &str = "\
Examples:
  thalweg query                                            list the queries
  thalweg query delivery_rate --by congestion_control      percentiles of the last hour
  thalweg query ttfb --since 24h --json
  thalweg query slowest_prefixes --since 2026-11-21T18:00:00Z --until 2026-11-21T19:00:00Z

A time is in RFC 3339 format, or is a duration before now (ms, s, min, h: 90min, 24h). Windows that
start within the range are included; the newest is still incomplete. Rates are in bytes per second.";

/// `thalweg query`.
#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// Query to run; if omitted, all queries are listed
    #[arg(value_parser = PossibleValuesParser::new(QUERIES.map(|query| query.name)))]
    name: Option<String>,
    /// Column to group rows by
    #[arg(long, default_value = "prefix", requires = "name")]
    #[arg(value_parser = PossibleValuesParser::new(By::ALL.map(By::as_str)))]
    by: String,
    /// Start of the time range
    #[arg(long, value_name = "SPAN|TIME", default_value = "1h", requires = "name")]
    since: When,
    /// End of the time range; now by default
    #[arg(long, value_name = "SPAN|TIME", requires = "name")]
    until: Option<When>,
    /// SQLite file written by an agent, by default beside its spool
    #[arg(long, value_name = "FILE", default_value = "thalweg-telemetry.sqlite", requires = "name")]
    sqlite: PathBuf,
    /// The ClickHouse server and database to query instead of a SQLite file:
    /// http://USER:PASSWORD@HOST:PORT/DATABASE, or @FILE to read the URL from a file
    #[arg(long, value_name = "URL|@FILE", value_parser = clickhouse_url)]
    #[arg(requires = "name", conflicts_with = "sqlite")]
    clickhouse: Option<ClickHouseUrl>,
    /// Print a JSON object for each row
    #[arg(long, requires = "name")]
    json: bool,
}

/// A point in time as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Given as a duration before now.
    Ago(Duration),
    /// Given as an absolute time.
    At(SystemTime),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Without an offset the time is UTC. A zone in brackets would be ignored silently, so
        // reject it.
        let in_utc = || TimeZone::UTC.to_timestamp(text.parse()?);
        let time =
            text.parse::<Timestamp>().or_else(|error| if text.contains('[') { Err(error) } else { in_utc() });
        if let Ok(time) = time {
            return Ok(Self::At(time.into()));
        }
        let span = Span::from_str(text)
            .map_err(|error| format!("{error}, or a time such as 2026-11-21T18:00:00Z"))?;
        Ok(Self::Ago(span.duration))
    }
}

impl When {
    /// Returns the time in Unix seconds, at least 0.
    fn unix_s(self, now: SystemTime) -> u64 {
        let time = match self {
            Self::Ago(span) => now.checked_sub(span).unwrap_or(UNIX_EPOCH),
            Self::At(time) => time,
        };
        time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// Lists the queries.
fn list() {
    let mut table = Table::of_texts(["QUERY", "ANSWERS"]);
    QUERIES.iter().for_each(|query| table.push([query.name, query.about]));
    print_stdout(&table.to_string());
}

/// Prints the result of a query, or the list of queries.
///
/// # Errors
///
/// Returns an error if the file or the server cannot be queried.
pub fn run(args: &QueryArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        list();
        return Ok(());
    };
    let query = Query::named(name).context("unknown query")?;
    let by = By::from_word(&args.by).context("unknown column")?;
    let now = SystemTime::now();
    let since = args.since.unix_s(now);
    let until = args.until.unwrap_or(When::At(now)).unix_s(now);
    anyhow::ensure!(since < until, "--since must be before --until");
    let parameters = Parameters { since, until, by };
    let answer = match &args.clickhouse {
        Some(ClickHouseUrl(url)) => query.ask_clickhouse(&Server::at(url)?, &parameters)?,
        None => query.ask_sqlite(&args.sqlite, &parameters)?,
    };
    print_stdout(&if args.json { lines(&answer)? } else { human(&answer) });
    Ok(())
}

/// Formats a JSON object per row.
fn lines(answer: &Answer) -> serde_json::Result<String> {
    let mut text = String::new();
    for row in &answer.rows {
        text.push('{');
        for (at, (column, value)) in answer.columns.iter().zip(row).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}{}:{value}", serde_json::to_string(column)?)
                .expect("writing to a String cannot fail");
        }
        text.push_str("}\n");
    }
    Ok(text)
}

/// Formats a table, or a message if there are no rows.
fn human(answer: &Answer) -> String {
    if answer.rows.is_empty() {
        return "no rows: no data for this time range, or too little for this query\n".to_owned();
    }
    let cell = |(column, value): (&String, &Value)| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        // The window column contains the start of each window.
        Value::Number(number) if column == "window" => {
            format!("{:.0}", thalweg_record::time(number.as_u64().unwrap_or(0).saturating_mul(1_000_000)))
        }
        value => value.to_string(),
    };
    let names: Vec<_> = answer.columns.iter().map(|column| column.to_uppercase()).collect();
    let mut table = Table::of_texts(names.iter().map(String::as_str));
    answer.rows.iter().for_each(|row| table.push(answer.columns.iter().zip(row).map(cell)));
    table.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_durations_ago_or_rfc_3339() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let unix_s = |text: &str| text.parse().map(|when: When| when.unix_s(now));
        assert_eq!(unix_s("1h"), Ok(1_799_996_400));
        assert_eq!(unix_s("2027-01-15T08:00:00Z"), Ok(1_800_000_000));
        assert_eq!(unix_s("999999999h"), Ok(0));
        expect![[r#""soon" is not a duration: write a number and a unit, as in 10ms, 10s or 10min, or a time such as 2026-11-21T18:00:00Z"#]].assert_eq(&unix_s("soon").unwrap_err());
    }

    #[test]
    fn answer_prints_as_a_table_or_json_lines() {
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
        .assert_eq(&human(&answer));
        expect![[r#"
            {"window":1800000000,"name":"203.0.113.0/24","p50":7}
            {"window":1800000300,"name":"","p50":null}
        "#]]
        .assert_eq(&lines(&answer).unwrap());
    }
}
