//! Kafka outage: while the broker is down, as many records arrive as under ten minutes of load.
//! They must wait in the spool, and after recovery each must be in ClickHouse once. A spool that is
//! too small must respect its limit, drop the oldest records and count them.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod program;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use program::tables::{number, until_delivered};
use program::{Directory, topic, until};
use thalweg_kafka::{Cluster, DEFAULT_TOPIC as TOPIC};
use thalweg_telemetry::KafkaSink;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{self, Consumer};
use thalweg_telemetry::runner::Runner;
use thalweg_telemetry::schema;
use thalweg_telemetry::spool::{Limits, Spool};
use thalweg_tests::{records, services};

/// Duration and load of the outage: samples of 1,600 sockets every 10 s, and 40 responses per
/// second.
const OUTAGE_S: u64 = 600;
const LOAD_RECORDS_PER_S: u64 = 200;
const OUTAGE_RECORDS: u64 = OUTAGE_S * LOAD_RECORDS_PER_S;
/// Records sent before the outage, so that all parts are running and records are in flight when it
/// starts.
const RECORDS_BEFORE: u64 = 20_000;
/// Records per append, as in a dump of a busy server.
const APPEND_RECORDS: u64 = 4_000;
const PREFIXES: u64 = 200;
const PARTITIONS: u16 = 3;
const GROUP: &str = "tables";
/// Spool sizes: the agent's default, and one too small for the outage.
const SPOOL_BYTES: u64 = 1 << 30;
const SMALL_SPOOL_BYTES: u64 = 4 << 20;

/// A machine whose records are written to a spool and from there to Kafka.
struct Machine {
    name: &'static str,
    dir: PathBuf,
    limits: Limits,
    spool: Arc<Spool>,
    runner: Runner,
    begin_us: u64,
}

impl Machine {
    fn start(name: &'static str, spool_bytes: u64, directory: &Directory, cluster: Cluster) -> Self {
        let (dir, limits) = (directory.0.join(name), Limits { total_bytes: spool_bytes });
        let spool = Spool::open(&dir, limits, name, name).unwrap();
        let runner = Runner::start(&spool, Box::new(KafkaSink::new(cluster, Some(PARTITIONS)))).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let begin_us = u64::try_from(now.as_micros()).unwrap() - OUTAGE_S * 1_000_000;
        Self { name, dir, limits, spool, runner, begin_us }
    }

    /// Appends records as fast as the spool accepts them. The spool's size on disk must stay within
    /// its limit.
    fn append(&self, records: u64) {
        let end = self.spool.appended() + records;
        while self.spool.appended() < end {
            let first = self.spool.appended();
            let time_us = |number| self.begin_us + number * 1_000_000 / LOAD_RECORDS_PER_S;
            let numbers = first..first + APPEND_RECORDS;
            let records = numbers.map(|number| records::record(number, PREFIXES, time_us(number)));
            let appended = self.spool.append(records.collect(), time_us(first));
            assert_eq!((appended.numbers.end, appended.lost), (first + APPEND_RECORDS, 0));
            assert!(self.bytes_on_disk() <= self.limits.total_bytes, "{}", self.name);
        }
    }

    fn bytes_on_disk(&self) -> u64 {
        let files = std::fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap());
        let segments = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "segment"));
        // The sink may delete a finished spool segment in the meantime.
        segments.filter_map(|segment| Some(segment.metadata().ok()?.len())).sum()
    }

    /// Returns whether the sink has given up an attempt because it cannot reach Kafka.
    fn is_without_kafka(&self) -> bool {
        let state = self.runner.state();
        state.retries() > 0 && state.error().is_some_and(|error| error.contains("cannot write to topic"))
    }

    /// Waits until the sink has reached the end of the spool. Returns the number of lost records,
    /// which must match the position file.
    fn lost_at_end(&self) -> u64 {
        let state = self.runner.state();
        let appended = self.spool.appended();
        until_delivered("the sink has processed everything", || state.stored() + state.lost() == appended);
        let lost = state.lost();
        let position = std::fs::read_to_string(self.dir.join("kafka.position")).unwrap();
        let recorded: Vec<u64> =
            position.split_whitespace().map(|word| word.parse().unwrap()).take(2).collect();
        assert_eq!(recorded, [appended, lost], "{}", self.name);
        lost
    }

    /// Returns the machine's numbers of rows: total, distinct, and aggregated in the rollups.
    fn rows(&self, server: &Server) -> [u64; 3] {
        let of = |what: &str, table: &str| {
            format!("SELECT {what} AS value FROM {table} WHERE pop = '{}'", self.name)
        };
        let sum = |parts: [String; 2]| format!("SELECT sum(value) FROM ({})", parts.join(" UNION ALL "));
        let names = ["sockets", "responses"].map(|table| of("number", table)).join(" UNION ALL ");
        [
            number(server, &sum(["sockets", "responses"].map(|table| of("count()", table)))),
            number(server, &format!("SELECT uniqExact(value) FROM ({names})")),
            number(server, &sum([of("sum(samples)", "sockets_5m"), of("sum(responses)", "responses_5m")])),
        ]
    }
}

#[test]
fn records_of_a_kafka_outage_reach_clickhouse_once_or_are_counted() {
    let clickhouse = thread::spawn(services::ClickHouse::start);
    let mut kafka = services::Kafka::start();
    let clickhouse = clickhouse.join().unwrap();
    let (server, directory) = (Server::at(&clickhouse.url()).unwrap(), Directory::new());
    schema::apply(&server).unwrap();
    // Make clients notice quickly that the broker is available again, and that a member was lost.
    let properties = [
        ("reconnect.backoff.max.ms", "500"),
        ("session.timeout.ms", "3000"),
        ("heartbeat.interval.ms", "500"),
    ];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let cluster = Cluster { brokers: kafka.brokers(), topic: TOPIC.into(), properties };
    let start = |name, spool_bytes| Machine::start(name, spool_bytes, &directory, cluster.clone());
    let machines = [start("large", SPOOL_BYTES), start("small", SMALL_SPOOL_BYTES)];
    let [large, small] = &machines;
    machines.iter().for_each(|machine| machine.append(RECORDS_BEFORE));
    until_delivered("the topic exists", || cluster.has_topic().unwrap());
    let limits = consumer::Limits { rows_max: 200_000, wait_max: Duration::from_secs(1) };
    let mut consumer =
        Consumer::join(&cluster, GROUP, Server::at(&clickhouse.url()).unwrap(), limits).unwrap();
    let (figures, stop) = (Arc::clone(consumer.figures()), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&stop);
    let consuming = thread::spawn(move || consumer.run(&is_over));

    until_delivered("all parts are running", || figures.records.get() == 2 * RECORDS_BEFORE);
    machines.iter().for_each(|machine| machine.append(RECORDS_BEFORE));
    until("the sinks are processing it", || {
        machines.iter().all(|machine| machine.runner.state().stored() > RECORDS_BEFORE)
    });
    kafka.kill();
    machines.iter().for_each(|machine| machine.append(OUTAGE_RECORDS));
    until_delivered("the sinks have noticed the outage", || machines.iter().all(Machine::is_without_kafka));
    let lag = large.runner.state().lag();
    assert!(lag.records >= OUTAGE_RECORDS && large.runner.state().lost() == 0, "{lag:?}");
    println!("{:.1} bytes a record in the spool", lag.bytes as f64 / lag.records as f64);
    assert!(small.runner.state().lost() > 0);

    kafka.restart();
    let lost = machines.each_ref().map(Machine::lost_at_end);
    until_delivered("the topic is read to its end", || topic::is_read(&kafka.brokers(), TOPIC, GROUP));
    let appended = 2 * RECORDS_BEFORE + OUTAGE_RECORDS;
    println!("{appended} appended, {lost:?} lost, {} messages repeated", figures.messages_repeated.get());
    assert_eq!(lost[0], 0);
    assert_eq!(large.rows(&server), [appended; 3]);
    assert!(lost[1] > 0);
    assert_eq!(small.rows(&server), [appended - lost[1]; 3], "rows + lost = appended");

    stop.store(true, Relaxed);
    consuming.join().unwrap();
    for machine in machines {
        machine.spool.close(Duration::ZERO);
        machine.runner.join();
    }
}
