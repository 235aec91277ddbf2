//! `thalweg origin status`: libraries of a running origin, and its connections to remote storage.

use std::net::SocketAddr;

use http::Request;
use serde_json::Value;
use thalweg_units::table::Table;

use crate::admin::{Server, request_json};
use crate::print_stdout;

/// Examples and notes printed after the help of `thalweg origin status`.
pub const STATUS_HELP: &str = "\
Examples:
  thalweg origin status
  thalweg origin status --admin 10.0.0.7:8085 --json | jq .storage.connections

A reuse race is a kept connection that the server closed as a request was sent; the request is
repeated on a new connection. If there are many, lower storage_idle.";

/// `thalweg origin status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The origin's admin address
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8085")]
    admin: SocketAddr,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the origin's libraries and its connections to remote storage.
///
/// # Errors
///
/// Returns an error if no origin responds.
pub fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let url = format!("http://{}", args.admin);
    let server = Server { what: "origin", flag: "--admin", url, tls: None };
    let answer = request_json(server, Request::get("/status"), String::new())?;
    print_stdout(&if args.json { format!("{answer}\n") } else { human(&answer) });
    Ok(())
}

/// Formats tables of libraries, duplicates, connections, reads and failures.
fn human(answer: &Value) -> String {
    let mut libraries = Table::of_texts(["MEDIA", "FIRST BYTE p95", "ERROR"]);
    for library in answer["libraries"].as_array().into_iter().flatten() {
        let p95 = library["first_byte_p95_ms"].as_f64().map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        libraries.push([text(&library["media"]), p95, text(&library["error"])]);
    }
    let mut duplicates = Table::of_texts(["NAME", "NOT SERVED FROM"]);
    for duplicate in answer["duplicates"].as_array().into_iter().flatten() {
        duplicates.push([text(&duplicate["name"]), text(&duplicate["media"])]);
    }
    let storage = &answer["storage"];
    let mut connections = Table::of_texts([
        "OPEN",
        "IDLE",
        "OPENED",
        "REUSED",
        "CLOSED IDLE",
        "EXPIRED",
        "RACES",
        "WAITS",
        "REQUESTS EACH",
        "AGE",
    ]);
    let mut reads = Table::of_texts([
        "REQUESTS",
        "BYTES",
        "READS",
        "COLLAPSED",
        "RESUMED",
        "REPEATED",
        "HEDGES",
        "HEDGES WON",
    ]);
    let mut failures = Table::of_texts(["FAILURE", "COUNT"]);
    if storage.is_object() {
        let pool = &storage["connections"];
        let mean = |value: &Value, unit| value.as_f64().map_or("-".to_owned(), |it| format!("{it:.1}{unit}"));
        connections.push([
            text(&pool["open"]),
            text(&pool["idle"]),
            text(&pool["opened"]),
            text(&pool["reused"]),
            text(&pool["closed_idle"]),
            text(&pool["expired"]),
            text(&storage["reuse_races"]),
            text(&storage["slot_waits"]),
            mean(&pool["requests_mean"], ""),
            mean(&pool["age_s_mean"], " s"),
        ]);
        let names = [
            "requests",
            "read_bytes",
            "reads",
            "reads_collapsed",
            "reads_resumed",
            "requests_repeated",
            "hedges",
            "hedges_won",
        ];
        reads.push(names.map(|name| text(&storage[name])));
        for (kind, count) in storage["failures"].as_object().into_iter().flatten() {
            failures.push([kind.clone(), text(count)]);
        }
    }
    let tables = [libraries, duplicates, connections, reads, failures];
    let tables = tables.into_iter().filter(|table| !table.is_empty());
    let text = tables.map(|table| table.to_string()).collect::<Vec<_>>().join("\n");
    if text.is_empty() { "live channels only\n".to_owned() } else { text }
}

/// Formats a value as a cell; a dash if absent.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn libraries_and_connections_are_tables() {
        let answer = json!({
            "libraries": [
                {"media": "/srv/media", "error": null, "first_byte_p95_ms": null},
                {"media": "s3://films/", "error": null, "first_byte_p95_ms": 31.25},
            ],
            "duplicates": [{"name": "a", "media": "s3://films/"}],
            "storage": {
                "requests": 100, "read_bytes": 5_000_000, "reuse_races": 1, "slot_waits": 2,
                "connections": {
                    "open": 4, "idle": 3, "opened": 6, "reused": 94, "closed_idle": 1, "expired": 1,
                    "requests_mean": 12.5, "age_s_mean": 8.0,
                },
                "reads": 90, "reads_collapsed": 7, "reads_resumed": 1, "requests_repeated": 2,
                "hedges": 1, "hedges_won": 0, "failures": {"closed": 1, "slow_down": 2},
            },
        });
        expect_test::expect![[r#"
            MEDIA        FIRST BYTE p95  ERROR
            /srv/media   -               -
            s3://films/  31.2 ms         -

            NAME  NOT SERVED FROM
            a     s3://films/

            OPEN  IDLE  OPENED  REUSED  CLOSED IDLE  EXPIRED  RACES  WAITS  REQUESTS EACH  AGE
            4     3     6       94      1            1        1      2      12.5           8.0 s

            REQUESTS  BYTES    READS  COLLAPSED  RESUMED  REPEATED  HEDGES  HEDGES WON
            100       5000000  90     7          1        2         1       0

            FAILURE    COUNT
            closed     1
            slow_down  2
        "#]]
        .assert_eq(&human(&answer));
        assert_eq!(
            human(&json!({"libraries": [], "duplicates": [], "storage": null})),
            "live channels only\n"
        );
    }
}
