//! The schema in a ClickHouse: what it makes has no difference, what is changed there is told, and what its views bound.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema;
use thalweg_tests::services;

#[test]
fn what_a_server_has_otherwise_is_told() {
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
        "sockets: TTL is toDateTime(time) + toIntervalDay(3), to be toDateTime(time) + toIntervalDay(7)",
        "sockets: setting replicated_deduplication_window is 100, to be 10000",
        "losses: engine is ReplacingMergeTree, to be MergeTree",
        "losses: partition key is none, to be toStartOfMonth(time)",
        "losses: order is (host, number), to be (host, time)",
        "losses: TTL is none, to be toDateTime(time) + toIntervalDay(35)",
    ];
    assert_eq!(tables, expected);
    let is = "sockets_5m_view: query is SELECT pop, count() AS samples FROM sockets GROUP BY pop, to be SELECT toUInt32(";
    assert!(views.len() == 1 && views[0].starts_with(is), "{views:?}");
    assert_eq!(schema::apply(&server).unwrap(), Vec::<String>::new(), "that is an operator's to change");
}

#[test]
fn hosts_beyond_a_bound_share_an_aggregate() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    // One host has every second response, of the others each has one.
    let rows = "SELECT toDateTime64(1800000000, 6, 'UTC'), 'fra', number, if(number % 2 = 0, 'www.example', \
                concat(toString(number), '.example')), 200, 10, 'hit' FROM numbers(5000)";
    let columns = "time, pop, number, request_host, status, bytes, cache";
    server.execute(&format!("INSERT INTO responses ({columns}) {rows}")).unwrap();
    let counts = "SELECT uniqExact(request_host), sum(responses), sumIf(responses, request_host = 'www.example'), \
                  sumIf(responses, request_host = '(other)'), sum(bytes) FROM responses_5m";
    let counts = server.query(counts, "TSV").unwrap();
    assert_eq!(String::from_utf8_lossy(&counts).trim(), "1001\t5000\t2500\t1501\t50000");
}
