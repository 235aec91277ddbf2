//! Lost blocks: ClickHouse knows a block's deduplication token, but the block's rows are missing,
//! as after a crash. The block must be detected and restored, in the table and its rollup
//! separately, without touching present rows, even by two sinks at once. A late position must not
//! lower the known position of a partition.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_record::{
    Batch, Counters, Cut, Delivery, Entry, Gauges, LossRecord, Network, Protocol, Record, ResponseRecord,
    SocketRecord, Source, Stage,
};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::schema;
use thalweg_telemetry::{Backoff, ClickHouseSink, Sink};
use thalweg_tests::services;

const BATCHES: u64 = 3;
const RECORDS: u64 = 600;
/// Index of the lost batch. The batches before and after it have rows in the same rollup groups.
const LOST: u64 = 1;
const TABLES: [&str; 3] = ["sockets", "responses", "losses"];
const ROLLUPS: [&str; 2] = ["sockets_5m", "responses_5m"];
/// Number of races between two sinks that restore the lost batch. In each race, the sinks start
/// further apart.
const RACES: u32 = 4;
const QUANTILES: &str = "quantilesDDMerge(0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)";

/// Creates the batch with this index. Each batch spans midnight, so that its rows are in two
/// partitions of each table.
fn batch(index: u64, midnight: u64) -> Batch {
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    let entry = |nth: u64| {
        let number = index * RECORDS + nth;
        let time_unix_us = (midnight + nth - RECORDS / 2) * 1_000_000 + number;
        let client = format!("10.0.{}.{}:443", nth % 7, nth % 200).parse().unwrap();
        let record = match nth % 10 {
            0 => Record::Loss(LossRecord { time_unix_us, stage: Stage::Edge, records: number }),
            1..5 => Record::Response(Arc::new(response(number, client, time_unix_us))),
            _ => Record::Socket(Box::new(socket(number, client, time_unix_us))),
        };
        let network = Network { asn: Some(64_500), region: nth.is_multiple_of(2).then(|| Arc::from("DE")) };
        Entry { number, network, record }
    };
    Batch { source, entries: (0..RECORDS).map(entry).collect() }
}

fn socket(number: u64, client: std::net::SocketAddr, time_unix_us: u64) -> SocketRecord {
    let rtt_us = 1_000 + u32::try_from(number).unwrap();
    SocketRecord {
        cookie: number,
        congestion_control: Some("bbr".into()),
        gauges: Some(Gauges { rtt_us, ..Gauges::default() }),
        counters: Some(Counters { bytes_acked: number, ..Counters::default() }),
        ..SocketRecord::new(time_unix_us, client, "192.0.2.1:80".parse().unwrap())
    }
}

fn response(number: u64, client: std::net::SocketAddr, time_unix_us: u64) -> ResponseRecord {
    // The rollup replaces the long name with '(other)'.
    let host = if number.is_multiple_of(3) { "a.example".to_owned() } else { "b".repeat(300) };
    ResponseRecord {
        host,
        path: "/a".into(),
        bytes: 200_000 + number,
        ttfb_us: Some(500 + number),
        written_us: 90_000,
        delivery: Some(Delivery::complete(200_000 + number, 90_000)),
        protocol: Protocol::ALL[0],
        cut: number.is_multiple_of(5).then_some(Cut::ALL[0]),
        ..ResponseRecord::new(time_unix_us, client)
    }
}

struct Tables {
    clickhouse: services::ClickHouse,
    server: Server,
    /// The sink that filled the tables. It considers all its blocks verified.
    sink: ClickHouseSink,
    midnight: u64,
    /// Rollup parts written by the other batches, by their first block.
    others: BTreeSet<String>,
    /// The tables' content when every batch is present.
    whole: String,
}

impl Tables {
    /// Creates tables with all batches, each batch in separate parts.
    fn filled() -> Self {
        let clickhouse = services::ClickHouse::start();
        let server = Server::at(&clickhouse.url()).unwrap();
        schema::apply(&server).unwrap();
        let apart =
            "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1";
        for rollup in ROLLUPS {
            server.execute(&format!("ALTER TABLE {rollup} MODIFY SETTING {apart}")).unwrap();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let midnight = now / 86_400 * 86_400;
        let sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
        let (others, whole) = (BTreeSet::new(), String::new());
        let mut tables = Self { clickhouse, server, sink, midnight, others, whole };
        for index in 0..BATCHES {
            let known = tables.parts();
            tables.sink.store(&batch(index, midnight)).unwrap();
            let made = tables.parts().into_keys().filter(|begin| !known.contains_key(begin));
            tables.others.extend(made.filter(|_| index != LOST));
        }
        tables.whole = tables.content();
        let names = tables.text("SELECT uniqExact(host, epoch, number) FROM sockets");
        assert_eq!(names, format!("{}\n", BATCHES * RECORDS / 2));
        tables
    }

    fn text(&self, query: &str) -> String {
        let answer = self.server.query(query, "TabSeparated");
        let answer = answer.unwrap_or_else(|error| panic!("{query}: {}", error.cause));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the rollups' parts, by first block, with their current names.
    fn parts(&self) -> BTreeMap<String, (String, String)> {
        let query = "SELECT concat(table, ' ', partition_id, ' ', min_block_number), table, name FROM system.parts \
             WHERE database = currentDatabase() AND table LIKE '%_5m' AND active";
        let line = |line: &str| {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut column = || columns.next().unwrap();
            (column(), (column(), column()))
        };
        self.text(query).lines().map(line).collect()
    }

    /// Returns all rows, and all rollup groups with their sums and percentiles.
    fn content(&self) -> String {
        let rows = TABLES.map(|table| self.text(&format!("SELECT * FROM {table} ORDER BY number, host")));
        let keys = "window, pop, prefix, asn, region, congestion_control";
        let sockets = self.text(&format!(
            "SELECT {keys}, sum(samples), sum(bytes_acked), {QUANTILES}(rtt) FROM sockets_5m GROUP BY {keys} ORDER BY {keys}"
        ));
        let keys = "window, pop, prefix, asn, region, congestion_control, cache, request_host";
        let responses = self.text(&format!(
            "SELECT {keys}, sum(responses), sum(cut), sum(bytes), {QUANTILES}(ttfb), {QUANTILES}(goodput) \
             FROM responses_5m GROUP BY {keys} ORDER BY {keys}"
        ));
        assert!(responses.contains("(other)"));
        rows.concat() + &sockets + &responses
    }

    /// Creates a new sink, as in another process.
    fn sink(&self) -> ClickHouseSink {
        ClickHouseSink::at(&self.clickhouse.url()).unwrap()
    }

    fn lost_batch(&self) -> Batch {
        batch(LOST, self.midnight)
    }

    /// Deletes the lost batch's rows that match a condition. The tokens are kept.
    fn lose_rows(&self, of: &str) {
        let (first, end) = (LOST * RECORDS, (LOST + 1) * RECORDS);
        for table in TABLES {
            self.server
                .execute(&format!("DELETE FROM {table} WHERE number >= {first} AND number < {end} AND {of}"))
                .unwrap();
        }
    }

    /// Deletes the lost batch from the rollups. The tokens are kept.
    fn lose_rollups(&self) {
        let mut lost = BTreeSet::new();
        for (_, (rollup, part)) in self.parts().into_iter().filter(|(begin, _)| !self.others.contains(begin))
        {
            self.server.execute(&format!("DELETE FROM {rollup} WHERE _part = '{part}'")).unwrap();
            lost.insert(rollup);
        }
        assert!(lost.iter().eq(&ROLLUPS.map(str::to_owned).into_iter().collect::<BTreeSet<_>>()));
    }

    /// Checks that a sink that has already verified the lost batch adds nothing, that a new sink
    /// restores the batch, and that the next new sink finds it present.
    fn restores(&mut self, tables: u64) {
        let lost = self.content();
        assert_ne!(lost, self.whole);
        let batch = self.lost_batch();
        self.sink.store(&batch).unwrap();
        assert!(self.content() == lost, "a block with a known token must not be inserted again");
        for restored in [tables, 0] {
            let mut sink = self.sink();
            sink.store(&batch).unwrap();
            assert!(self.content() == self.whole, "the content must be restored");
            assert_eq!(sink.verified().restored.get(), restored);
            assert_eq!(sink.verified().blocks.get(), TABLES.len() as u64);
            assert_eq!(sink.unverified(), 0);
        }
        let aside = "SELECT name FROM system.tables WHERE name LIKE 'thalweg_verify%'";
        assert_eq!(self.text(aside), "");
    }

    /// Checks that the lost batch is accepted after a bounded number of attempts, although
    /// `unverified` of its tables, including `sockets`, could not be verified.
    fn passes_unverified(&self, unverified: u64) {
        let (mut sink, batch) = (self.sink(), self.lost_batch());
        let failures = (0..100).take_while(|_| sink.store(&batch).is_err()).count();
        let verified = sink.verified();
        assert_eq!((failures, sink.unverified()), (15, unverified));
        assert_eq!(verified.blocks.get(), TABLES.len() as u64 - unverified);
        assert_eq!(verified.restored.get(), 0);
    }

    /// Creates the temporary tables left by a process that was killed before it moved restored
    /// rows.
    fn leave_tables(&self) {
        let token = format!("alpha/7/{}-{}/sockets", LOST * RECORDS, (LOST + 1) * RECORDS - 1);
        let hash = self.text(&format!("SELECT lower(hex(xxh3('{token}')))"));
        for what in ["block", "rows"] {
            let name = format!("thalweg_verify_sockets_{}_{what}", hash.trim());
            self.server.execute(&format!("CREATE TABLE {name} AS sockets")).unwrap();
            self.server.execute(&format!("INSERT INTO {name} SELECT * FROM sockets")).unwrap();
        }
    }
}

#[test]
fn lost_rows_are_restored_and_present_rows_stay() {
    let mut tables = Tables::filled();
    let mut sink = tables.sink();
    sink.store(&tables.lost_batch()).unwrap();
    assert_eq!(sink.verified().restored.get(), 0);
    assert!(tables.content() == tables.whole);

    tables.lose_rows("true");
    tables.restores(3);
    tables.lose_rows(&format!("time < fromUnixTimestamp({})", tables.midnight));
    tables.restores(3);
    tables.lose_rollups();
    tables.restores(2);
    tables.lose_rows("true");
    tables.lose_rollups();
    tables.leave_tables();
    tables.restores(3);
}

#[test]
fn unverifiable_block_is_counted_and_passes() {
    let tables = Tables::filled();
    // Add rows of another host to the table but not to its rollup.
    let partition = tables.text("SELECT DISTINCT _partition_id FROM sockets LIMIT 1");
    for statement in [
        "CREATE TABLE other AS sockets",
        "INSERT INTO other SELECT * REPLACE ('beta' AS host) FROM sockets WHERE number % 2 = 0",
        &format!("ALTER TABLE other MOVE PARTITION ID '{}' TO TABLE sockets", partition.trim()),
    ] {
        tables.server.execute(statement).unwrap();
    }
    let content = tables.content();
    tables.passes_unverified(1);
    assert!(tables.content() == content, "nothing may be added in case of doubt");

    // Break the queries on which verification depends.
    for statement in ["DROP VIEW sockets_5m_view", "DROP TABLE sockets_5m"] {
        tables.server.execute(statement).unwrap();
    }
    tables.passes_unverified(1);

    // Replace a table with one that only forwards rows to another table. A staging table copied
    // from it would forward rows too, so the block cannot be verified.
    for statement in [
        "DROP VIEW responses_5m_view",
        "RENAME TABLE responses TO kept",
        "CREATE TABLE responses AS kept ENGINE = Buffer(currentDatabase(), kept, 1, 0, 0, 0, 0, 0, 0)",
    ] {
        tables.server.execute(statement).unwrap();
    }
    tables.passes_unverified(2);
}

#[test]
fn two_sinks_restore_a_block_once() {
    for race in 0..RACES {
        let tables = Tables::filled();
        let url = tables.clickhouse.url();
        if race % 3 != 1 {
            tables.lose_rows("true");
        }
        if race % 3 != 0 {
            tables.lose_rollups();
        }
        assert!(tables.content() != tables.whole);
        thread::scope(|scope| {
            for looker in 0..2 {
                let (url, batch) = (&url, tables.lost_batch());
                scope.spawn(move || {
                    let mut sink = ClickHouseSink::at(url).unwrap();
                    let mut backoff = Backoff::default();
                    thread::sleep(Duration::from_millis(60) * race * looker);
                    while let Err(error) = sink.store(&batch) {
                        assert!(error.is_passing, "{error}: {}", error.cause);
                        thread::sleep(backoff.pause());
                    }
                    assert_eq!(sink.unverified(), 0);
                });
            }
        });
        assert!(tables.content() == tables.whole, "race {race}");
    }
}

#[test]
fn without_verification_rights_a_block_passes_at_once() {
    let tables = Tables::filled();
    tables.lose_rows("true");
    let lost = tables.content();
    let mut sink =
        ClickHouseSink::at(&tables.clickhouse.url().replace("//", &format!("//{}@", services::INSERT_ONLY)))
            .unwrap();
    sink.store(&tables.lost_batch()).unwrap();
    assert_eq!(sink.unverified(), TABLES.len() as u64);
    assert_eq!(sink.verified().blocks.get(), 0);
    assert!(tables.content() == lost);
}

#[test]
fn late_position_does_not_lower_the_known_one() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    for place in ["9, 5", "9, 3", "8, 70000"] {
        let columns = "topic, kafka_partition, host, epoch, batch_end, part";
        let row = format!("INSERT INTO positions ({columns}) VALUES ('t', 1, 'alpha', 7, {place})");
        server.execute(&row).unwrap();
    }
    server.execute("OPTIMIZE TABLE positions FINAL").unwrap();
    let kept = server.query("SELECT batch_end, part FROM positions", "TabSeparated").unwrap();
    assert_eq!(String::from_utf8_lossy(&kept), "9\t5\n");
}
