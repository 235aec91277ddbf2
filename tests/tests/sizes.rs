//! Cost of a response record in Kafka and in ClickHouse: CPU time of the service, and bytes on
//! disk. `cargo test -p thalweg-tests --test sizes -- --nocapture` prints the figures used in
//! docs/explanation/telemetry-scale.md. The limits detect a schema or an encoding that has become
//! several times as expensive.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_kafka::Cluster;
use thalweg_record::{Batch, Entry, Source};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema;
use thalweg_telemetry::{ClickHouseSink, KafkaSink, Sink};
use thalweg_tests::records::{self, RESPONSE_EVERY};
use thalweg_tests::services;

/// Number of records in a batch: one second of an edge with 10,000 responses per second.
const BATCH_RECORDS: u64 = 10_000;
const BATCHES: u64 = 20;
const RECORDS: u64 = BATCHES * BATCH_RECORDS;
/// Number of client networks.
const PREFIXES: u64 = 1_000;
const TOPIC: &str = "sizes";
/// Maximum size of a record on disk, in Kafka and in ClickHouse, in bytes.
const BYTES_MAX: f64 = 300.0;

/// Creates a batch of responses.
fn batch(index: u64, since_unix_us: u64) -> Batch {
    let entry = |number| {
        let time_unix_us = since_unix_us + number * (1_000_000 / BATCH_RECORDS);
        let (network, record) = records::record(number * RESPONSE_EVERY, PREFIXES, time_unix_us);
        Entry { number, network, record }
    };
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    Batch { source, entries: (index * BATCH_RECORDS..(index + 1) * BATCH_RECORDS).map(entry).collect() }
}

fn us_per_record(seconds: f64) -> f64 {
    seconds * 1e6 / RECORDS as f64
}

#[test]
fn response_records_have_the_documented_cost() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let since_unix_us = u64::try_from(now).unwrap() - BATCHES * 1_000_000;
    let kafka = services::Kafka::start();
    let cluster = Cluster { brokers: kafka.brokers(), topic: TOPIC.into(), properties: Vec::new() };
    let mut sink = KafkaSink::new(cluster, Some(12));
    let before = kafka.cpu_seconds();
    (0..BATCHES).for_each(|index| sink.store(&batch(index, since_unix_us)).unwrap());
    let bytes = kafka.topic_bytes(TOPIC) as f64 / RECORDS as f64;
    println!("Kafka: {:.1} us CPU, {bytes:.1} bytes", us_per_record(kafka.cpu_seconds() - before));
    assert!(bytes > 0.0 && bytes < BYTES_MAX);
    drop(kafka);

    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let mut sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
    let before = clickhouse.cpu_seconds();
    (0..BATCHES).for_each(|index| sink.store(&batch(index, since_unix_us)).unwrap());
    let inserted = clickhouse.cpu_seconds();
    for table in ["responses", "responses_5m"] {
        server.execute(&format!("OPTIMIZE TABLE {table} FINAL")).unwrap();
    }
    let merged = clickhouse.cpu_seconds();
    let (insert, merge) = (us_per_record(inserted - before), us_per_record(merged - inserted));
    println!("ClickHouse: {insert:.1} us CPU to insert, {merge:.1} us to merge once");
    for table in ["responses", "responses_5m"] {
        let size = format!(
            "SELECT sum(rows), sum(bytes_on_disk) / sum(rows) FROM system.parts WHERE active AND table = '{table}'"
        );
        let size = String::from_utf8(server.query(&size, "TSV").unwrap().to_vec()).unwrap();
        let (rows, bytes) = size.trim().split_once('\t').unwrap();
        println!("ClickHouse {table}: {rows} rows, {bytes} bytes each");
        if table == "responses" {
            assert_eq!(rows, RECORDS.to_string());
            assert!(bytes.parse::<f64>().unwrap() < BYTES_MAX);
        }
    }
}
