//! The reference of predefined queries is current.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

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
ClickHouse (`--clickhouse URL`). Both versions of a query return the same columns with the same meaning. An answer has
at most 100,000 rows.

| query | answers |
|---|---|
";

const PARAMETERS: &str = "
## Parameters

The text of each query is `schema/queries/NAME.sqlite.sql` and `NAME.clickhouse.sql`. It runs in `sqlite3` or
`clickhouse-client` once these are replaced:

| in the text | flag | default | meaning |
|---|---|---|---|
| `$since` | `--since` | `1h` | start, in seconds since 1970; the flag takes how long ago (`90min`, `24h`) or an RFC 3339 time |
| `$until` | `--until` | now | end, exclusive, likewise |
";

const TAIL: &str = "
A window counts if it starts between the two. The newest window is still being added to.

`samples` counts records, not connections: with the default period of 10 s, a connection of one minute has six, and the
one at its end. Percentiles are [accurate to 1 %](../explanation/telemetry.md#aggregates). Under `--sample N` each record
represents N connections; counts, sums and percentiles are not multiplied by N. Percentiles need no weights where all
agents sample alike.

An unknown autonomous system is 0, and an unknown name is empty.
";

/// What a column holds.
fn meaning(column: &str) -> &str {
    match column {
        "prefix" => "the client's network: /24 of IPv4, /56 of IPv6",
        "host" => "the agent's name",
        "stage" => "[where the records were lost](../explanation/telemetry.md#losses)",
        "records" => "how many",
        "window" => "start of the window, in seconds since 1970",
        "samples" => "socket records",
        "responses" => "responses",
        "bytes" => "content bytes of these responses",
        "p5" | "p10" | "p50" | "p90" => "percentile, bytes/s",
        "p10_bytes_per_s" => "10th percentile of the delivery rate, bytes/s",
        "p50_rtt_us" => "median of the smoothed round-trip time, µs",
        "p50_us" | "p95_us" | "p99_us" => "percentile, µs",
        "retransmitted_share" => "retransmitted TCP segments, as a share of those sent",
        other => panic!("column {other} has no description"),
    }
}

/// The comment at the head of a query's text, but for its times, which are the same for all.
fn comment(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schema/queries/{name}.sqlite.sql"));
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("-- "));
    let comment = lines.collect::<Vec<_>>().join(" ").replace("$by", "the column of `--by`");
    let sentences = comment.trim_end_matches('.').split(". ");
    let kept = sentences.filter(|sentence| !sentence.contains("$since"));
    kept.map(|sentence| format!("{sentence}.\n")).collect()
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
    writeln!(page, "| `$by` | `--by` | `prefix` | the grouping: {} |\n{TAIL}", by.join(", ")).unwrap();
    page.truncate(page.trim_end().len());
    page.push('\n');
    for query in QUERIES {
        let columns = query.ask_sqlite(&file, &parameters).unwrap().columns;
        let comment = comment(query.name);
        write!(page, "\n## {}\n\n{comment}\n| column | holds |\n|---|---|\n", query.name).unwrap();
        for (at, column) in columns.iter().enumerate() {
            let is_grouping = at == 0 && query.has_by();
            let (name, holds) = if is_grouping {
                ("prefix` or as `--by", "the group")
            } else {
                (column.as_str(), meaning(column))
            };
            writeln!(page, "| `{name}` | {holds} |").unwrap();
        }
    }
    fs::remove_dir_all(directory).unwrap();
    expect_file!["../../../docs/reference/queries.md"].assert_eq(&page);
}
