//! Telemetry through Kafka to ClickHouse, while the sink, the broker, ClickHouse and consumers are
//! killed repeatedly and consumers are paused. Each record must arrive once, in the tables and the
//! rollups, even if ClickHouse is killed during an insert, and each key must be in one partition.
//! Without kills, repeated batches must be stored once, and every dashboard query must return rows.
//!
//! The sink and the consumers are separate processes of this program, with their role in an
//! environment variable. `SEED=n` changes the times of the kills.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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
use thalweg_kafka::Cluster;
use thalweg_record::{Batch, Entry, LossRecord, Record, Source, Stage};
use thalweg_telemetry::Sink;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{Consumer, Limits};
use thalweg_telemetry::schema;
use thalweg_telemetry::{ClickHouseSink, KafkaSink};
use thalweg_tests::{records, services};

use program::tables::{DELIVERY_MAX, number};
use program::topic;
use tables::{check_once, delivered};

const TOPIC: &str = "telemetry";
const GROUP: &str = "tables";
const BATCHES: u64 = 80;
const BATCH_RECORDS: u64 = 250;
/// Number of client networks.
const PREFIXES: u64 = 20;
/// One record in this many is a loss.
const LOSS_EVERY: u64 = 50;
/// Number of kills.
const KILLS: usize = 10;
const DEFAULT_SEED: u64 = 20_261_122;
/// Time after which the group drops a silent member.
const SESSION: Duration = Duration::from_secs(3);

/// Creates the batch with this index, which is identical in each process of the sink.
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
    // Make the group notice a killed member quickly.
    let session = SESSION.as_millis().to_string();
    let properties = [("session.timeout.ms", session.as_str()), ("heartbeat.interval.ms", "500")];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    Cluster { brokers, topic: TOPIC.into(), properties }
}

/// Runs this program as a sink or consumer; does nothing in a test run.
#[test]
fn role() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    match var("THALWEG_TEST_ROLE").as_str() {
        "sink" => {
            let from = var("THALWEG_TEST_FROM").parse().unwrap();
            run_sink(var("THALWEG_TEST_BROKERS"), var("THALWEG_TEST_TIME").parse().unwrap(), from);
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

/// Sends all batches from index `from` on, and prints the index of each.
fn run_sink(brokers: String, time_unix_us: u64, from: u64) {
    let mut cluster = cluster(brokers);
    cluster.properties.clear();
    let mut sink = KafkaSink::new(cluster, Some(3));
    for index in from..BATCHES {
        let batch = batch(index, time_unix_us);
        retry(|| sink.store(&batch));
        println!("kept {index}");
    }
}

fn retry<T>(mut attempt: impl FnMut() -> Result<T, thalweg_telemetry::SinkError>) -> T {
    let until = Instant::now() + DELIVERY_MAX;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => {
                assert!(Instant::now() < until, "{error}: {}", error.cause);
                thread::sleep(Duration::from_millis(50)); // no event to wait for: poll
            }
        }
    }
}

/// The services, and the timestamp of all records.
struct Services {
    kafka: services::Kafka,
    clickhouse: services::ClickHouse,
    time_unix_us: u64,
}

/// One process of the sink or a consumer.
struct Life(Child);

impl Life {
    /// Starts a sink that sends batches starting at `from`.
    fn sink(services: &Services, from: u64) -> Self {
        Self::start("sink", services, from)
    }

    fn consumer(services: &Services) -> Self {
        Self::start("consumer", services, 0)
    }

    fn start(role: &str, services: &Services, from: u64) -> Self {
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

    /// Sends SIGKILL and waits for the exit.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Pauses the process.
    fn pause_for(&self, duration: Duration) {
        self.signal(Signal::STOP);
        thread::sleep(duration);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Reads the process's output until this batch or a later batch is stored.
    fn wait_for_batch(&mut self, index: u64) {
        let output = self.0.stdout.as_mut().unwrap();
        // Do not read ahead: the next reader would miss the buffered bytes.
        let mut output = BufReader::with_capacity(1, output);
        loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the sink exited before batch {index}");
            let kept = line.trim().strip_prefix("kept ").and_then(|kept| kept.parse::<u64>().ok());
            if kept.is_some_and(|kept| kept >= index) {
                return;
            }
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a message that is not a batch.
fn send_junk(kafka: &services::Kafka) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", kafka.brokers()).create().unwrap();
    producer.send(BaseRecord::<str, str>::to(TOPIC).payload("junk")).unwrap();
    producer.flush(DELIVERY_MAX).unwrap();
}

fn now_unix_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A deterministic random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Part to kill. All parts are killed in turn, at times given by the seed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Sink,
    Kafka,
    ClickHouse,
    Consumer,
    /// A consumer that is paused for longer than its session and resumed after another consumer has
    /// taken over its partitions.
    PausedConsumer,
}

const VICTIMS: [Victim; 5] =
    [Victim::Kafka, Victim::Sink, Victim::Consumer, Victim::ClickHouse, Victim::PausedConsumer];

#[test]
fn records_through_kafka_reach_clickhouse_once_despite_kills() {
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
    sink.wait_for_batch(kept);
    send_junk(&services.kafka);
    for victim in VICTIMS.into_iter().cycle().take(KILLS) {
        kept += 1 + random.below(2 * (BATCHES - kept) / (KILLS as u64 + 1));
        sink.wait_for_batch(kept);
        println!("{victim:?} after batch {kept}");
        let consumer = &mut consumers[random.below(2) as usize];
        match victim {
            Victim::Sink => {
                sink.kill();
                // The position file may or may not have been written.
                sink = Life::sink(&services, random.below(2) * kept);
            }
            Victim::Consumer => {
                consumer.kill();
                *consumer = Life::consumer(&services);
            }
            Victim::PausedConsumer => consumer.pause_for(SESSION + SESSION / 2),
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
    sink.wait_for_batch(BATCHES - 1);

    let sent = BATCHES * BATCH_RECORDS;
    delivered(&server, sent);
    drop(consumers);
    check_once(&server, sent);
    let by_key = topic::partitions_by_key(&services.kafka.brokers(), TOPIC);
    // A loss is keyed by its host, and any other record by its network.
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
fn repeated_batch_is_in_clickhouse_once() {
    let mut clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    assert_eq!(schema::apply(&server).unwrap().len(), 9);
    assert_eq!(schema::apply(&server).unwrap(), Vec::<String>::new());
    assert_eq!(schema::diff(&server).unwrap(), Vec::<String>::new());
    let mut sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
    let time = now_unix_us();
    sink.store(&batch(0, time)).unwrap();
    sink.store(&batch(0, time)).unwrap();
    clickhouse.kill();
    assert!(sink.store(&batch(1, time)).unwrap_err().is_passing);
    clickhouse.restart();
    sink.store(&batch(0, time)).unwrap();
    sink.store(&batch(1, time)).unwrap();
    check_once(&server, 2 * BATCH_RECORDS);

    server.execute("ALTER TABLE sockets DROP COLUMN bbr_min_rtt_us").unwrap();
    server.execute("ALTER TABLE losses MODIFY COLUMN records UInt32").unwrap();
    server.execute("ALTER TABLE losses ADD COLUMN own String").unwrap();
    server.execute("DROP TABLE refused").unwrap();
    let expected = [
        "sockets.bbr_min_rtt_us: is missing",
        "losses.records: is UInt32, expected UInt64",
        "losses.own: is not in the schema",
        "refused: is missing",
    ];
    assert_eq!(schema::diff(&server).unwrap(), expected);
    let done = schema::apply(&server).unwrap();
    assert_eq!(done, ["added column bbr_min_rtt_us to sockets", "created refused"]);
    let error = sink.store(&Batch { source: batch(0, 0).source, entries: vec![] });
    assert!(error.is_ok());
    server.execute("DROP TABLE losses").unwrap();
    assert!(
        !sink.store(&batch(2, time)).unwrap_err().is_passing,
        "a missing table does not reappear by itself"
    );
}
