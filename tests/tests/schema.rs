//! ClickHouse schema tests: a new schema must have no differences, changes on the server must be
//! reported, and views must bound their cardinality.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema::{self, FILES, Options};
use thalweg_tests::services;

#[test]
fn differences_on_the_server_are_reported() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    assert_eq!(schema::apply(&server).unwrap().len(), 9);
    assert_eq!(schema::diff(&server).unwrap(), Vec::<String>::new());
    for change in [
        "ALTER TABLE sockets MODIFY TTL toDateTime(time) + INTERVAL 3 DAY",
        "ALTER TABLE sockets MODIFY SETTING non_replicated_deduplication_window = 100",
        "DROP TABLE losses",
        "CREATE TABLE losses (time DateTime64(6, 'UTC'), pop LowCardinality(String), host LowCardinality(String), \
         epoch UInt64, number UInt64, stage LowCardinality(String), records UInt64) ENGINE = ReplacingMergeTree \
         ORDER BY (host, number) SETTINGS non_replicated_deduplication_window = 10000",
        "DROP TABLE sockets_5m_view",
        "CREATE MATERIALIZED VIEW sockets_5m_view TO sockets_5m AS SELECT pop, count() AS samples FROM sockets GROUP BY pop",
    ] {
        server.execute(change).unwrap();
    }
    let differences = schema::diff(&server).unwrap();
    let (views, tables): (Vec<_>, Vec<_>) =
        differences.iter().map(String::as_str).partition(|line| line.starts_with("sockets_5m_view"));
    let expected = [
        "sockets: TTL is toDateTime(time) + toIntervalDay(3), expected toDateTime(time) + toIntervalDay(7)",
        "sockets: setting replicated_deduplication_window is 100, expected 10000",
        "losses: engine is ReplacingMergeTree, expected MergeTree",
        "losses: partition key is none, expected toStartOfMonth(time)",
        "losses: order is (host, number), expected (host, time)",
        "losses: TTL is none, expected toDateTime(time) + toIntervalDay(35)",
    ];
    assert_eq!(tables, expected);
    let is = "sockets_5m_view: query is SELECT pop, count() AS samples FROM sockets GROUP BY pop, expected SELECT toUInt32(";
    assert!(views.len() == 1 && views[0].starts_with(is), "{views:?}");
    assert_eq!(schema::apply(&server).unwrap(), Vec::<String>::new(), "existing tables must stay unchanged");
}

#[test]
fn options_set_retention_and_replication() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    let kept = Options { keep_days: Some(2), keep_aggregates_days: Some(90), ..Options::default() };
    assert_eq!(kept.apply(&server).unwrap().len(), 9);
    assert_eq!(kept.diff(&server).unwrap(), Vec::<String>::new());
    let differences = schema::diff(&server).unwrap();
    assert_eq!(differences.len(), 7, "the retention of every table differs: {differences:?}");
    assert!(differences.iter().all(|line| line.contains("TTL is ")), "{differences:?}");
    // The engine has no Keeper for replicated tables, but parses the statements.
    let replicated = Options { is_replicated: true, cluster: Some("main".parse().unwrap()), ..kept };
    assert_eq!(replicated.diff(&server).unwrap(), Vec::<String>::new(), "both forms must be equal");
    for (name, text) in FILES {
        for statement in replicated.adapt(text).split(";\n").filter(|statement| statement.contains("CREATE"))
        {
            let quoted = statement.replace('\\', "\\\\").replace('\'', "\\'");
            let formatted =
                server.query(&format!("SELECT formatQuerySingleLine('{quoted}')"), "TSV").unwrap();
            assert!(String::from_utf8_lossy(&formatted).contains(" ON CLUSTER main"), "{name}");
        }
    }
}

#[test]
fn hosts_beyond_the_limit_share_an_aggregate() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    // Half of the responses are from one host; each of the other hosts has one response.
    let rows = "SELECT toDateTime64(1800000000, 6, 'UTC'), 'fra', number, if(number % 2 = 0, 'www.example', \
                concat(toString(number), '.example')), 200, 10, 'hit' FROM numbers(5000)";
    let columns = "time, pop, number, request_host, status, bytes, cache";
    server.execute(&format!("INSERT INTO responses ({columns}) {rows}")).unwrap();
    let counts = "SELECT uniqExact(request_host), sum(responses), sumIf(responses, request_host = 'www.example'), \
                  sumIf(responses, request_host = '(other)'), sum(bytes) FROM responses_5m";
    let counts = server.query(counts, "TSV").unwrap();
    assert_eq!(String::from_utf8_lossy(&counts).trim(), "1001\t5000\t2500\t1501\t50000");
}
