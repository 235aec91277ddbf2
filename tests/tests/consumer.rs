//! `thalweg consumer` as an operator runs it: with a missing topic, with secrets in files, and with
//! its metrics and exit status.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod program;

use thalweg_kafka::Cluster;
use thalweg_record::{Batch, Entry, LossRecord, Network, Record, Source, Stage};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema;
use thalweg_telemetry::{KafkaSink, Sink};
use thalweg_tests::services;

use program::{Directory, Process, metrics, thalweg, until};

const RECORDS: u64 = 50;

fn batch() -> Batch {
    let record =
        Record::Loss(LossRecord { time_unix_us: 1_800_000_000_000_000, stage: Stage::Edge, records: 2 });
    let entry = |number| Entry { number, network: Network::default(), record: record.clone() };
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    Batch { source, entries: (0..RECORDS).map(entry).collect() }
}

#[test]
fn consumer_reports_a_missing_topic_and_delivers_records() {
    let (kafka, clickhouse) = (services::Kafka::start(), services::ClickHouse::start());
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let directory = Directory::new();
    let brokers = kafka.brokers();

    let url = format!("@{}", directory.file("url", &format!("{}\n", clickhouse.url())));
    let missing = Process::start(thalweg().args([
        "consumer",
        "--kafka",
        &brokers,
        "--clickhouse",
        &url,
        "--kafka-topic",
        "absent",
        "--topic-wait",
        "1s",
    ]));
    assert!(
        missing.wait_for_log("has no topic \"absent\"").contains("kafka-topics.sh --create --topic absent")
    );
    assert_eq!(missing.exit_code(), Some(1));

    // Read a property's value from a file, and create the topic later.
    let client = directory.file("client", "secret-client\n");
    let file = directory.file(
        "thalweg.toml",
        &format!(
            "[consumer]\nkafka = \"{brokers}\"\nclickhouse = \"@url\"\nkafka_set = \"client.id=@{client}\"\n\
             listen = \"127.0.0.1:0\"\nblock_wait = \"100ms\"\n"
        ),
    );
    let consumer = Process::start(thalweg().args(["up", "--config", &file]));
    let address = consumer.wait_for_log("consumer listening").parse().unwrap();
    consumer.wait_for_log("topic missing, waiting for it");
    assert!(!consumer.command_line().contains("secret"));
    let topic = thalweg_kafka::DEFAULT_TOPIC.to_owned();
    let mut sink = KafkaSink::new(Cluster { brokers, topic, properties: Vec::new() }, Some(2));
    let batch = batch();
    let mut keeps = || sink.store(&batch).is_ok();
    until("Kafka has the batch", &mut keeps);
    consumer.wait_for_log("reading");
    let expected = format!("thalweg_consumer_records_total {RECORDS}");
    until("the consumer has inserted it", || metrics(address).contains(&expected));
    let text = metrics(address);
    assert!(text.contains("# TYPE thalweg_consumer_lag_messages gauge"), "{text}");
    assert!(text.contains("thalweg_consumer_blocks_unverified_total 0"), "{text}");
    assert!(text.trim_end().ends_with("# EOF"), "{text}");
    let rows = server.query("SELECT count() FROM losses", "TSV").unwrap();
    assert_eq!(String::from_utf8_lossy(&rows).trim(), RECORDS.to_string());
    consumer.stop();
}
