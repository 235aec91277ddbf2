//! Records of sockets, responses and losses go through Kafka to ClickHouse, while the sink, the broker, ClickHouse and consumers are
//! killed again and again, and consumers are held up: what was sent is there, once, and so it is in the rollups, also where ClickHouse
//! was killed within an insert; and what has one key is in one partition. Without kills, what comes twice is there once, and every
//! query of the dashboard has its rows.
//!
//! The sink and the consumers are processes of their own: this program again, told by its environment what to be. `SEED=n` has
//! them killed at other moments.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

#[path = "telemetry/dashboard.rs"]
mod dashboard;
mod program;
#[path = "telemetry/tables.rs"]
mod tables;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rustix::process::{Pid, Signal, kill_process};
use thalweg_record::{Batch, Entry, LossRecord, Record, Source, Stage};
use thalweg_telemetry::Sink;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{Consumer, Limits};
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::schema;
use thalweg_telemetry::sink::{ClickHouseSink, KafkaSink};
use thalweg_tests::{records, services};

use program::tables::{DELIVERY_MAX, number};
use program::topic;
use tables::{check_once, delivered};

const TOPIC: &str = "telemetry";
const GROUP: &str = "tables";
const BATCHES: u64 = 80;
const BATCH_RECORDS: u64 = 250;
/// Client networks.
const PREFIXES: u64 = 20;
/// One record in so many is of a loss.
const LOSS_EVERY: u64 = 50;
/// Who is killed, and how often.
const KILLS: usize = 10;
const DEFAULT_SEED: u64 = 20_261_122;
/// How long the group waits for a member that says nothing.
const SESSION: Duration = Duration::from_secs(3);

/// The batch of an index: the same in each life of the sink.
fn batch(index: u64, time_unix_us: u64) -> Batch {
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    let numbers = index * BATCH_RECORDS..(index + 1) * BATCH_RECORDS;
    let entries = numbers.map(|number| entry(number, time_unix_us + number)).collect();
    Batch { source, entries }
}

fn entry(number: u64, time_unix_us: u64) -> Entry {
    let (network, mut record) = records::record(number, PREFIXES, time_unix_us);
    if number.is_multiple_of(LOSS_EVERY) {
        record = Record::Loss(LossRecord { time_unix_us, stage: Stage::Events, records: 2 });
    }
    Entry { number, network, record }
}

fn cluster(brokers: String) -> Cluster {
    // A killed member has to be missed soon.
    let session = SESSION.as_millis().to_string();
    let properties = [("session.timeout.ms", session.as_str()), ("heartbeat.interval.ms", "500")];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    Cluster { brokers, topic: TOPIC.into(), properties }
}

/// What this program is when it is told to be something else than the tests.
#[test]
fn role() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    match var("THALWEG_TEST_ROLE").as_str() {
        "sink" => {
            let from = var("THALWEG_TEST_FROM").parse().unwrap();
            be_sink(var("THALWEG_TEST_BROKERS"), var("THALWEG_TEST_TIME").parse().unwrap(), from);
        }
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

/// Sends every batch from one on, and says so of each.
fn be_sink(brokers: String, time_unix_us: u64, from: u64) {
    let mut cluster = cluster(brokers);
    cluster.properties.clear();
    let mut sink = KafkaSink::of(cluster, Some(3));
    for index in from..BATCHES {
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

/// The services, and the time of all records.
struct Services {
    kafka: services::Kafka,
    clickhouse: services::ClickHouse,
    time_unix_us: u64,
}

/// A life of the sink or a consumer.
struct Life(Child);

impl Life {
    /// Of a sink, which sends from a batch on.
    fn sink(services: &Services, from: u64) -> Self {
        Self::begin("sink", services, from)
    }

    fn consumer(services: &Services) -> Self {
        Self::begin("consumer", services, 0)
    }

    fn begin(role: &str, services: &Services, from: u64) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env("THALWEG_TEST_ROLE", role)
            .env("THALWEG_TEST_BROKERS", services.kafka.brokers())
            .env("THALWEG_TEST_CLICKHOUSE", services.clickhouse.url())
            .env("THALWEG_TEST_TIME", services.time_unix_us.to_string())
            .env("THALWEG_TEST_FROM", from.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// SIGKILL, and its end.
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// It does nothing for a while.
    fn is_held_for(&self, duration: Duration) {
        self.signal(Signal::STOP);
        thread::sleep(duration);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
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
        self.end();
    }
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

/// Small numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Who is killed: each in turn, so that none is spared, at moments that the seed says.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Sink,
    Kafka,
    ClickHouse,
    Consumer,
    /// Held for longer than its session lasts, then let go on: another has its partitions by then.
    HeldConsumer,
}

const VICTIMS: [Victim; 5] =
    [Victim::Kafka, Victim::Sink, Victim::Consumer, Victim::ClickHouse, Victim::HeldConsumer];

#[test]
fn what_is_sent_through_kafka_is_in_clickhouse_once_whoever_is_killed() {
    let seed = std::env::var("SEED").map_or(DEFAULT_SEED, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut random = Random(seed);
    let mut services = Services {
        kafka: services::Kafka::start(),
        clickhouse: services::ClickHouse::start(),
        time_unix_us: now_unix_us(),
    };
    let server = Server::at(&services.clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let mut sink = Life::sink(&services, 0);
    let mut consumers = [Life::consumer(&services), Life::consumer(&services)];

    let mut kept = 3;
    sink.keeps(kept);
    send_junk(&services.kafka);
    for victim in VICTIMS.into_iter().cycle().take(KILLS) {
        kept += 1 + random.below(2 * (BATCHES - kept) / (KILLS as u64 + 1));
        sink.keeps(kept);
        println!("{victim:?} after batch {kept}");
        let consumer = &mut consumers[random.below(2) as usize];
        match victim {
            Victim::Sink => {
                sink.end();
                // Its note may have told it where it was, or have been lost.
                sink = Life::sink(&services, random.below(2) * kept);
            }
            Victim::Consumer => {
                consumer.end();
                *consumer = Life::consumer(&services);
            }
            Victim::HeldConsumer => consumer.is_held_for(SESSION + SESSION / 2),
            Victim::Kafka => {
                services.kafka.kill();
                services.kafka.restart();
            }
            Victim::ClickHouse => {
                services.clickhouse.kill();
                services.clickhouse.restart();
            }
        }
    }
    sink.keeps(BATCHES - 1);

    let sent = BATCHES * BATCH_RECORDS;
    delivered(&server, sent);
    drop(consumers);
    check_once(&server, sent);
    let by_key = topic::partitions_by_key(&services.kafka.brokers(), TOPIC);
    // Each network, and the machine, under whose name losses are.
    assert_eq!(by_key.len() as u64, PREFIXES + 1);
    assert!(by_key.values().all(|partitions| partitions.len() == 1), "{by_key:?}");
    assert!(by_key.values().flatten().any(|partition| *partition > 0), "{by_key:?}");
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
    assert_eq!(schema::apply(&server).unwrap().len(), 9);
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
