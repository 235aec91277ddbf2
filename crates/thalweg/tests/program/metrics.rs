//! Metrics reference test: the page must match the metrics of a running program with every role.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Directory, Running, thalweg};
use expect_test::expect_file;

const CONFIG: &str = "
[origin]
listen = '127.0.0.1:0'
ingest = '127.0.0.1:0'
admin = '127.0.0.1:0'
media = 'http://127.0.0.1:1/'
[edge]
listen = '127.0.0.1:0'
admin = '127.0.0.1:0'
memory = '16MiB'
disk = 'disk=64MiB'
bundle = 'bundle.json'
[agent]
listen = '127.0.0.1:0'
spool = 'spool=16MiB'
json = 'json'
[consumer]
listen = '127.0.0.1:0'
kafka = '127.0.0.1:1'
clickhouse = 'http://127.0.0.1:1/absent'
[controller]
listen = '127.0.0.1:0'
";

/// Roles with metrics: announced name, heading, listener, and the metrics that appear only after an
/// event.
const ROLES: [(&str, &str, &str, &[&str]); 5] = [
    (
        "admin",
        "Edge",
        "`[edge] admin`, by default `127.0.0.1:8082`",
        &["thalweg_edge_bundle_number", "thalweg_edge_disk_bytes", "thalweg_edge_backend_healthy"],
    ),
    (
        "origin-admin",
        "Origin",
        "`[origin] admin`, by default `127.0.0.1:8085`",
        &[
            "thalweg_origin_connections",
            "thalweg_origin_responses",
            "thalweg_origin_written_bytes",
            "thalweg_origin_storage_failures",
        ],
    ),
    ("agent", "Agent", "`[agent] listen`, by default off", &[]),
    ("consumer", "Consumer", "`[consumer] listen`, by default off", &[]),
    ("controller", "Controller", "`[controller] listen`, by default `127.0.0.1:8083`", &[]),
];

const HEAD: &str = "# Metrics

Generated from a running program by the test `metrics` in `crates/thalweg`, which fails when this page is stale.

Every operator listener except the console's serves `GET /metrics` in the OpenMetrics 1.0 text format. [Watch the
traffic](../guides/watch-traffic.md) shows how to scrape it, and who may.

Counters start at 0 with the process. A metric without a unit is a count, or 1 for yes and 0 for no. Clients cannot
choose label values, so their number is bounded. The edge has disk and bundle metrics only if it has a disk tier or a
bundle.
";

/// Scrapes a metrics address.
fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Scrapes until all these metrics are present.
fn scrape_until(address: &str, expected: &[&str]) -> String {
    let start = Instant::now();
    loop {
        let text = scrape(address);
        let missing = expected.iter().find(|name| !text.contains(&format!("# TYPE {name} ")));
        let Some(missing) = missing else { return text };
        assert!(start.elapsed() < Duration::from_secs(20), "{missing} is missing in {text}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Formats OpenMetrics text as a table.
fn table(text: &str) -> String {
    let mut rows = String::from("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = lines[at + 1].strip_prefix(&format!("# TYPE {name} ")).unwrap();
        let samples = lines[at + 2..].iter().take_while(|line| !line.starts_with('#'));
        let labels: BTreeSet<&str> = samples
            .filter_map(|sample| sample.split_once('{')?.1.rsplit_once('}'))
            .flat_map(|(labels, _)| labels.split("\","))
            .filter_map(|label| Some(label.split_once('=')?.0))
            .collect();
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let unit = ["bytes", "seconds"].into_iter().find(|unit| name.contains(unit)).unwrap_or_default();
        let suffix = if kind == "counter" { "_total" } else { "" };
        let help = help.trim_end_matches('.').replace('|', "\\|");
        writeln!(rows, "| `{name}{suffix}` | {kind} | {unit} | {labels} | {help} |").unwrap();
    }
    rows
}

#[test]
fn reference_has_every_metric() {
    let directory = Directory::new();
    directory.write("bundle.json", &crate::bundles::document(1, Vec::new()));
    let config = directory.write("thalweg.toml", CONFIG);
    let mut command = thalweg(&["up", "--config", config.to_str().unwrap()]);
    // Suppress the warnings about Kafka and ClickHouse, which are not running.
    command.env("THALWEG_LOG", "error");
    let mut running = Running::start(command);
    let [origin, origin_admin, admin, agent, consumer, controller] =
        ["origin", "origin-admin", "admin", "agent", "consumer", "controller"]
            .map(|role| running.listening(role));
    // A metric with labels is omitted until it has a value, so send the origin a first request.
    scrape(&origin);
    let mut page = HEAD.to_owned();
    for (role, heading, place, expected) in ROLES {
        let address = match role {
            "admin" => &admin,
            "origin-admin" => &origin_admin,
            "agent" => &agent,
            "consumer" => &consumer,
            _ => &controller,
        };
        let text = scrape_until(address, expected);
        write!(page, "\n## {heading}\n\nAt {place}.\n\n{}", table(&text)).unwrap();
    }
    expect_file!["../../../../docs/reference/metrics.md"].assert_eq(&page);
}
