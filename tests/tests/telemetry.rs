//! Records go through Kafka to ClickHouse, while the sink, the consumer and ClickHouse are killed again and again: what was sent is
//! there, once, and so it is in the rollups.
//!
//! The sink and the consumer are processes of their own: this program again, told by its environment what to be.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;
use thalweg_record::{
    Batch, Cause, Counters, Entry, Gauges, LossRecord, Network, Record, SocketRecord, Source, Stage,
};
use thalweg_telemetry::Sink;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{Consumer, Limits};
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::schema;
use thalweg_telemetry::sink::{ClickHouseSink, KafkaSink};
use thalweg_tests::services;

const TOPIC: &str = "telemetry";
const GROUP: &str = "tables";
const BATCHES: u64 = 80;
const BATCH_RECORDS: u64 = 250;
/// Each of these has a record of loss.
const LOSS_EVERY: u64 = 50;
/// What a machine busy with other things may take for the whole.
const DELIVERY_MAX: Duration = Duration::from_secs(120);

/// The batch of an index: the same in each life of the sink.
fn batch(index: u64, time_unix_us: u64) -> Batch {
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    let numbers = index * BATCH_RECORDS..(index + 1) * BATCH_RECORDS;
    let entries = numbers.map(|number| entry(number, time_unix_us + number)).collect();
    Batch { source, entries }
}

fn entry(number: u64, time_unix_us: u64) -> Entry {
    let record = if number.is_multiple_of(LOSS_EVERY) {
        Record::Loss(LossRecord { time_unix_us, stage: Stage::Events, records: 2 })
    } else {
        Record::Socket(Box::new(socket(number, time_unix_us)))
    };
    Entry { number, network: Network { asn: Some(64_500), region: Some(Arc::from("DE")) }, record }
}

fn socket(number: u64, time_unix_us: u64) -> SocketRecord {
    let rtt_us = u32::try_from(1_000 + number % 9_000).unwrap();
    SocketRecord {
        time_unix_us,
        client: format!("10.0.{}.{}:443", number % 20, number % 200).parse().unwrap(),
        local: "192.0.2.1:80".parse().unwrap(),
        cookie: number,
        namespace: None,
        state: "ESTAB".into(),
        cause: Cause::Dump,
        sample_one_in: None,
        interval_us: Some(10_000_000),
        congestion_control: Some("bbr".into()),
        gauges: Some(Gauges { rtt_us, delivery_rate_bytes_per_s: Some(number + 1), ..Gauges::default() }),
        counters: Some(Counters { bytes_acked: 3, ..Counters::default() }),
        bbr: None,
    }
}

fn cluster(brokers: String) -> Cluster {
    // A killed member has to be missed soon.
    let properties = [("session.timeout.ms", "3000"), ("heartbeat.interval.ms", "500")];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    Cluster { brokers, topic: TOPIC.into(), properties }
}

/// What this program is when it is told to be something else than the tests.
#[test]
fn role() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    match var("THALWEG_TEST_ROLE").as_str() {
        "sink" => be_sink(var("THALWEG_TEST_BROKERS"), var("THALWEG_TEST_TIME").parse().unwrap()),
        "consumer" => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            let server = Server::at(&var("THALWEG_TEST_CLICKHOUSE")).unwrap();
            let limits = Limits { rows_max: 2_000, wait_max: Duration::from_millis(200) };
            let cluster = cluster(var("THALWEG_TEST_BROKERS"));
            Consumer::join(&cluster, GROUP, server, limits).unwrap().run(&AtomicBool::new(false));
        }
        _ => {}
    }
}

/// Sends every batch that Kafka does not have, and says so of each.
fn be_sink(brokers: String, time_unix_us: u64) {
    let mut cluster = cluster(brokers);
    cluster.properties.clear();
    let mut sink = KafkaSink::of(cluster, Some(3));
    let source = batch(0, 0).source;
    let position = until_kept(|| sink.position(&source)).unwrap_or(0);
    assert_eq!(position % BATCH_RECORDS, 0, "a batch is kept wholly or not at all");
    for index in position / BATCH_RECORDS..BATCHES {
        let batch = batch(index, time_unix_us);
        until_kept(|| sink.keep(&batch));
        println!("kept {index}");
    }
}

fn until_kept<T>(mut attempt: impl FnMut() -> Result<T, thalweg_telemetry::SinkError>) -> T {
    let until = Instant::now() + DELIVERY_MAX;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => {
                assert!(Instant::now() < until, "{error}: {}", error.cause);
                thread::sleep(Duration::from_millis(50)); // the broker is down: there is nothing to wait on
            }
        }
    }
}

/// A life of the sink or the consumer.
struct Life(Child);

impl Life {
    fn begin(
        role: &str,
        kafka: &services::Kafka,
        clickhouse: &services::ClickHouse,
        time_unix_us: u64,
    ) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env("THALWEG_TEST_ROLE", role)
            .env("THALWEG_TEST_BROKERS", kafka.brokers())
            .env("THALWEG_TEST_CLICKHOUSE", clickhouse.url())
            .env("THALWEG_TEST_TIME", time_unix_us.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Reads until a batch at or behind an index is kept.
    fn keeps(&mut self, index: u64) {
        let output = self.0.stdout.as_mut().unwrap();
        // A byte of reading ahead would be lost to the next reader.
        let mut output = BufReader::with_capacity(1, output);
        loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the sink ended before batch {index}");
            let kept = line.trim().strip_prefix("kept ").and_then(|kept| kept.parse::<u64>().ok());
            if kept.is_some_and(|kept| kept >= index) {
                return;
            }
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn number(server: &Server, query: &str) -> u64 {
    let answer = server.query(query, "TabSeparated").unwrap();
    std::str::from_utf8(&answer).unwrap().trim().parse().unwrap()
}

fn rows(server: &Server) -> u64 {
    number(server, "SELECT (SELECT count() FROM sockets) + (SELECT count() FROM losses)")
}

/// The first and the last number that are not there, and how many there are.
fn missing(server: &Server, sent: u64) -> String {
    let query = format!(
        "SELECT min(number), max(number), count() FROM numbers({sent}) \
         WHERE number NOT IN (SELECT number FROM sockets UNION ALL SELECT number FROM losses)"
    );
    String::from_utf8_lossy(&server.query(&query, "TabSeparated").unwrap()).into_owned()
}

/// Waits until all is there, or more than all.
fn delivered(server: &Server, sent: u64) {
    let until = Instant::now() + DELIVERY_MAX;
    while rows(server) < sent {
        assert!(Instant::now() < until, "{} of {sent} rows, without {}", rows(server), missing(server, sent));
        thread::sleep(Duration::from_millis(100)); // another process inserts: only asking tells
    }
}

fn check_once(server: &Server, sent: u64) {
    let losses = sent / LOSS_EVERY;
    assert_eq!(number(server, "SELECT count() FROM sockets"), sent - losses);
    assert_eq!(number(server, "SELECT uniqExact(host, epoch, number) FROM sockets"), sent - losses);
    assert_eq!(number(server, "SELECT count() FROM losses"), losses);
    assert_eq!(number(server, "SELECT uniqExact(number) FROM losses"), losses);
    assert_eq!(number(server, "SELECT sum(samples) FROM sockets_5m"), sent - losses);
    assert_eq!(number(server, "SELECT sum(bytes_acked) FROM sockets_5m"), 3 * (sent - losses));
}

/// Sends a message that is no batch.
fn send_junk(kafka: &services::Kafka) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", kafka.brokers()).create().unwrap();
    producer.send(BaseRecord::<str, str>::to(TOPIC).payload("junk")).unwrap();
    producer.flush(DELIVERY_MAX).unwrap();
}

fn now_unix_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

#[test]
fn what_is_sent_through_kafka_is_in_clickhouse_once_whoever_is_killed() {
    let kafka = services::Kafka::start();
    let mut clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let time = now_unix_us();
    let mut sink = Life::begin("sink", &kafka, &clickhouse, time);
    let mut consumer = Life::begin("consumer", &kafka, &clickhouse, time);

    sink.keeps(10);
    send_junk(&kafka);
    sink = Life::begin("sink", &kafka, &clickhouse, time);
    sink.keeps(20);
    clickhouse.kill();
    sink.keeps(25);
    clickhouse.restart();
    consumer = {
        drop(consumer);
        Life::begin("consumer", &kafka, &clickhouse, time)
    };
    sink.keeps(50);
    consumer = {
        drop(consumer);
        Life::begin("consumer", &kafka, &clickhouse, time)
    };
    sink = {
        drop(sink);
        Life::begin("sink", &kafka, &clickhouse, time)
    };
    sink.keeps(60);
    clickhouse.kill();
    clickhouse.restart();
    sink.keeps(BATCHES - 1);

    let sent = BATCHES * BATCH_RECORDS;
    delivered(&server, sent);
    drop(consumer);
    check_once(&server, sent);
    assert_eq!(
        number(&server, "SELECT count() FROM refused WHERE message = 'junk' AND kafka_offset >= 0"),
        1
    );
    assert_eq!(number(&server, "SELECT count() FROM refused"), 1);
}

#[test]
fn a_batch_that_comes_again_is_in_clickhouse_once() {
    let mut clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    assert_eq!(schema::apply(&server).unwrap().len(), 8);
    assert_eq!(schema::apply(&server).unwrap(), Vec::<String>::new());
    assert_eq!(schema::diff(&server).unwrap(), Vec::<String>::new());
    let mut sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
    let time = now_unix_us();
    sink.keep(&batch(0, time)).unwrap();
    sink.keep(&batch(0, time)).unwrap();
    clickhouse.kill();
    assert!(sink.keep(&batch(1, time)).unwrap_err().is_passing);
    clickhouse.restart();
    sink.keep(&batch(0, time)).unwrap();
    sink.keep(&batch(1, time)).unwrap();
    check_once(&server, 2 * BATCH_RECORDS);

    server.execute("ALTER TABLE sockets DROP COLUMN bbr_min_rtt_us").unwrap();
    server.execute("ALTER TABLE losses MODIFY COLUMN records UInt32").unwrap();
    server.execute("ALTER TABLE losses ADD COLUMN own String").unwrap();
    server.execute("DROP TABLE refused").unwrap();
    let expected = [
        "sockets.bbr_min_rtt_us: is missing",
        "losses.records: is UInt32, to be UInt64",
        "losses.own: is not in the schema",
        "refused: is missing",
    ];
    assert_eq!(schema::diff(&server).unwrap(), expected);
    let done = schema::apply(&server).unwrap();
    assert_eq!(done, ["added column bbr_min_rtt_us to sockets", "made refused"]);
    let error = sink.keep(&Batch { source: batch(0, 0).source, entries: vec![] });
    assert!(error.is_ok());
    server.execute("DROP TABLE losses").unwrap();
    assert!(
        !sink.keep(&batch(2, time)).unwrap_err().is_passing,
        "a table that is missing does not come by itself"
    );
}

/// The dashboard's queries, with macros and variables as Grafana's ClickHouse plugin replaces them.
#[test]
fn every_query_of_the_dashboard_runs() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let time = now_unix_us();
    let mut sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
    (0..4).for_each(|index| sink.keep(&batch(index, time)).unwrap());
    let dashboard: Value = serde_json::from_str(include_str!("../../schema/grafana/thalweg.json")).unwrap();
    let since = time / 1_000_000 - 3_600;
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        let query = replaced(panel["targets"][0]["rawSql"].as_str().unwrap(), since, since + 7_200);
        let answer = server.query(&query, "JSONCompactEachRow");
        let answer = answer.unwrap_or_else(|error| panic!("{title}: {}\n{query}", error.cause));
        // Only responses have no row, as the batch has none.
        let of_responses = query.contains("responses_5m");
        assert_eq!(answer.is_empty(), of_responses, "{title}");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let answer = server.query(variable["query"].as_str().unwrap(), "TabSeparated").unwrap();
            assert!(matches!(&*answer, b"DE\n" | b"bbr\n"), "{answer:?}");
        }
    }
}

fn replaced(query: &str, since: u64, until: u64) -> String {
    let mut query = query
        .replace("${region:singlequote}", "'DE','FR'")
        .replace("${congestion_control:singlequote}", "'bbr','cubic'");
    let macros =
        [("$__timeFilter_ms(", "fromUnixTimestamp64Milli", "000"), ("$__timeFilter(", "toDateTime", "")];
    for (name, function, zeros) in macros {
        while let Some(at) = query.find(name) {
            let inside = at + name.len();
            let mut depth = 1;
            let length = query[inside..]
                .find(|c| {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    depth == 0
                })
                .unwrap();
            let column = query[inside..inside + length].to_owned();
            let filter =
                format!("{column} >= {function}({since}{zeros}) AND {column} <= {function}({until}{zeros})");
            query.replace_range(at..=inside + length, &filter);
        }
    }
    assert!(!query.contains('$'), "{query}");
    query
}
