//! Test that the reference page of predefined queries is up to date.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use expect_test::expect_file;
use thalweg_telemetry::query::{By, Parameters, QUERIES};
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};

const HEAD: &str = "# Predefined queries

Generated from `crates/telemetry/src/query.rs` and `schema/queries` by the test `queries` in `crates/telemetry`, which
fails when this page is stale. [Keep telemetry](../guides/keep-telemetry.md) shows how to run them.

`thalweg query NAME` runs a query on a SQLite file (`--sqlite FILE`, by default `thalweg-telemetry.sqlite`) or on
ClickHouse (`--clickhouse URL`). Both versions of a query return the same columns with the same meaning. A result has
at most 100,000 rows.

| query | result |
|---|---|
";

const PARAMETERS: &str = "
## Parameters

The SQL of each query is in `schema/queries/NAME.sqlite.sql` and `NAME.clickhouse.sql`. To run it in `sqlite3` or
`clickhouse-client`, replace these parameters:

| in the SQL | flag | default | meaning |
|---|---|---|---|
| `$since` | `--since` | `1h` | start of the time range, inclusive, in Unix seconds; the flag takes a duration before now (`90min`, `24h`) or an RFC 3339 time |
| `$until` | `--until` | now | end of the time range, exclusive, in Unix seconds; the flag takes the same formats as `--since` |
";

const TAIL: &str = "
`losses` counts the losses noticed within the time range, and `hd_ratio` the responses requested within it. The other
queries include each five-minute window that starts within the time range. The newest window is still incomplete.

`hd_ratio` reads the responses themselves, so it reaches back as far as records are kept. Its share, the HDratio, is
that of Schlinker et al., *Internet Performance from Facebook's Edge* (IMC 2019). Compare networks with at least 30
testable responses.

`samples` counts records, not connections. With the default period of 10 s, a connection that lasts one minute has six
records, plus one when it closes. Percentiles are [accurate to 1 %](../explanation/telemetry.md#aggregates).

If an agent runs with `--sample N`, each recorded connection represents N connections, but counts and sums are not
multiplied by N, and percentiles are not weighted by N. If all agents use the same N, such weights would not change the
percentiles.

An unknown autonomous system is 0. An unknown region or congestion control is an empty string.
";

/// Returns the description of a column.
fn meaning(column: &str) -> &str {
    match column {
        "prefix" => "client network: /24 for IPv4, /56 for IPv6",
        "host" => "the agent's host name",
        "stage" => "[stage](../explanation/telemetry.md#losses) at which the records were lost",
        "records" => "number of lost records",
        "window" => "start of the window, in Unix seconds",
        "samples" => "number of socket records",
        "responses" => "number of responses",
        "testable" => "number of responses that could have shown 2.5 Mbit/s",
        "reached" => "how many of them reached it",
        "hd_ratio" => "`reached` divided by `testable`",
        "p50_min_rtt_us" => "median of the minimum round-trip time, in µs",
        "bytes" => "total content bytes of these responses",
        "p5" => "5th percentile, in bytes/s",
        "p10" => "10th percentile, in bytes/s",
        "p50" => "median, in bytes/s",
        "p90" => "90th percentile, in bytes/s",
        "p10_bytes_per_s" => "10th percentile of the delivery rate, in bytes/s",
        "p50_rtt_us" => "median of the smoothed round-trip time, in µs",
        "p50_us" => "median, in µs",
        "p95_us" => "95th percentile, in µs",
        "p99_us" => "99th percentile, in µs",
        "retransmitted_share" => "number of retransmitted TCP segments, divided by the number sent",
        other => panic!("column {other} has no description"),
    }
}

/// Returns the comment at the head of a query's SQL, without the sentence about the time range,
/// which the page explains once for all queries.
fn comment(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schema/queries/{name}.sqlite.sql"));
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("-- "));
    let comment = lines.collect::<Vec<_>>().join(" ").replace("$by", "the `--by` column");
    let sentences = comment.trim_end_matches('.').split(". ");
    let kept: Vec<_> = sentences.filter(|sentence| !sentence.contains("$since")).collect();
    wrapped(&format!("{}.", kept.join(". ")))
}

/// Breaks a paragraph into lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut page = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > 120 {
            page += &format!("{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    page + &line + "\n"
}

#[test]
fn reference_has_every_query_and_column() {
    let directory = std::env::temp_dir().join(format!("thalweg-queries-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("empty.sqlite");
    let age = Duration::from_secs(3600);
    drop(SqliteSink::open(&file, Retention { records: age, aggregates: age, total_bytes: 1 << 30 }).unwrap());
    let parameters = Parameters { since: 0, until: 1, by: By::Prefix };
    let mut page = HEAD.to_owned();
    for query in QUERIES {
        writeln!(page, "| [`{0}`](#{0}) | {1} |", query.name, query.about).unwrap();
    }
    page.push_str(PARAMETERS);
    let by: Vec<_> = By::ALL.into_iter().map(|by| format!("`{}`", by.as_str())).collect();
    writeln!(page, "| `$by` | `--by` | `prefix` | grouping column: {} |\n{TAIL}", by.join(", ")).unwrap();
    page.truncate(page.trim_end().len());
    page.push('\n');
    for query in QUERIES {
        let columns = query.ask_sqlite(&file, &parameters).unwrap().columns;
        let comment = comment(query.name);
        write!(page, "\n## {}\n\n{comment}\n| column | contents |\n|---|---|\n", query.name).unwrap();
        for (at, column) in columns.iter().enumerate() {
            let is_grouping = at == 0 && query.has_by();
            let (name, contents) = if is_grouping {
                ("prefix`, or the column named by `--by", "value shared by all records of the row")
            } else {
                (column.as_str(), meaning(column))
            };
            writeln!(page, "| `{name}` | {contents} |").unwrap();
        }
    }
    fs::remove_dir_all(directory).unwrap();
    expect_file!["../../../docs/reference/queries.md"].assert_eq(&page);
}
